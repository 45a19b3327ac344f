"""Weights that the target has in each other's place, or that of another node twice, by their statistics.

    |t(a) - g(b)| <= rounding   for the norm, the largest and the smallest element, and the mean

Rounding keeps the order of numbers, so each statistic is that of the other weight but for the rounding of the
coarser dtype. Many weights of a model, which were drawn alike, agree in their norm; none in all four.
"""

import math
from collections.abc import Iterator
from typing import Final

from firstdrift.groups import known
from firstdrift.metrics.measurement import SideSummary
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.fixed_thresholds import EXCHANGED_ROUNDING
from firstdrift.wording.message import Message

_FINEST: Final = 2.0**-15
"""Statistics are written with some digits, and added up in float32."""


def exchanged(evidence: Evidence, pair: int) -> Iterator[Message]:
    """Say whose weight the target has in place of one that differs, and whether it has this one there."""
    here, shape = evidence.measurements[pair], evidence.plan.pairs[pair].golden.shape or ()
    if len(shape) <= 1:  # vectors are made of ones or zeros, and trained by the same steps
        return
    for other in evidence.parameters_like(pair):
        there = evidence.measurements[other]
        roundoff = max(evidence.pair_errors[at].roundoff for at in (pair, other))
        within = max(_FINEST, EXCHANGED_ROUNDING.value * roundoff)
        if _are_alike(here.target, here.golden, within):  # whatever differs, these numbers do not tell
            return
        if other == pair or not _are_alike(here.target, there.golden, within):
            continue
        name = evidence.place_of(other)
        if _are_alike(there.target, here.golden, within):
            yield Message.of("cause.exchanged", node=name)
            return
        if within == _FINEST:  # of coarse formats, one of many weights may look so by chance
            yield Message.of("cause.of_other", node=name)
            return


def _are_alike(one: SideSummary | None, other: SideSummary | None, within: float) -> bool:
    if one is None or other is None or one.size != other.size:
        return False
    told = _told(one), _told(other)
    if min(map(len, told)) < len(_EXTENTS):
        return False
    if any(abs(first - second) > within * abs(second) for first, second in zip(*told, strict=True)):
        return False
    if one.mean is None or other.mean is None or not other.size:
        return False
    return abs(one.mean - other.mean) <= within * abs(other.norm or 0.0) / math.sqrt(other.size)


_EXTENTS: Final = ("norm", "maximum", "minimum")


def _told(side: SideSummary) -> list[float]:
    return [number for number in known(getattr(side, name) for name in _EXTENTS) if number]
