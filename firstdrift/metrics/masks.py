"""Mask constants: "minus infinity" as models write it, which every dtype writes differently.

Attention masks are filled with -inf or with the lowest number of a dtype: -65504 (float16), about
-3.39e38 (bfloat16), -3.4e38 (float32). Where both sides hold such a value they mean the same, however
far apart the numbers are; taken as numbers they would drown everything else in the tensor.

| range                    | what ends up there                                                  |
| ------------------------ | ------------------------------------------------------------------- |
| below -1e30, -inf        | the lowest of bfloat16, float32 and float64, also times a scale     |
| [-65536, -65176]         | float16's lowest, rounded to bfloat16 or with a score added to it   |
| below -1000              | where the other side masks: float16's lowest times a scale          |
| below -1e8               | where the other side holds -inf: what float16 makes of -1e9         |

What is masked is what softmax makes zero: exp(-1000) is 0 in every dtype.
"""

import math
from typing import Any, Final

from msgspec.structs import replace

from firstdrift.metrics.measurement import SideSummary

_LOWEST_OF_FLOAT16: Final = (-65536.0, -65176.0)
_FAR_BELOW: Final = -1e30
"""Nobody computes with what is lower: its square overflows in float32."""

_NO_ACTIVATION: Final = -1e8
"""Models write such numbers as masks, and compute none so low."""

ZERO_FOR_SOFTMAX: Final = -1e3
"""What is lower is zero for softmax, in every dtype."""


def is_mask_value(value: float | None) -> bool:
    """Tell whether a number stands for minus infinity in a mask."""
    return value is not None and bool(masks(value))


def masks(values: Any) -> Any:  # noqa: ANN401 (a number, or an array of them)
    """Tell which numbers stand for minus infinity in a mask, whatever the other side holds."""
    low, high = _LOWEST_OF_FLOAT16
    return (values <= _FAR_BELOW) | ((values >= low) & (values <= high))


def masked_on_both_sides(golden: Any, target: Any) -> Any:  # noqa: ANN401
    """Tell which places are masked on both sides.

    Both mask; or one is far below all numbers, and the other, a finite number, is zero for softmax; or one
    is -inf, and the other so low that float16 makes that of it.
    """
    far = (golden <= _FAR_BELOW) | (target <= _FAR_BELOW)
    low = (golden <= ZERO_FOR_SOFTMAX) & (target <= ZERO_FOR_SOFTMAX)
    finite = (golden > -math.inf) & (target > -math.inf)
    lower = (golden == -math.inf) | (target == -math.inf)
    overflown = lower & (golden <= _NO_ACTIVATION) & (target <= _NO_ACTIVATION)
    return (masks(golden) & masks(target)) | (far & low & finite) | overflown


def agreeing_masks(golden: SideSummary, target: SideSummary) -> tuple[SideSummary, SideSummary]:
    """Forget the statistics that mask constants on both sides decide: the minimum, mean and norm."""
    if not _are_masked(golden.minimum, target.minimum):
        return golden, target
    masked_throughout = _are_masked(golden.maximum, target.maximum)
    maximum = golden.maximum if masked_throughout else target.maximum
    return (
        replace(golden, mean=None, norm=None),
        replace(target, minimum=golden.minimum, maximum=maximum, mean=None, norm=None),
    )


def _are_masked(golden: float | None, target: float | None) -> bool:
    if golden is None or target is None or max(golden, target) > ZERO_FOR_SOFTMAX:
        return False
    return bool(masked_on_both_sides(golden, target))
