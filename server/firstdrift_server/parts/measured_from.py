"""What an error that is shown comes from, in a word: pages write a lower bound, or no number, by it."""

from collections.abc import Collection, Mapping
from typing import Final

from firstdrift.metrics.measurement import DATA, DIGEST, STATISTICS, MeasurementKind

_TELLING: Final = (DATA, STATISTICS, DIGEST)


def measured_from(kinds: Collection[MeasurementKind] | None) -> str:
    """Return "data" where any were, "statistics" of lower bounds, "digest" of no number; else nothing."""
    return next((kind.value for kind in _TELLING if kind in (kinds or ())), "")


def measured_by(metrics: Mapping[str, object]) -> str:
    """Tell the same of a tensor of which metrics are known."""
    if set(metrics) == {"equal"}:
        return DIGEST.value
    has_bound = "error_bound" in metrics and "relative_l2" not in metrics
    return STATISTICS.value if has_bound else DATA.value
