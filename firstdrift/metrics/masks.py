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
import sys

from msgspec.structs import replace

from firstdrift.metrics.measurement import SideSummary

_LOWEST_FLOAT32 = -(2.0**128 - 2.0**104)
_LOWEST_FLOAT64 = -sys.float_info.max

MASK_RANGES = (
    (-65536.0, -65176.0),
    (_LOWEST_FLOAT32, 0.9 * _LOWEST_FLOAT32),
    (_LOWEST_FLOAT64, 0.9 * _LOWEST_FLOAT64),
)
"""From lowest to highest, both included."""


def is_mask_value(value: float | None) -> bool:
    """Tell whether a number stands for minus infinity in a mask."""
    if value is None or math.isnan(value):
        return False
    return value == -math.inf or any(low <= value <= high for low, high in MASK_RANGES)


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
