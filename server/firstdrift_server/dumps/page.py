"""/dumps: one dump without a partner: what it is, its trees and nodes, where it overflows.

The views of trees and nodes need NumPy, which the server is ready without.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.dumps.jobs import read_dump_later
from firstdrift_server.answers import answer, wants_json
from firstdrift_server.context import Shared
from firstdrift_server.dumps.view import dump_view, overflow_view, path_view
from firstdrift_server.forms import Fields
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.parts.growth import set_followed
from firstdrift_server.questions.dumps import real_dump
from firstdrift_server.tree.page import rows_answer

router = APIRouter(include_in_schema=False)


@router.get("/dumps")
def at_path(request: Request, context: Shared, path: str = "") -> Response:
    """Lead to the dump at a path; if it was not read yet, offer that, and show how far it is."""
    if not path:
        return RedirectResponse("/?show=dumps", HTTPStatus.SEE_OTHER)
    view = context.read(path_view, context, path)
    if view.address is not None and not view.is_live and not wants_json(request):
        return RedirectResponse(view.address, HTTPStatus.SEE_OTHER)
    return answer(request, "dump_at.html", view)


@router.post("/dumps")
def read(fields: Fields, context: Shared) -> Response:
    """Have the dump at a path read; with `computes`, also the values of tensors without statistics."""
    path = context.ask(real_dump, context.roots, fields.get("path", ""))
    context.about("path", path)
    context.write(read_dump_later, path, computes=fields.get("computes") == "yes")
    return RedirectResponse(f"/dumps?{query_of({'path': str(path)})}", HTTPStatus.SEE_OTHER)


@router.post("/dumps/follow")
def follow(fields: Fields, context: Shared) -> Response:
    """Look at a dump again by itself while it grows, or, with `stops`, no more."""
    path = context.ask(real_dump, context.roots, fields.get("path", ""))
    context.about("path", path)
    context.write(set_followed, [path], stops=fields.get("stops") == "yes")
    return RedirectResponse(f"/dumps?{query_of({'path': str(path)})}", HTTPStatus.SEE_OTHER)


@router.get("/dumps/{dump}")
def show(request: Request, dump: int, context: Shared, *, check: bool = False) -> Response:
    """Say what a dump is and what lies in it; with `check`, whether it has changed since it was read."""
    view = context.read(dump_view, context, dump, check=check)
    return answer(request, "dump.html", view)


@router.get("/dumps/{dump}/overflow")
def overflow(request: Request, dump: int, context: Shared) -> Response:
    """List the nodes with NaN or infinities."""
    view = context.read(overflow_view, context, dump)
    return answer(request, "dump_overflow.html", view)


@router.get("/dumps/{dump}/s/{position}/tree")
def tree(request: Request, dump: int, position: int, context: Shared) -> Response:
    """Show the part of the tree around the selected row; the first node that overflows if none is."""
    from firstdrift_server.dumps.tree import dump_tree_view

    view = context.read(dump_tree_view, context, dump, position, request.query_params)
    return answer(request, "dump_tree.html", view)


@router.get("/dumps/{dump}/s/{position}/tree/rows")
def rows(request: Request, dump: int, position: int, context: Shared) -> Response:
    """Give pieces of the tree as HTML, and the address that stands for the view after a step."""
    from firstdrift_server.dumps.tree import dump_chunks

    found = context.read(dump_chunks, context, dump, position, request.query_params)
    return rows_answer(request, found, cells_from="dump_cells.html")


@router.get("/dumps/{dump}/s/{position}/n/{row}")
def node(
    request: Request, dump: int, position: int, row: int, context: Shared, *, panel: bool = False
) -> Response:
    """Show a node with its tensors and a trend; with `panel` only what the panel beside the tree shows."""
    from firstdrift_server.dumps.node import dump_node_page, dump_node_view
    from firstdrift_server.dumps.tree import read_slice_at, tree_of

    with context.reading() as session:
        known = tree_of(session, context, read_slice_at(session, dump, position).id)
        if panel:
            view = dump_node_view(session, context, dump, position, row, known)
        else:
            view = dump_node_page(session, context, (dump, position, row), known, request.query_params)
    return answer(request, "dump_node_panel.html" if panel else "dump_node.html", view)
