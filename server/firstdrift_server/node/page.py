"""/c/{id}/s/{slice}/n/{row}: one node, as a page or as the panel beside the tree; a pair of its tensors."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec.structs import replace
from starlette.responses import Response

from firstdrift_server.answers import answer
from firstdrift_server.context import Shared
from firstdrift_server.node.view import node_page, node_view

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/s/{position}/n/{row}")
def show(  # noqa: PLR0913 - what an address may say
    request: Request,
    comparison: int,
    position: int,
    row: int,
    context: Shared,
    *,
    panel: bool = False,
    closeup: bool = False,
    tensor: str | None = None,
    down: str = "",
    across: str = "",
    at: Annotated[list[str], Query()] = [],  # noqa: B006 - read only
    heads: str = "",
    along: str | None = None,
) -> Response:
    """Show a node; with `tensor` that pair from near, its error over slices runs `along` a coordinate.

    With `panel` only what stands beside the tree, with `closeup` only the pair from near.
    """
    if panel or closeup:
        view = context.read(node_view, context, comparison, position, row)
    else:
        view = context.read(node_page, context, comparison, position, row, along)
    if closeup or (tensor and not panel):
        from firstdrift_server.node.closeup import asked_from, closeup_view

        asked = asked_from(tensor, down, across, ",".join(at), heads)
        near = closeup_view(context, (comparison, position, row), asked, {"summary", "values"})
        view = replace(view, closeup=near)
    template = "node_closeup.html" if closeup else "node_panel.html" if panel else "node.html"
    return answer(request, template, view)
