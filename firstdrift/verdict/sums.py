"""Modules whose output is a sum of values that were recorded inside them.

    layer(x) = h + mlp(norm(h)),  h = x + attention(norm(x))       h is what the norm was given

The worst error inside a module says little of such a sum: a branch may be far off and weigh next to
nothing. What was added tells more, and where the means add up, values say what it was.
"""

from collections.abc import Sequence
from typing import NamedTuple

from firstdrift.metrics.measurement import SideSummary
from firstdrift.verdict.conditioning import is_sum


class Addend(NamedTuple):
    """A value that may have been added: where it is, its error, the golden side of it, index of its pair."""

    where: str
    error: float
    side: SideSummary
    pair: int


def addends(
    total: SideSummary, streams: Sequence[Addend], branches: Sequence[Addend], roundoff: float
) -> tuple[Addend, ...]:
    """Return the stream and the branch that add up to a total; none if no two do.

    Args:
        total: the golden side of what may be a sum.
        streams: what a branch may have been added to, the likeliest first.
        branches: what may have been added to a stream, likewise.
        roundoff: of the golden dtype.
    """
    for branch in branches:
        for stream in streams:
            if stream.side is not branch.side and is_sum(total, (stream.side, branch.side), roundoff):
                return stream, branch
    return ()


def explained_by_sum(total: SideSummary, added: Sequence[Addend]) -> float:
    """Return the error of a sum that the errors of what was added explain: |d addends| / |sum|."""
    if not total.norm:
        return float("inf")
    return sum(one.error * (one.side.norm or 0.0) for one in added) / total.norm
