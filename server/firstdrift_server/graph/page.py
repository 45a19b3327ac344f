"""/c/{id}/s/{slice}/graph: the modules of a slice pair as boxes in boxes.

Its view needs NumPy, which the server is ready without.
"""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift_server.answers import answer_early
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import StrictJSONResponse

if TYPE_CHECKING:
    from firstdrift_server.graph.view import GraphView

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/s/{position}/graph")
def show(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Show both runs beside each other around the selected node; the first bad one if none is selected."""
    from firstdrift_server.graph.view import find_graph_page, graph_view

    with context.reading() as session:
        # What is wrong with the address is said at once.
        page = find_graph_page(session, context, comparison, position, request.query_params)

    def view() -> "GraphView":
        return context.read(graph_view, context, page)

    return answer_early(request, "graph.html", view, scripts=("graph/page.js",))


@router.get("/c/{comparison}/s/{position}/graph/layers")
def layers(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Give what lies in modules, and where a step leads to."""
    from firstdrift_server.graph.view import pieces_of

    return StrictJSONResponse(context.read(pieces_of, context, comparison, position, request.query_params))
