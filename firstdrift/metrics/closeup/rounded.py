"""Does the difference look like rounding to a narrower format?

| format        | one rounding  | is also                                        |
| ------------- | ------------- | ---------------------------------------------- |
| float32       | 2^-24         |                                                |
| TF32          | 2^-11         | float16, but for its range                     |
| float16       | 2^-11         |                                                |
| bfloat16      | 2^-9          |                                                |
| float8_e4m3fn | 2^-4          |                                                |
| float8_e5m2   | 2^-3          |                                                |
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Floats
from firstdrift.model.tensor import ROUNDING
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_COMPUTED: Final[dict[str, tuple[str, ...]]] = {
    "float32": ("float32",),
    "float16": ("TF32", "float16"),
    "bfloat16": ("bfloat16",),
    "float8_e4m3fn": (),
    "float8_e5m2": (),
}
"""What is stored with a unit roundoff, and what may have been computed with it; the finest first.

Of formats of eight bits a rounding is as large as a fault: only where they are stored is it taken for one.
"""

_NEARLY_ALL: Final = 0.999
_LOOKED_AT_FIRST: Final = 4096
_FEWEST_CHANGED: Final = 0.05
_FEWEST_NUMBERS: Final = 16
_FEW: Final = 0.5
"""So many numbers of one side, none of them 0, tell; of the other side, up to this share is of the format."""

_LEAST, _MOST = 1 / 8, 4.0
"""Relative L2 error of a rounding, in roundings of a coarser format than that of the tensors."""

_GATHERED: Final = 32.0
"""Likewise in the format of the tensors: operators gather its roundings; and it may be any less."""

_FARTHEST: Final = 256.0
"""No single element is farther off than so many roundings of itself, or of the root mean square."""


def exactly_rounded(sample: Sample) -> Hint | None:
    """Say to which format one side is the other rounded, element by element; the first that fits."""
    x, y = sample.finite_pairs
    begin = slice(None, _LOOKED_AT_FIRST)
    for to in _FORMATS:
        for side, other, before, after in (("target", "golden", x, y), ("golden", "target", y, x)):
            if _is_cut(to.cut, before[begin], after[begin]) and _is_cut(to.cut, before, after):
                said = "hint.cut" if to.is_cut else "hint.rounded"
                sides = {"side": side_named(side), "other": side_named(other)}
                return Hint(HintKind.ROUNDED, Message.of(said, **sides, format=to.name))
    return None


def _is_cut(cut: Callable[[Floats], Floats], before: Floats, after: Floats) -> bool:
    if not before.size:
        return False
    with np.errstate(all="ignore"):
        rounded = cut(before)
    changed, same = np.mean(rounded != before), np.mean(rounded == after)
    return bool(changed >= _FEWEST_CHANGED and same >= _NEARLY_ALL)


def like_rounding(sample: Sample, error: float, roundoff: float) -> Hint | None:
    """Say of which format's rounding, none finer than the tensors' own, an error has the size."""
    finite = sample.finite
    x, distance = sample.golden[finite], sample.distance[finite]
    if not x.size:
        return None
    scale = np.maximum(np.abs(x), float(np.sqrt(np.mean(np.square(x)))))
    with np.errstate(all="ignore"):
        farthest = float(np.max(np.where(distance > 0, distance / scale, 0.0)))
    for own, computed in _COMPUTED.items():
        unit = ROUNDING[own]
        formats, least, most = computed, _LEAST * unit, _MOST * unit
        if unit == roundoff:
            formats, least, most = (own,), 0.0, _GATHERED * unit
        if formats and unit >= roundoff and least <= error <= most and farthest <= _FARTHEST * unit:
            return Hint(HintKind.ROUNDED, Message.of("hint.like_rounding", formats=formats), error)
    return None


def numbers_of(sample: Sample) -> Hint | None:
    """Say that the values of one side alone are numbers of a coarser format, as if computed in that."""
    x, y = (values[values != 0.0] for values in sample.finite_pairs)
    if min(x.size, y.size) < _FEWEST_NUMBERS:
        return None
    for to in _OF_16_BITS:
        golden, target = _share_of_numbers(to, x), _share_of_numbers(to, y)
        for side, other, own, others in (
            ("target", "golden", target, golden),
            ("golden", "target", golden, target),
        ):
            if own >= _NEARLY_ALL and others <= _FEW:
                sides = {"side": side_named(side), "other": side_named(other)}
                return Hint(HintKind.ROUNDED, Message.of("hint.numbers_of", **sides, format=to.name))
    return None


def _share_of_numbers(to: "_Format", values: Floats) -> float:
    with np.errstate(all="ignore"):
        return float(np.mean(to.cut(values) == values))


def _to(dtype: type) -> Callable[[Floats], Floats]:
    # By way of float32, as models do: from float64, results differ where both roundings meet a tie.
    return lambda values: values.astype(np.float32).astype(dtype).astype(np.float64)


def _to_tf32(values: Floats) -> Floats:
    mantissa, exponent = np.frexp(values)
    rounded: Floats = np.ldexp(np.rint(mantissa * 2.0**11), exponent - 11)
    return rounded


def _cut_to_bfloat16(values: Floats) -> Floats:
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


class _Format(NamedTuple):
    """A narrower format, and how values come to it: rounded, or cut."""

    name: str
    cut: Callable[[Floats], Floats]
    is_cut: bool = False


_FORMATS: Final = (
    _Format("float32", lambda values: values.astype(np.float32).astype(np.float64)),
    _Format("float16", _to(np.float16)),
    _Format("TF32", _to_tf32),
    _Format("bfloat16", _to(ml_dtypes.bfloat16)),
    _Format("bfloat16", _cut_to_bfloat16, is_cut=True),
    _Format("float8_e4m3fn", _to(ml_dtypes.float8_e4m3fn)),
    _Format("float8_e5m2", _to(ml_dtypes.float8_e5m2)),
)

_OF_16_BITS: Final = tuple(
    to for name in ("bfloat16", "float16") for to in _FORMATS if to.name == name and not to.is_cut
)
"""Numbers of bfloat16 are of float16 as well where they are neither large nor small: it is asked first."""
