"""Is one tensor the other times a number, as norm, largest and smallest element tell?"""

import math

from firstdrift.metrics.closeup.hint import line_says
from firstdrift.metrics.measurement import SideSummary
from firstdrift.wording.message import Message

_LEAVES = 0.03
"""The three ratios may be so far apart, in what the factor differs from one: far less than from values,
since three numbers are all there is."""


def factor_of(golden: SideSummary, target: SideSummary) -> Message | None:
    """Say by which factor the target follows from golden; None where the three ratios are not one."""
    norms = _ratio(golden.known_norm, target.known_norm)
    if norms is None:
        return None
    same = (_ratio(golden.maximum, target.maximum), _ratio(golden.minimum, target.minimum))
    turned = (_ratio(golden.minimum, target.maximum), _ratio(golden.maximum, target.minimum))
    limit = _LEAVES * (norms + 1.0)
    if _off(same, norms) < _LEAVES * abs(norms - 1.0):
        return Message.of("hint.line", line=line_says(norms))
    if _off(turned, -norms) < limit and _shows_a_sign(golden, target, _off(same, norms), limit):
        return Message.of("hint.line", line=line_says(-norms))
    return None


def _off(ratios: tuple[float | None, ...], factor: float) -> float:
    return max(math.inf if ratio is None else abs(ratio - factor) for ratio in ratios)


def _shows_a_sign(golden: SideSummary, target: SideSummary, off_if_kept: float, limit: float) -> bool:
    """Tell whether another sign shows: in the mean if it is no chance, else in ends that are not alike.

    Of numbers that lie around zero evenly, the other sign has the same statistics.
    """
    mean, norm = golden.mean, golden.known_norm
    if not mean or not norm or not golden.size or abs(mean) * math.sqrt(golden.size) <= _LEAVES * norm:
        return off_if_kept >= limit
    kept = _ratio(mean, target.mean)
    return kept is not None and kept < 0.0


def _ratio(golden: float | None, target: float | None) -> float | None:
    if not golden or target is None or not (math.isfinite(golden) and math.isfinite(target)):
        return None
    return target / golden
