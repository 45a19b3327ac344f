"""What errors of operators are made of: the tensors that they take and give, and how norms add up."""

import math
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from firstdrift.verdict.fixed_thresholds import RECORDED_NORM


class Value(Struct, frozen=True, gc=False):
    """A tensor, or a number, that an operator takes or gives.

    Attributes:
        key: which argument it is.
        size: number of elements.
        norm: L2 norm of the golden side, or the most that is known of it.
        minimum: smallest element; likewise maximum.
        deviation: standard deviation of its elements.
        error: relative L2 error, at least one unit roundoff.
        largest_error: largest absolute error of an element.
        shape: its dimensions; () where they are not known.
        roundoff: unit roundoff of the coarser of its dtypes; 0 where that is not known.
        is_exact: its errors were taken from its values; from statistics they are lower bounds.
    """

    key: str
    size: int
    norm: float
    minimum: float
    maximum: float
    deviation: float
    error: float
    largest_error: float
    shape: tuple[int, ...] = ()
    roundoff: float = 0.0
    is_exact: bool = False

    @property
    def difference(self) -> float:
        """Norm of its error."""
        return self.error * self.norm

    @property
    def largest(self) -> float:
        """Largest absolute value."""
        return max(abs(self.minimum), abs(self.maximum))

    @property
    def smallest(self) -> float:
        """Smallest absolute value, so far as minimum and maximum tell."""
        return 0.0 if self.minimum <= 0.0 <= self.maximum else min(abs(self.minimum), abs(self.maximum))

    @property
    def rms(self) -> float:
        """Root of the mean of its squares."""
        return self.norm / math.sqrt(self.size) if self.size else 0.0


Values: TypeAlias = Sequence[Value]


def spread(one: Value, made: Value) -> float:
    """Return by what the norm of a value grows where it is spread over a larger output."""
    return math.sqrt(max(1.0, made.size / one.size)) if one.size else 1.0


def gathered(one: Value, made: Value) -> float:
    """Return by what an error may grow where several elements are added up into one (Cauchy-Schwarz)."""
    return math.sqrt(max(1.0, one.size / made.size)) if made.size else 1.0


def added_up(one: Value, made: Value) -> float:
    """Return the same of sums along one dimension; running sums are as many as what they add up."""
    return math.sqrt(max(one.shape, default=1)) if one.size == made.size else gathered(one, made)


def largest_of(given: Values) -> Value:
    """Return the value with most elements."""
    return max(given, key=lambda one: one.size)


def size_of_loss(given: Values, made: Value) -> float:
    """Return by how many terms a loss was divided: all, if it can be a mean, and one of a sum.

    The root of the sum of its terms is the norm of a difference, which is at most that of both inputs.
    """
    size = max((one.size for one in given[:2]), default=1)
    most = sum(one.norm * spread(one, largest_of(given)) for one in given[:2])
    return float(size) if size * made.norm <= RECORDED_NORM.value * most * most else 1.0


def slope_of_power(base: Value, power: float) -> float:
    """Return the largest slope of x to the power of p over the values of x; 0 where it has no bound."""
    if power < 1.0 and not base.smallest:
        return 0.0
    try:
        slopes: list[float] = [end ** (power - 1.0) for end in (base.largest, base.smallest) if end]
    except OverflowError:
        return math.inf
    return abs(power) * max(slopes, default=0.0)


def by_dimensions(one: Value) -> tuple[bool, int]:
    """Sort what is added before what is multiplied: vectors first, the smaller before the larger.

    Of three matrices the first is added, as torch has it.
    """
    is_matrix = len(one.shape) > 1
    return is_matrix, 0 if is_matrix else one.size


def norm_of_product(one: Value, other: Value, made: Value) -> float:
    """Return the norm of a product of matrices as it is where nothing cancels out and nothing adds up.

    Each of its elements is a sum over the dimension that both share, which their sizes tell.
    """
    if not made.size:
        return 0.0
    matrices = math.prod(one.shape[:-2]) if one.shape[:-2] == other.shape[:-2] else 1
    shared = math.sqrt(one.size * other.size / made.size / max(1, matrices))
    return math.sqrt(made.size * shared) * one.rms * other.rms


def overlap(given: Values) -> float:
    """Return what sizes do not tell of a convolution: each element of the kernel sees nearly the whole input.

    So more products are added up than in a product of matrices of those sizes, by the root of how many
    elements the kernel has for each pair of channels.
    """
    elements = math.prod(given[1].shape[2:]) if len(given) > 1 else 1
    return math.sqrt(math.sqrt(elements))


def unevenness(one: Value) -> float:
    """Return how much smaller some rows of a tensor are than its rms, as its largest element tells.

    That of normally distributed elements is sqrt(2 ln size) times their rms.
    """
    if one.size < 2 or not one.rms:  # noqa: PLR2004
        return 1.0
    return max(1.0, one.largest / (one.rms * math.sqrt(2.0 * math.log(one.size))))
