"""The recorded statistics of a pair as a picture: from minimum to maximum, with the mean, of both sides.

golden   |------------o---------|
target   |---o---------------------|      norm x 1.35
"""

import math
from typing import Protocol

from msgspec import Struct

from firstdrift.groups import known

WIDTH = 240
_LEFT, _RIGHT = 6, 234


class HasStatistics(Protocol):
    """A tensor of which statistics are known."""

    @property
    def minimum(self) -> float | None:
        """Its smallest element."""

    @property
    def maximum(self) -> float | None:
        """Its largest element."""

    @property
    def mean(self) -> float | None:
        """Its mean."""

    @property
    def norm(self) -> float | None:
        """Its L2 norm."""


class Whisker(Struct, frozen=True):
    """One side, in units of the picture."""

    low: float
    high: float
    mean: float | None


class Whiskers(Struct, frozen=True):
    """Both sides on one axis; `zero` is where zero lies, if it does, and `ratio` target norm over golden."""

    golden: Whisker
    target: Whisker
    zero: float | None
    ratio: float | None


def whiskers_of(golden: HasStatistics, target: HasStatistics) -> Whiskers | None:
    """Draw the statistics of a pair; None if an extreme is not known of either side, or not finite."""
    extremes = known([golden.minimum, golden.maximum, target.minimum, target.maximum])
    if len(extremes) < 4 or not all(map(math.isfinite, extremes)):  # noqa: PLR2004 - two of each side
        return None
    low, high = min(extremes), max(extremes)
    span = high - low or 1.0

    def x(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (value - low) / span, 1)

    def side(one: HasStatistics) -> Whisker:
        mean = one.mean
        center = x(mean) if mean is not None and low <= mean <= high else None
        return Whisker(x(one.minimum or 0.0), x(one.maximum or 0.0), center)

    return Whiskers(
        side(golden), side(target), x(0.0) if low <= 0 <= high else None, ratio_of(golden, target)
    )


def ratio_of(golden: HasStatistics, target: HasStatistics) -> float | None:
    """Return how many times the norm of the golden tensor the target's is; None if that says nothing."""
    if not golden.norm or target.norm is None:
        return None
    ratio = target.norm / golden.norm
    return ratio if math.isfinite(ratio) else None
