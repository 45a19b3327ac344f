"""/api/v1/comparisons/{id}/slices/{slice}/rows: the rows of a tree.

The tree needs NumPy, which the server is ready without.
"""

from typing import Annotated

from fastapi import Query, Request

from firstdrift.catalogue.comparisons.slice_pairs import get_slice_pair
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("/comparisons/{comparison}", "slices")


@router.get("/slices/{position}/rows")
def list_rows(
    request: Request,
    comparison: int,
    position: int,
    context: Shared,
    start: Annotated[int, Query(ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> StrictJSONResponse:
    """List the visible rows of a tree; takes the same parameters as the address of its page."""
    from firstdrift_server.tree.rows import window
    from firstdrift_server.tree.view import view_from

    with context.reading() as session:
        pair = get_slice_pair(session, comparison, position)
        view = view_from(session, context, pair, request.query_params)
        return StrictJSONResponse(
            {
                "total": len(view.visible),
                "start": start,
                "selected": view.selected,
                "query": view.state.query(),
                "rows": window(session, pair, view, start, count),
            }
        )
