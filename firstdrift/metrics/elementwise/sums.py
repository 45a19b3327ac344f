"""What one pass over two tensors adds up; every metric of a pair derives from it.

Both engines give it, `firstdrift.metrics.elementwise.measure` turns it into metrics.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firstdrift.metrics.dtypes import Floats

DECADES = np.array([10.0**exponent for exponent in range(-12, 1)])
"""Lower bounds of the upper 13 of the 15 histogram bins, relative to the largest golden magnitude."""

_UPPER_HALF = ~np.int64(0xFFFF_FFFF)

ONE_THOUSANDTH = 0.001
FIVE_THOUSANDTHS = 0.005


class SideSums(Struct):
    """Sums over the finite elements of one tensor, and counts of the others."""

    maximum: float = -math.inf
    minimum: float = math.inf
    total: float = 0.0
    squares: float = 0.0
    zeros: int = 0
    nan: int = 0
    positive_infinity: int = 0
    negative_infinity: int = 0

    @property
    def nonfinite(self) -> int:
        """Number of elements that are NaN or infinite."""
        return self.nan + self.positive_infinity + self.negative_infinity

    @property
    def magnitude(self) -> float:
        """Largest finite absolute value; 0 if there is none."""
        return max(self.maximum, -self.minimum, 0.0)

    def add(self, other: "SideSums") -> None:
        """Take in the sums of a further part of the tensor."""
        self.maximum = max(self.maximum, other.maximum)
        self.minimum = min(self.minimum, other.minimum)
        for name in ("total", "squares", "zeros", "nan", "positive_infinity", "negative_infinity"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class PairSums(Struct):
    """Sums over the pairs of finite elements; d = target - golden.

    Attributes:
        equal: pairs with d = 0; non-finite pairs are in `equal_nonfinite`.
        equal_nonfinite: NaN against NaN, +inf against +inf, -inf against -inf.
        mismatched_nonfinite: other pairs of which a side is not finite.
        product: sum of golden * target (complex: the real part of it with golden conjugated).
        largest: largest |d|, -1 if there is no finite pair.
        largest_at: flat index of the first such pair.
        relative_count: pairs with golden != 0; the relative errors are over these.
        within_1e3: pairs with |d / golden| < 0.001, or d = 0; likewise `within_5e3`.
        histogram: `equal` and, of the others, the counts below and between `DECADES`.
    """

    histogram: npt.NDArray[np.int64]
    equal: int = 0
    equal_nonfinite: int = 0
    mismatched_nonfinite: int = 0
    difference: float = 0.0
    absolute: float = 0.0
    squared_difference: float = 0.0
    squared_golden: float = 0.0
    squared_target: float = 0.0
    product: float = 0.0
    largest: float = -1.0
    largest_at: int = 0
    largest_golden: float = 0.0
    largest_target: float = 0.0
    relative_count: int = 0
    relative_total: float = 0.0
    relative_maximum: float = 0.0
    within_1e3: int = 0
    within_5e3: int = 0

    def add(self, other: "PairSums", offset: int) -> None:
        """Take in the sums of a further part, whose first element has the flat index `offset`."""
        if other.largest > self.largest:
            self.largest, self.largest_at = other.largest, other.largest_at + offset
            self.largest_golden, self.largest_target = other.largest_golden, other.largest_target
        self.relative_maximum = max(self.relative_maximum, other.relative_maximum)
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_ADDED: Final = (
    *("histogram", "equal", "equal_nonfinite", "mismatched_nonfinite", "difference", "absolute"),
    *("squared_difference", "squared_golden", "squared_target", "product"),
    *("relative_count", "relative_total", "within_1e3", "within_5e3"),
)


class Sums(Struct):
    """Everything one pass adds up.

    Attributes:
        golden: over the golden tensor.
        target: over the target tensor.
        pair: over the pairs.
        row_squared_difference: sum of d squared for each row along the last dimension.
        row_squared_golden: sum of squared golden elements of finite pairs for each row.
        differs_at: flat index of the first element whose bits differ (of integers, whose values do), -1 if
            there is none; None where dtypes differ.
        roundoff: unit roundoff of the coarser 16-bit format that float32 values came from, 0 if from none.
    """

    golden: SideSums
    target: SideSums
    pair: PairSums
    row_squared_difference: Floats
    row_squared_golden: Floats
    differs_at: int | None = None
    roundoff: float = 0.0


def bounds_of_bins(magnitude: float) -> Floats:
    """Return the lower bounds of bins, by the largest golden magnitude, with the upper half of their bits.

    They are less than a millionth lower than powers of ten: so the upper halves tell of all differences,
    exactly, in which bin they are.
    """
    bounds: Floats = ((DECADES * magnitude).view(np.int64) & _UPPER_HALF).view(np.float64)
    return bounds


def rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape of a non-empty tensor viewed as (rows, last dimension); (1, 1) for a scalar."""
    columns = shape[-1] if shape else 1
    return math.prod(shape) // columns, columns
