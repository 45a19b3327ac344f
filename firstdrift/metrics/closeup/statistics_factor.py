"""Is one tensor the other times a number, or constant, as norm, mean, largest and smallest element tell?"""

import math

from firstdrift.metrics.closeup.hint import line_says
from firstdrift.metrics.measurement import SideSummary
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_LEAVES = 0.03
"""The ratios may be so far apart, in what the factor differs from one: far less than from values,
since so few numbers are all there is."""

_FEW = 1
"""A tensor of one element is constant whatever it holds."""


def constant_of(golden: SideSummary, target: SideSummary) -> Message | None:
    """Say that one side alone is the same number everywhere, as a weight is that was never loaded."""
    values = {"golden": _only_value(golden), "target": _only_value(target)}
    constant = [(name, value) for name, value in values.items() if value is not None]
    if len(constant) != 1:
        return None
    ((name, value),) = constant
    says = {"side": side_named(name)}
    return Message.of("hint.constant", **says, value=value) if value else Message.of("hint.zero", **says)


def factor_of(golden: SideSummary, target: SideSummary) -> Message | None:
    """Say by which factor the target follows from golden; None where the ratios are not one.

    Where no norm was recorded, the ends alone tell.
    """
    ends = (_ratio(golden.maximum, target.maximum), _ratio(golden.minimum, target.minimum))
    factor = (
        ends[0]
        if golden.norm is None or target.norm is None
        else _ratio(golden.known_norm, target.known_norm)
    )
    if factor is not None and _off(ends, factor) < _LEAVES * abs(factor - 1.0):
        return Message.of("hint.line", line=line_says(factor))
    return _turned(golden, target, ends)


def _turned(golden: SideSummary, target: SideSummary, kept: tuple[float | None, ...]) -> Message | None:
    """Say by which factor below zero the target follows from golden; only norms and ends together tell."""
    norms = _ratio(golden.known_norm, target.known_norm)
    if norms is None:
        return None
    limit = _LEAVES * (norms + 1.0)
    ends = (_ratio(golden.minimum, target.maximum), _ratio(golden.maximum, target.minimum))
    if _off(ends, -norms) < limit and _shows_a_sign(golden, target, -norms, _off(kept, norms)):
        return Message.of("hint.line", line=line_says(-norms))
    return None


def _off(ratios: tuple[float | None, ...], factor: float) -> float:
    return max(math.inf if ratio is None else abs(ratio - factor) for ratio in ratios)


def _shows_a_sign(golden: SideSummary, target: SideSummary, factor: float, off_if_kept: float) -> bool:
    """Tell whether another sign shows: in the mean if it is there, else in ends that are not alike.

    Of numbers that lie around zero evenly, the other sign has the same statistics.
    """
    mean, norm, limit = golden.mean, golden.known_norm, _LEAVES * (1.0 - factor)
    if not mean or not norm or not golden.size or abs(mean) * math.sqrt(golden.size) <= _LEAVES * norm:
        return off_if_kept >= limit
    return _off((_ratio(mean, target.mean),), factor) < limit


def _only_value(side: SideSummary) -> float | None:
    is_constant = side.maximum is not None and side.maximum == side.minimum and (side.size or 0) > _FEW
    return side.maximum if is_constant else None


def _ratio(golden: float | None, target: float | None) -> float | None:
    if not golden or target is None or not (math.isfinite(golden) and math.isfinite(target)):
        return None
    return target / golden
