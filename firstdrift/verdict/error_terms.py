"""What errors of operators are made of: the tensors that they take and give, and how norms add up."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct


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
        relative: largest relative error of an element; infinite where that is not known.
        drift: the sum of its errors, with their signs; infinite where that is not known.
        role: which argument it is by what the operator calls it ("weight"), where it has such names.
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
    relative: float = math.inf
    drift: float = math.inf
    role: str = ""

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


class Law(NamedTuple):
    """How an operator turns errors into others.

    Attributes:
        forward: the norm that the error of an output may have, by what was given and that output.
        backward: that of a gradient that its backward operator gives, by the gradient that this was given,
            what the forward operator was given and gave, and the gradient that is made.
    """

    forward: Callable[[Values, Value], float]
    backward: Callable[[Value, Values, Values, Value], float]


def spread(one: Value, made: Value) -> float:
    """Return by what the norm of a value grows where it is spread over a larger output."""
    return math.sqrt(max(1.0, made.size / one.size)) if one.size else 1.0


def gathered(one: Value, made: Value) -> float:
    """Return by what an error may grow where several elements are added up into one (Cauchy-Schwarz)."""
    return math.sqrt(max(1.0, one.size / made.size)) if made.size else 1.0


def relative_to(made: Value, one: Value) -> float:
    """Return by what a product of elements, or a quotient, is off by one factor: in each as it is itself."""
    return one.relative * made.norm if made.norm else math.inf


def of_factor(one: Value, most: float, gradient: Value, made: Value) -> float:
    """Return by what a gradient times other factors is off by one of them, `most` of which is known.

    Where products are added up they are no longer known one by one.
    """
    if gradient.size != made.size:
        return most * gathered(gradient, made)
    return min(most, relative_to(made, one))


def handed_on(one: Value, made: Value) -> float:
    """Return how much of the error of an input an output may have: of a part of it, what its elements may."""
    whole = one.difference * spread(one, made)
    return min(whole, one.largest_error * math.sqrt(made.size)) if one.is_exact else whole


def handed_back(gradient: Value, _: Values, __: Values, made: Value) -> float:
    """Return by what a gradient is off that is handed on as it is, and added up where an input was spread."""
    return gradient.difference * gathered(gradient, made)


def flipped(share: float, norm: float, made: Value) -> float:
    """Return what is explained where a share of gradients of some norm flips, and one by chance.

    None is off by more than the largest error that was seen; it may leave one place and come to another.
    """
    if not made.is_exact:
        return norm * math.sqrt(share)
    return math.sqrt(2.0 * (share * made.size + 1.0)) * made.largest_error
