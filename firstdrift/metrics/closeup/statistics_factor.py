"""Is one tensor the other times a number, constant, of other signs, or rounded, as statistics tell?"""

import math

from firstdrift.metrics.closeup.hint import line_says
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.tensor import ROUNDING
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_LEAVES = 0.03
"""The ratios may be so far apart, in what the factor differs from one: far less than from values,
since so few numbers are all there is."""

_ROUNDINGS = 4.0
"""Likewise in roundings of the tensors, where these do not hide the factor."""

_HIDES = 0.1
"""Roundings hide a factor that differs from one by less than ten times as much."""

_SAME, _MOVES = 2.0**-22, 1e-4
"""A norm of equal squares is off by so much of it at most; a mean, times the root of the size, by more."""

_COARSER, _FARTHEST = 4.0, 4.0
"""A format is coarser if its rounding is so many times that of the tensors; ends may be off by so many."""

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


def factor_of(golden: SideSummary, target: SideSummary, roundoff: float = 0.0) -> Message | None:
    """Say by which factor the target follows from golden; None where the ratios are not one.

    Where no norm was recorded, the ends alone tell. The roundoff is that of the tensors.
    """
    ends = (_ratio(golden.maximum, target.maximum), _ratio(golden.minimum, target.minimum))
    factor = (
        ends[0]
        if golden.norm is None or target.norm is None
        else _ratio(golden.known_norm, target.known_norm)
    )
    if factor is not None and _off(ends, factor) < _left_by(factor, roundoff):
        return Message.of("hint.line", line=line_says(factor))
    return _turned(golden, target, ends)


def _left_by(factor: float, roundoff: float) -> float:
    """Return how far apart ratios that show one factor may be; roundings that are near it hide it."""
    leaves, rounding = _LEAVES * abs(factor - 1.0), _ROUNDINGS * roundoff * abs(factor)
    return max(leaves, rounding) if rounding < _HIDES * abs(factor - 1.0) else leaves


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


def signs_of(golden: SideSummary, target: SideSummary, roundoff: float) -> Message | None:
    """Say that some elements have the other sign: the norm and the largest size stay, the mean does not.

    Tools write statistics of coarse formats in these: that two norms are equal says little there.
    """
    if roundoff > ROUNDING["float32"]:
        return None
    sizes, moved = (_largest(golden), _largest(target)), _moved(golden, target)
    if sizes[0] is None or sizes[0] != sizes[1] or moved is None or moved <= _MOVES:
        return None
    norms = _ratio(golden.known_norm, target.known_norm)
    if norms is None or abs(norms - 1.0) > _SAME:
        return None
    return Message("hint.signs_by_statistics")


def rounding_of(golden: SideSummary, target: SideSummary, roundoff: float) -> Message | None:
    """Say of which format, coarser than the tensors' own, one rounding is enough for what statistics show."""
    norms, ends = _ratio(golden.known_norm, target.known_norm), _largest(golden)
    moved = _moved(golden, target)
    if norms is None or ends is None or moved is None:
        return None
    farthest = _farthest(golden, target)
    for format_ in ("float16", "bfloat16"):
        unit = ROUNDING[format_]
        is_enough = max(abs(norms - 1.0), moved) <= unit and farthest <= _FARTHEST * unit * ends
        if unit > _COARSER * roundoff and is_enough:
            return Message.of("hint.like_rounding_by_statistics", format=format_)
    return None


def _farthest(golden: SideSummary, target: SideSummary) -> float:
    """Return how far apart the largest, or the smallest, elements are; infinite where one is not known."""
    ends = ((golden.maximum, target.maximum), (golden.minimum, target.minimum))
    return max(math.inf if one is None or other is None else abs(one - other) for one, other in ends)


def _moved(golden: SideSummary, target: SideSummary) -> float | None:
    """Return how far a mean moved, in norms of a tensor that has this mean everywhere."""
    if golden.mean is None or target.mean is None or not golden.size or not golden.known_norm:
        return None
    return abs(golden.mean - target.mean) * math.sqrt(golden.size) / golden.known_norm


def _largest(side: SideSummary) -> float | None:
    if side.maximum is None or side.minimum is None:
        return None
    return max(abs(side.maximum), abs(side.minimum))
