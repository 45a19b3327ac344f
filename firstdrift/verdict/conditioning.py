"""Sums of outputs that were compared: whether one tensor is the sum of others, and how far off it may be."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from firstdrift.groups import known
from firstdrift.metrics.measurement import SideSummary
from firstdrift.verdict.fixed_thresholds import MEAN_ROUNDING, SUM_ROUNDINGS


class Term(NamedTuple):
    """What is added up: where it is, its error, its golden side, the index of its pair."""

    where: str
    error: float
    side: SideSummary
    pair: int


def error_of_sum(differences: Iterable[float], norm: float | None) -> float:
    """Return the relative error of a sum, sum of |d terms| / |sum|; 0 if the sum is not known."""
    if norm is None or not math.isfinite(norm):
        return 0.0
    difference = sum(differences)
    return difference / norm if norm else math.inf if difference else 0.0


def error_of_terms(terms: Iterable[Term], total: SideSummary) -> float:
    """Return the relative error of a sum by the errors of its terms."""
    return error_of_sum((term.error * (term.side.norm or 0.0) for term in terms), total.norm)


def is_sum(total: SideSummary, terms: Sequence[SideSummary], roundoff: float) -> bool:
    """Tell whether a tensor may be the sum of others: means add up, but for rounding.

    Rounding of independent elements moves a mean by roundoff x rms / sqrt(size); rounding of the means
    themselves by a little more.
    """
    size, sides = total.size, (total, *terms)
    means = known(side.mean for side in sides)
    norms = known(side.norm for side in sides)
    if not size or {len(means), len(norms)} != {len(sides)} or {side.size for side in terms} != {size}:
        return False
    rms = max(norms) / math.sqrt(size)
    allowed = (SUM_ROUNDINGS.value * roundoff / math.sqrt(size) + MEAN_ROUNDING.value) * rms
    return abs(means[0] - math.fsum(means[1:])) <= allowed
