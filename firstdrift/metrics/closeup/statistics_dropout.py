"""Is one tensor the other after a dropout, as norm, largest and smallest element tell?

    y = s x where it is kept, 0 elsewhere        s = 1 / (1 - p) where a share p is lost

Where the largest and the smallest element were kept, both are s times as large; the norm is sqrt(s) times as
large, within chance.
"""

import math
from collections.abc import Iterator
from typing import Final

from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.tensor import ROUNDING
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_CHANCE: Final = 5.0
"""Standard deviations by which chance moves the norm."""

_KURTOSIS: Final = 9.0
"""Fourth moment over the square of the second: activations have less, but for a few channels."""

_WRITTEN: Final = 2.0**-15
"""Statistics are written with some digits."""


def dropout_of(golden: SideSummary, target: SideSummary, roundoff: float) -> Message | None:
    """Say of statistics that one side is the other after a dropout; None where they do not tell.

    In coarse formats, two ends grow by one factor by chance.
    """
    if roundoff > ROUNDING["float32"]:
        return None
    for side, other, before, after in (
        ("target", "golden", golden, target),
        ("golden", "target", target, golden),
    ):
        factor = _factor(before, after)
        if factor is not None and factor > 1.0 and _has_norm_of_dropout(before, after, factor):
            sides = {"side": side_named(side), "other": side_named(other)}
            told = {"factor": factor, "root": math.sqrt(factor), "probability": 1.0 - 1.0 / factor}
            return Message.of("hint.dropout_by_statistics", **sides, **told)
    return None


def _factor(before: SideSummary, after: SideSummary) -> float | None:
    """Return by which factor both ends were multiplied; None where they were not by one."""
    ends = list(_ratios(before, after))
    if len(ends) < 2:  # noqa: PLR2004 (both ends)
        return None
    return ends[0] if abs(ends[0] - ends[1]) <= _WRITTEN * abs(ends[0]) else None


def _ratios(before: SideSummary, after: SideSummary) -> Iterator[float]:
    for one, other in ((before.maximum, after.maximum), (before.minimum, after.minimum)):
        if one and other and math.isfinite(one) and math.isfinite(other):
            yield other / one


def _has_norm_of_dropout(before: SideSummary, after: SideSummary, factor: float) -> bool:
    """Tell whether a norm is what is left of the other by a dropout, and not by a factor alone.

    The square of the norm is s^2 times the sum of b x^2, where b is 1 with probability 1 / s, else 0.
    Its mean is s, and its variance s^2 (s - 1) times the sum of x^4, in squares of the norm before.
    """
    if not before.known_norm or not after.known_norm or not before.size:
        return False
    gain = (after.known_norm / before.known_norm) ** 2
    largest = max(abs(before.maximum or 0.0), abs(before.minimum or 0.0)) / before.known_norm
    fourth = min(largest, math.sqrt(_KURTOSIS / before.size))
    chance = _CHANCE * factor * math.sqrt(factor - 1.0) * fourth
    return abs(gain - factor) <= chance < factor**2 - factor
