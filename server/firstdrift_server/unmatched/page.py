"""/c/{id}/s/{slice}/unmatched: what has no partner.

Its view needs NumPy, which the server is ready without.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift_server.answers import answer
from firstdrift_server.context import Shared

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/s/{position}/unmatched")
def show(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Show the nodes and tensors without partner."""
    from firstdrift_server.unmatched.view import unmatched_view

    view = context.read(unmatched_view, context, comparison, position)
    return answer(request, "unmatched.html", view)
