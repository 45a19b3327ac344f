"""/c/{id}/s/{slice}/tree: the tree of matched nodes.

Its view needs NumPy, which the server is ready without.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from msgspec import Struct
from msgspec.structs import asdict
from starlette.responses import Response

from firstdrift_frontend.rendering import render
from firstdrift_server.answers import answer_early
from firstdrift_server.context import Shared
from firstdrift_server.reader_language import language_of
from firstdrift_server.strict_json import StrictJSONResponse

if TYPE_CHECKING:
    from firstdrift_server.tree.view import TreePageView, TreePieces

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/s/{position}/tree")
def show(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Show the part of the tree around the selected row; the first bad node if none is selected."""
    from firstdrift_server.tree.view import find_tree_page, tree_view

    with context.reading() as session:
        # What is wrong with the address is said at once.
        page = find_tree_page(session, context, comparison, position, request.query_params)

    def view() -> "TreePageView":
        return context.read(tree_view, context, page)

    return answer_early(request, "tree.html", view, scripts=("tree/page.js",))


@router.get("/c/{comparison}/s/{position}/tree/rows")
def rows(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Give pieces of the tree as HTML, and the address that stands for the view after a step."""
    from firstdrift_server.tree.view import chunks_of

    found = context.read(chunks_of, context, comparison, position, request.query_params)
    return rows_answer(request, found)


def rows_answer(request: Request, found: "TreePieces", **cells: str) -> Response:
    """Give pieces of a tree, of one dump or of two, with their rows as HTML."""
    around = {
        "address": found.address,
        "query": found.query,
        "columns": found.columns,
        "limit": found.limit,
        "roundoff": found.roundoff,
    } | cells

    def html(rows: Sequence[Struct]) -> str:
        return render("tree_rows.html", language_of(request), rows=rows, **around)

    return StrictJSONResponse(asdict(found) | {"pieces": list(map(html, found.pieces))})
