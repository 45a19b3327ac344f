"""An input that a node adds in one run alone, as a residual connection, by the means of whole tensors.

    mean(target) = mean(golden) - mean(input)        the input is not added;  + where it is added once more

The mean of a sum is the sum of the means. One number tells by chance only where rounding leaves it open.
"""

import math
from collections.abc import Iterator

from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import MEANS_TELL, STATISTICS_ROUNDING
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.wording.message import Message


def left_out_term(evidence: Evidence, error: RowErrors) -> Iterator[Message]:
    """Say which input of a row its output is off by, as the means tell."""
    at = error.output_pair
    if at is None:
        return
    made, roundoff = evidence.measurements[at], evidence.pair_errors[at].roundoff
    for given in evidence.inputs_alike(error, at):
        times = _times(made, evidence.measurements[given], roundoff)
        if times:
            tensor, added = (evidence.plan.pairs[one].target.label for one in (at, given))
            said = "left_out" if times < 0 else "added_again"
            yield Message.of(f"cause.{said}", tensor=tensor, added=added)
            return


def _times(made: Measurement, given: Measurement, roundoff: float) -> int:
    """Return how often the target adds an input beyond golden: -1 or 1; 0 where the means do not tell."""
    means = _mean(made.golden), _mean(made.target), _mean(given.golden)
    size = made.golden.size or 0 if made.golden is not None else 0
    if None in means or size <= 1:  # a single number is its own mean, which tells of nothing else
        return 0
    before, after, added = (mean or 0.0 for mean in means)
    rounding = roundoff * made.golden_norm / math.sqrt(size)
    left = STATISTICS_ROUNDING.value * roundoff * max(abs(before), abs(added)) + rounding
    if not abs(added) > MEANS_TELL.value * left:
        return 0
    return next((times for times in (-1, 1) if abs(after - before - times * added) <= left), 0)


def _mean(side: SideSummary | None) -> float | None:
    return side.mean if side is not None and side.mean is not None and math.isfinite(side.mean) else None
