"""/api/v1/comparisons/{id}/slices: slices, the rows of their trees, nodes, and charts.

The tree and what is unmatched need NumPy, which the server is ready without.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import get_slice_pair, slice_pairs_of
from firstdrift_server.answers import ERRORS
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import ManyNumbersResponse, StrictJSONResponse
from firstdrift_server.views.charts import strip_chart
from firstdrift_server.views.comparison import slice_object
from firstdrift_server.views.node import node_view
from firstdrift_server.views.progress import findings_so_far
from firstdrift_server.views.strip import strip_of

router = APIRouter(
    prefix="/api/v1/comparisons/{comparison}",
    tags=["slices"],
    responses=ERRORS,
    default_response_class=StrictJSONResponse,
)


@router.get("/slices")
def list_slices(comparison: int, context: Shared) -> StrictJSONResponse:
    """List the slices that have been compared so far, in the order of execution."""
    with context.reading() as session:
        get_comparison(session, comparison)
        return StrictJSONResponse(
            {"slices": [slice_object(pair) for pair in slice_pairs_of(session, comparison)]}
        )


@router.get("/chart")
def chart(
    comparison: int, context: Shared, metric: str | None = None, scale: Literal["log", "linear"] | None = None
) -> StrictJSONResponse:
    """Give the points and the threshold of a metric over all slices."""
    with context.reading() as session:
        slices = slice_pairs_of(session, comparison)
        findings = findings_so_far(get_comparison(session, comparison), slices)
        strip = strip_of(slices, findings, metric)
        return StrictJSONResponse(
            {"metric": strip.metric, "metrics": strip.metrics, "chart": strip_chart(strip, scale)}
        )


@router.get("/layers")
def map_layers(
    comparison: int,
    context: Shared,
    by: Literal["slice", "token", "step", "rank", "micro_step"] | None = None,
) -> ManyNumbersResponse:
    """Give the output error of every layer in every slice, or in the worst slice of each token, step or rank.

    `null` stands for a layer that a slice does not have, or of which nothing is known.
    """
    from firstdrift_server.views.heat_map import heat_map

    with context.reading() as session:
        slices = slice_pairs_of(session, comparison)
        return ManyNumbersResponse(heat_map(session, get_comparison(session, comparison), slices, by))


@router.get("/slices/{position}/scatter")
def scatter_nodes(comparison: int, position: int, context: Shared) -> ManyNumbersResponse:
    """Give input and output error of the nodes of a slice; of many, the worst and a sample of the others."""
    from firstdrift_server.views.scatter import scatter

    with context.reading() as session:
        return ManyNumbersResponse(scatter(session, get_slice_pair(session, comparison, position)))


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
    from firstdrift_server.views.tree import view_from

    with context.reading() as session:
        pair = get_slice_pair(session, comparison, position)
        view = view_from(session, context, pair, request.query_params)
        return StrictJSONResponse(
            {
                "total": len(view.visible),
                "start": start,
                "selected": view.selected,
                "query": view.state.query(),
                "rows": window(session, pair.id, view, start, count),
            }
        )


@router.get("/slices/{position}/rows/{row}")
def show_node(comparison: int, position: int, row: int, context: Shared) -> StrictJSONResponse:
    """Give everything that is known of a node: verdict, tensors, metrics, match, call stacks."""
    with context.reading() as session:
        return StrictJSONResponse(node_view(session, context, comparison, position, row))


@router.get("/slices/{position}/unmatched")
def list_unmatched(comparison: int, position: int, context: Shared) -> StrictJSONResponse:
    """List the nodes and tensors of a slice that have no partner."""
    from firstdrift_server.views.unmatched import unmatched_view

    with context.reading() as session:
        return StrictJSONResponse(unmatched_view(session, context, comparison, position))
