"""/c/{id}/s/{slice}/n/{row}: one node, as a page or as the panel beside the tree."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift_server.answers import answer
from firstdrift_server.context import Shared
from firstdrift_server.views.node import node_view

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/s/{position}/n/{row}")
def show(
    request: Request, comparison: int, position: int, row: int, context: Shared, *, panel: bool = False
) -> Response:
    """Show a node; with `panel` only what stands beside the tree."""
    with context.reading() as session:
        view = node_view(session, context, comparison, position, row)
    return answer(request, "node_panel.html" if panel else "node.html", view)
