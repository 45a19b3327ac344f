"""Mask constants: "minus infinity" as models write it, which every dtype writes differently.

Attention masks are filled with -inf or with the lowest number of a dtype: -65504 (float16), about
-3.39e38 (bfloat16), -3.4e38 (float32). Where both sides hold such a value they mean the same, however
far apart the numbers are; taken as numbers they would drown everything else in the tensor.

| range                    | what ends up there                                                  |
| ------------------------ | ------------------------------------------------------------------- |
| -inf                     |                                                                     |
| [-65536, -65176]         | float16's lowest, rounded to bfloat16 or with a score added to it   |
| [-3.40e38, -3.06e38]     | the lowest of bfloat16 and float32                                  |
| [-1.80e308, -1.61e308]   | the lowest of float64                                               |
"""

import math

import numpy as np
from msgspec.structs import replace

from firstdrift.metrics.dtypes import Array, NumberKind, number_kind
from firstdrift.metrics.measurement import SideSummary

_RANGES = (
    (-65536.0, -65176.0),
    *((float(np.finfo(dtype).min), 0.9 * float(np.finfo(dtype).min)) for dtype in (np.float32, np.float64)),
)


def is_mask_value(value: float | None) -> bool:
    """Tell whether a number stands for minus infinity in a mask."""
    if value is None or math.isnan(value):
        return False
    return value == -math.inf or any(low <= value <= high for low, high in _RANGES)


def without_masks(golden: Array, target: Array) -> tuple[Array, Array] | None:
    """Return copies in which elements masked on both sides are -inf; None if there are none.

    Only floating-point tensors have masks: -65504 among integers is a number like any other.
    """
    if not number_kind(golden.dtype) is number_kind(target.dtype) is NumberKind.FLOATING:
        return None
    masked = _masked(golden) & _masked(target)
    if not masked.any():
        return None
    return _filled(golden, masked), _filled(target, masked)


def _masked(array: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        values = array.astype(np.float64)
    found: Array = values == -np.inf
    for low, high in _RANGES:
        found |= (values >= low) & (values <= high)
    return found


def _filled(array: Array, masked: Array) -> Array:
    copy = array.copy()
    copy[masked] = -np.inf
    return copy


def agreeing_masks(golden: SideSummary, target: SideSummary) -> tuple[SideSummary, SideSummary]:
    """Forget the statistics that mask constants on both sides decide: the minimum, mean and norm."""
    if not (is_mask_value(golden.minimum) and is_mask_value(target.minimum)):
        return golden, target
    masked_throughout = is_mask_value(golden.maximum) and is_mask_value(target.maximum)
    maximum = golden.maximum if masked_throughout else target.maximum
    return (
        replace(golden, mean=None, norm=None),
        replace(target, minimum=golden.minimum, maximum=maximum, mean=None, norm=None),
    )
