"""Is one side the other with some elements set to zero, as dropout, a mask or ReLU makes it?

y = s x where it is kept, 0 elsewhere        dropout: s = 1 / (1 - p) where a share p is lost
"""

import math
from typing import Final, NamedTuple

import numpy as np

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.linear import EXPLAINS
from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Floats
from firstdrift.metrics.masks import masks
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_ROUNDINGS: Final = 16.0
"""What was kept is off a multiple of the other side by so many roundings at most (relative L2)."""

_MOST_OFF: Final = 0.05
"""Likewise, however coarse the format is: of eight bits, anything is within some roundings."""

_FEWEST: Final = 8
_LEAST_SHARE: Final = 0.002
"""So many elements, and such a share of them, are lost, and kept, at least."""

_CHANCE: Final = 5.0
"""Standard deviations by which chance moves the share that is lost."""


class _Lost(NamedTuple):
    """How a side follows from the other: a share of it is zero, all else `factor` times as large.

    `off` and `before` are the relative L2 errors that are left, and that there are.
    """

    share: float
    of: int
    factor: float
    off: float
    before: float
    is_rectified: bool


def dropped(sample: Sample, roundoff: float) -> Hint | None:
    """Say of which side elements were set to zero, if the others agree but for a factor."""
    x, y = sample.finite_pairs
    if masks(x).any() or masks(y).any():  # what is masked on one side alone is no number that was lost
        return None
    for side, other, before, after in (("target", "golden", x, y), ("golden", "target", y, x)):
        lost = _lost(before, after)
        if lost is not None and lost.off <= min(_ROUNDINGS * roundoff, _MOST_OFF, EXPLAINS * lost.before):
            says = _says(lost, side, other, max(roundoff, lost.off))
            return Hint(HintKind.DROPPED, says, lost.before, lost.off)
    return None


def _lost(before: Floats, after: Floats) -> _Lost | None:
    had = before != 0.0
    lost, of = had & (after == 0.0), int(had.sum())
    count = int(lost.sum())
    if min(count, of - count) < max(_FEWEST, _LEAST_SHARE * of):
        return None
    ours, theirs = before[~lost], after[~lost]
    factor = float(ours @ theirs) / float(ours @ ours)
    if factor <= 0.0:
        return None
    off = float(np.linalg.norm(theirs - factor * ours) / np.linalg.norm(theirs))
    distance = float(np.linalg.norm(after - before) / np.linalg.norm(before))
    is_rectified = bool(before[lost].max() < 0.0 <= ours.min())
    return _Lost(count / of, of, factor, off, distance, is_rectified)


def _says(lost: _Lost, side: str, other: str, rounding: float) -> Message:
    sides = {"side": side_named(side), "other": side_named(other)}
    is_scaled = abs(lost.factor - 1.0) > rounding
    if lost.is_rectified and not is_scaled:
        return Message.of("hint.rectified", **sides)
    if not is_scaled:
        return Message.of("hint.zeroed", **sides, share=100.0 * lost.share)
    chance = _CHANCE * math.sqrt(lost.share * (1.0 - lost.share) / lost.of)
    said = "dropout" if abs(1.0 / lost.factor - (1.0 - lost.share)) <= chance else "zeroed_scaled"
    told = {"share": 100.0 * lost.share, "factor": lost.factor, "probability": 1.0 - 1.0 / lost.factor}
    return Message.of(f"hint.{said}", **sides, **told)
