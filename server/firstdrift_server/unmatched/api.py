"""/api/v1/comparisons/{id}/slices/{slice}/unmatched: what has no partner.

It needs NumPy, which the server is ready without.
"""

from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("/comparisons/{comparison}", "slices")


@router.get("/slices/{position}/unmatched")
def list_unmatched(comparison: int, position: int, context: Shared) -> StrictJSONResponse:
    """List the nodes and tensors of a slice that have no partner."""
    from firstdrift_server.unmatched.view import unmatched_view

    return StrictJSONResponse(context.read(unmatched_view, context, comparison, position))
