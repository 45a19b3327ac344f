"""/api/v1/comparisons/{id}/slices: the slices of a comparison, and its charts.

What a chart of nodes shows needs NumPy, which the server is ready without.
"""

from typing import Literal

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import get_slice_pair, slice_pairs_of
from firstdrift_server.answers import api_router
from firstdrift_server.comparison.charts import strip_chart
from firstdrift_server.comparison.data import slice_data
from firstdrift_server.comparison.progress import findings_so_far
from firstdrift_server.comparison.strip import strip_of
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import ManyNumbersResponse, StrictJSONResponse

router = api_router("/comparisons/{comparison}", "slices")


@router.get("/slices")
def list_slices(comparison: int, context: Shared) -> StrictJSONResponse:
    """List the slices that have been compared so far, in the order of execution."""
    with context.reading() as session:
        get_comparison(session, comparison)
        return StrictJSONResponse({"slices": list(map(slice_data, slice_pairs_of(session, comparison)))})


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
    from firstdrift_server.comparison.heat_map import heat_map

    with context.reading() as session:
        slices = slice_pairs_of(session, comparison)
        return ManyNumbersResponse(heat_map(session, get_comparison(session, comparison), slices, by))


@router.get("/slices/{position}/scatter")
def scatter_nodes(comparison: int, position: int, context: Shared) -> ManyNumbersResponse:
    """Give input and output error of the nodes of a slice; of many, the worst and a sample of the others."""
    from firstdrift_server.comparison.scatter import scatter

    with context.reading() as session:
        return ManyNumbersResponse(scatter(session, get_slice_pair(session, comparison, position)))
