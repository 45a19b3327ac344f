"""Where numbers lie in a small picture that the server draws: a logarithmic axis with a limit in it."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from firstdrift.groups import known

MOST_TICKS = 5


class Tick(Struct, frozen=True):
    """A power of ten at the side of a picture."""

    power: int
    y: float


class Scale(Struct, frozen=True):
    """A logarithmic axis that runs up: errors from `low` to `high`, as powers of ten, on so many units."""

    low: float
    high: float
    top: float
    bottom: float

    @classmethod
    def of(
        cls, errors: Iterable[float | None], limits: Iterable[float | None], top: float, bottom: float
    ) -> "Scale":
        """Make an axis with room for errors, and for their limits, which are seen whatever they are."""
        seen = [math.log10(one) for one in known([*errors, *limits]) if 0 < one < math.inf]
        low, high = min(seen, default=-1.0), max(seen, default=0.0)
        return cls(low - 0.4, high + 0.4, top, bottom)

    def y(self, error: float) -> float:
        """Place an error; zero lies at the lower edge, NaN and infinities at the upper."""
        if not math.isfinite(error):
            return self.top
        if error <= 0:
            return self.bottom
        share = (math.log10(error) - self.low) / (self.high - self.low)
        return round(self.bottom - (self.bottom - self.top) * min(1.0, max(0.0, share)), 1)

    @property
    def ticks(self) -> list[Tick]:
        """List the powers of ten that are written beside it."""
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        every = max(1, -(-len(powers) // MOST_TICKS))
        return [Tick(power, self.y(10.0**power)) for power in powers[::every]]


class LimitLine(Struct, frozen=True):
    """The limits that decided of the points of a picture: one for all, or a step where they differ.

    Attributes:
        y: where the largest is.
    """

    least: float
    most: float
    path: str
    y: float


def limit_line(
    limits: Sequence[float | None], places: Sequence[float], scale: Scale, ends: tuple[float, float]
) -> LimitLine | None:
    """Draw the limit of each point, from halfway to the one before to halfway to the next."""
    there = known(limits)
    if not there:
        return None
    middles = [(one + other) / 2 for one, other in pairwise(places)]
    corners: list[tuple[float, float] | None] = []
    for limit, left, right in zip(limits, (ends[0], *middles), (*middles, ends[1]), strict=True):
        corners += [None] if limit is None else [(left, scale.y(limit)), (right, scale.y(limit))]
    return LimitLine(min(there), max(there), path_of(corners), scale.y(max(there)))


def path_of(places: Iterable[tuple[float, float] | None]) -> str:
    """Draw a line through places as the path of an SVG; it has a gap where one is None."""
    drawn, begins = [], True
    for place in places:
        if place is not None:
            drawn.append(f"{'M' if begins else 'L'}{place[0]:g} {place[1]:g}")
        begins = place is None
    return "".join(drawn)
