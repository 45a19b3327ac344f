"""/api/v1/comparisons/{id}/slices/{slice}/unmatched: what has no partner.

It needs NumPy, which the server is ready without.
"""

from fastapi import APIRouter

from firstdrift_server.answers import ERRORS
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import StrictJSONResponse

router = APIRouter(
    prefix="/api/v1/comparisons/{comparison}",
    tags=["slices"],
    responses=ERRORS,
    default_response_class=StrictJSONResponse,
)


@router.get("/slices/{position}/unmatched")
def list_unmatched(comparison: int, position: int, context: Shared) -> StrictJSONResponse:
    """List the nodes and tensors of a slice that have no partner."""
    from firstdrift_server.unmatched.view import unmatched_view

    with context.reading() as session:
        return StrictJSONResponse(unmatched_view(session, context, comparison, position))
