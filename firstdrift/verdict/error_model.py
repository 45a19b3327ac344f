"""First-order error bounds: how large an output error the errors of its inputs explain, operator by operator.

    |d output|  <=  sum of |d output / d input| x |d input|          each input off by one rounding at least

| model       | forward                                        | backward: gradient g                        |
| ----------- | ---------------------------------------------- | ------------------------------------------- |
| additive    | sum of |dx|                                    | |dg|, added up where x was spread           |
| smooth      | the same                                       | |g| x (e(g) + rms of dx)                    |
| kinked      | the same                                       | |g| x (e(g) + root of the share that flips) |
| summed      | |dx| x root of the terms in a sum              | |dg|, spread over the terms                 |
| averaged    | the same, over the number of terms             | the same, over the number of terms          |
| squared     | 2 |d| |dx| + |dx|^2, over the number of terms  | |g| x (e(g) + |dx| / |d|), d the difference |
| multiplied  | |da| x max|b| + |db| x max|a|                  | (|dg| |b| + |g| |db|), b by its largest     |
| divided     | |da| / min|b| + |db| max|a / b| / min|b|      | (|dg| + |g| rms of d slope) over b          |
| power       | |dx| x largest of p |x|^(p - 1)                | |g| x the same                              |
| root        | the same; at most root of the sum of |dx|      | the same                                    |
| product     | |da| |b| + |db| |a|, as random errors add up   | the same of g and the other factor          |
| convolved   | the same, as often as the kernel is laid on    | the same                                    |
| exponential | max|dx|, relative to the output                | 2 |g| max y x (relative errors of g and y)  |
| logarithmic | 2 max|dx| for each element                     | of a mean: 2 max|dx| |g| / root of the rows |
| centred     | |dx| / deviation of small rows x |y| + |dw|    | |g| max|w| / deviation x (e(g) + e(x))      |
| scaled      | |dx| / rms of small rows x |y| + |dw|          | |g| max|w| / rms x (e(g) + e(x) + e(w))     |

Where the slope jumps, as at the zero of relu, the elements within the error of the kink have other
gradients: of elements that spread by their deviation a share of rms of dx / deviation, its root of the norm.

Norms are L2 over whole tensors; the result is relative to the norm of the golden output. Of a random matrix
a product keeps the relative error; what it cancels out shows in |a| |b| / |output|. The rounding of each
operator is in it because no input is taken to be closer than one unit roundoff (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1 and 3.5). The gradients of the weights of a norm are sums over all
rows, n of them, which kernels add up in the dtype of the tensors: n u of the terms (the same, 4.2).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.fixed_thresholds import MOST_CANCELLED, RECORDED_NORM


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


def forward_bound(model: ErrorModel, given: Values, made: Value) -> float:
    """Return the relative error of an output that the errors of the inputs explain; 0 where no model says.

    Args:
        model: what the operator does to errors.
        given: its inputs, weights among them.
        made: the output.
    """
    bound = _FORWARD.get(model)
    return _relative(bound(given, made), made) if bound is not None and given else 0.0


def backward_bound(model: ErrorModel, gradients: Values, kept: Values, result: Values, made: Value) -> float:
    """Return the relative error of a gradient that is explained; 0 where no model says.

    Args:
        model: what the operator does to errors.
        gradients: what the backward operator was given.
        kept: the inputs of the forward operator, weights among them.
        result: the outputs of the forward operator.
        made: the gradient that it gives; its key is that of the input that it is the gradient of.
    """
    bound = _BACKWARD.get(model)
    return _relative(bound(gradients, kept, result, made), made) if bound is not None and gradients else 0.0


def has_bound(model: ErrorModel, *, backward: bool) -> bool:
    """Tell whether a model bounds what the forward, or the backward, operator gives."""
    return model in (_BACKWARD if backward else _FORWARD)


def _relative(difference: float, made: Value) -> float:
    if not made.norm:
        return math.inf if difference else 0.0
    return difference / made.norm


def _spread(one: Value, made: Value) -> float:
    """Return by what the norm of a value grows where it is spread over a larger output."""
    return math.sqrt(max(1.0, made.size / one.size)) if one.size else 1.0


def _gathered(one: Value, made: Value) -> float:
    """Return by what an error may grow where several elements are added up into one (Cauchy-Schwarz)."""
    return math.sqrt(max(1.0, one.size / made.size)) if made.size else 1.0


def _additive(given: Values, made: Value) -> float:
    return sum(_handed_on(one, made) for one in given)


def _handed_on(one: Value, made: Value) -> float:
    """Return how much of the error of an input an output may have: of a part of it, what its elements may."""
    whole = one.difference * _spread(one, made)
    return min(whole, one.largest_error * math.sqrt(made.size)) if one.is_exact else whole


def _summed(given: Values, made: Value) -> float:
    return sum(one.difference * _gathered(one, made) for one in given)


def _averaged(given: Values, made: Value) -> float:
    return sum(one.difference / _gathered(one, made) for one in given)


def _squared(given: Values, made: Value) -> float:
    """Return what is explained of the squares of a difference, each kept or all of them averaged or added up.

    (d + e)^2 - d^2 = 2 d e + e^2, of which the sum is at most 2 |d| |e| + |e|^2.
    """
    if not given:
        return 0.0
    moved = sum(one.difference * _spread(one, max(given, key=_by_size)) for one in given[:2])
    if made.size > 1:
        return 2.0 * math.sqrt(made.largest) * moved + moved * moved
    size = _size_of_loss(given, made)
    return (2.0 * math.sqrt(size * made.norm) * moved + moved * moved) / size


def _by_size(one: Value) -> int:
    return one.size


def _size_of_loss(given: Values, made: Value) -> float:
    """Return by how many terms a loss was divided: all, if it can be a mean, and one of a sum.

    The root of the sum of its terms is the norm of a difference, which is at most that of both inputs.
    """
    size = max((one.size for one in given[:2]), default=1)
    most = sum(one.norm * _spread(one, max(given, key=_by_size)) for one in given[:2])
    return float(size) if size * made.norm <= RECORDED_NORM.value * most * most else 1.0


def _multiplied(given: Values, made: Value) -> float:
    total = 0.0
    for place, one in enumerate(given):
        others = [other for at, other in enumerate(given) if at != place]
        by_largest = one.difference * math.prod(other.largest for other in others) * _spread(one, made)
        if one.is_exact and len(others) == 1:  # where the other has few large elements
            by_largest = min(by_largest, one.largest_error * others[0].norm * _spread(others[0], made))
        total += by_largest
    return total


def _divided(given: Values, made: Value) -> float:
    if len(given) != 2 or not given[1].smallest:  # noqa: PLR2004
        return 0.0
    one, other = given
    parts = one.difference * _spread(one, made) + other.difference * _spread(other, made) * made.largest
    return parts / other.smallest


def _power(given: Values, made: Value) -> float:
    if len(given) != 2:  # noqa: PLR2004
        return 0.0
    return given[0].difference * _slope_of_power(given[0], given[1].minimum) * _spread(given[0], made)


def _root(given: Values, made: Value) -> float:
    """Return what is explained of a root: that of a difference is at most the difference of roots squared."""
    (one, *_) = given
    at_zero = math.sqrt(one.difference * math.sqrt(one.size))
    by_slope = one.difference * _slope_of_power(one, 0.5) * _spread(one, made) if one.smallest else math.inf
    return min(at_zero, by_slope)


def _inverse_root(given: Values, made: Value) -> float:
    return given[0].difference * _slope_of_power(given[0], -0.5) * _spread(given[0], made)


def _slope_of_power(base: Value, power: float) -> float:
    """Return the largest slope of x to the power of p over the values of x; 0 where it has no bound."""
    if power < 1.0 and not base.smallest:
        return 0.0
    try:
        slopes: list[float] = [end ** (power - 1.0) for end in (base.largest, base.smallest) if end]
    except OverflowError:
        return math.inf
    return abs(power) * max(slopes, default=0.0)


def _product(given: Values, made: Value) -> float:
    """Return what the two largest inputs multiply to, and what the others, such as a bias, add.

    Where the other factor was not recorded, few elements may cancel by chance: for one element to be c times
    smaller than expected is as likely as 1 / c, for several of them at once as its power.
    """
    if len(given) < 2:  # noqa: PLR2004
        return made.norm * given[0].error * MOST_CANCELLED.value ** (1.0 / made.size) if made.size else 0.0
    *added, one, other = sorted(given, key=_is_matrix)
    multiplied = _norm_of_product(one, other, made) * (one.error + other.error)
    return multiplied + _additive(added, made)


def _is_matrix(one: Value) -> tuple[bool, int]:
    """Return what matrices have more of than a bias, which of one token alone is the larger of the two."""
    return len(one.shape) > 1, one.size


def _norm_of_product(one: Value, other: Value, made: Value) -> float:
    """Return the norm of a product of matrices as it is where nothing cancels out and nothing adds up.

    Each of its elements is a sum over the dimension that both share, which their sizes tell.
    """
    if not made.size:
        return 0.0
    matrices = math.prod(one.shape[:-2]) if one.shape[:-2] == other.shape[:-2] else 1
    shared = math.sqrt(one.size * other.size / made.size / max(1, matrices))
    return math.sqrt(made.size * shared) * one.rms * other.rms


def _convolved(given: Values, made: Value) -> float:
    return _product(given, made) * _overlap(given)


def _overlap(given: Values) -> float:
    """Return what sizes do not tell of a convolution: each element of the kernel sees nearly the whole input.

    So more products are added up than in a product of matrices of those sizes, by the root of how many
    elements the kernel has for each pair of channels.
    """
    elements = math.prod(given[1].shape[2:]) if len(given) > 1 else 1
    return math.sqrt(math.sqrt(elements))


def _exponential(given: Values, made: Value) -> float:
    return made.norm * max(one.largest_error for one in given)


def _logarithmic(given: Values, made: Value) -> float:
    return 2.0 * math.sqrt(made.size) * max(one.largest_error for one in given)


def _centred(given: Values, made: Value) -> float:
    return _normalised(given, given[0].deviation, made)


def _scaled(given: Values, made: Value) -> float:
    return _normalised(given, given[0].rms, made)


def _normalised(given: Values, divisor: float, made: Value) -> float:
    """Return what is explained of a norm: its weight multiplies numbers of about one, its bias is added."""
    first, *weights = given
    if not divisor:
        return math.inf
    return first.error * first.rms / divisor * _unevenness(first) * made.norm + _additive(weights, made)


def _unevenness(one: Value) -> float:
    """Return how much smaller some rows of a tensor are than its rms, as its largest element tells.

    That of normally distributed elements is sqrt(2 ln size) times their rms.
    """
    if one.size < 2 or not one.rms:  # noqa: PLR2004
        return 1.0
    return max(1.0, one.largest / (one.rms * math.sqrt(2.0 * math.log(one.size))))


def _additive_backward(gradients: Values, _: Values, __: Values, made: Value) -> float:
    return sum(one.difference * _gathered(one, made) for one in gradients)


def _summed_backward(gradients: Values, _: Values, __: Values, made: Value) -> float:
    return sum(one.error * made.norm for one in gradients)


def _squared_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of 2 d g: by what the gradient g is off, and the difference d."""
    if not kept or not result:
        return 0.0
    moved = sum(one.difference * _spread(one, max(kept, key=_by_size)) for one in kept[:2])
    loss = result[0]
    apart = math.sqrt(loss.norm * (_size_of_loss(kept, loss) if loss.size == 1 else math.sqrt(loss.size)))
    error = sum(one.error for one in gradients)
    return made.norm * (error + (moved / apart if apart else math.inf))


def _logarithmic_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    """Return what is explained of the gradient of a loss: softmax less one of the classes, over the rows.

    Of each row it is at most root of 2, and off by 2 max|dx| times the norm of its softmax.
    """
    rows = made.size // made.shape[-1] if made.shape and made.shape[-1] else 1
    total = 0.0
    for one in gradients:
        if one.size > 1:  # one for each element: what the softmax takes off has no bound by norms
            return 0.0
        scale = one.norm / rows
        if made.norm > RECORDED_NORM.value * scale * math.sqrt(2.0 * rows):  # added up, and not averaged
            scale = one.norm
        off = max((value.largest_error for value in kept), default=0.0)
        total += made.norm * one.error + 2.0 * off * scale * math.sqrt(rows)
    return total


def _smooth_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    """Let slopes change by what their inputs do: their own slope is at most about one, and so are they."""
    turned = min(1.0, sum(one.error * one.rms for one in kept))
    return sum(one.norm * (one.error + turned) * _gathered(one, made) for one in gradients)


def _kinked_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    turned = math.sqrt(max(map(_share_at_kink, kept), default=0.0))
    return sum(one.norm * (one.error + turned) * _gathered(one, made) for one in gradients)


def _share_at_kink(one: Value) -> float:
    """Return the share of elements that lie within their error of a kink, wherever it is."""
    if one.size < 2:  # noqa: PLR2004 (a slope of its own, and no input)
        return 0.0
    return min(1.0, one.error * one.rms / one.deviation) if one.deviation else 1.0


def _multiplied_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    others = [one for one in kept if one.key != made.key] or kept
    size, error = math.prod(one.largest for one in others), sum(one.error for one in others)
    return sum(one.norm * (one.error + error) * size * _gathered(one, made) for one in gradients)


def _divided_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    if len(kept) != 2 or not kept[1].smallest:  # noqa: PLR2004
        return 0.0
    one, other = kept
    size, error = 1.0, other.error * other.rms / other.smallest  # of the slope 1 / b
    if made.key != one.key:  # of the slope a / b / b
        size = max((value.largest for value in result), default=1.0)
        error = 2.0 * error * size + one.error * one.rms / other.smallest
    return sum(g.norm * (g.error * size + error) * _gathered(g, made) for g in gradients) / other.smallest


def _power_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _of_power(gradients, kept, made, kept[1].minimum) if len(kept) == 2 else 0.0  # noqa: PLR2004


def _root_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _of_power(gradients, kept, made, 0.5)


def _inverse_root_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _of_power(gradients, kept, made, -0.5)


def _of_power(gradients: Values, kept: Values, made: Value, power: float) -> float:
    if not kept:
        return 0.0
    slope, error = _slope_of_power(kept[0], power), abs(power - 1.0) * kept[0].error
    return sum(one.norm * (one.error + error) * slope * _gathered(one, made) for one in gradients)


def _product_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    gradient = max(gradients, key=_is_matrix)
    if not kept:  # only what is added up, such as the gradient of a bias, is known
        return gradient.difference * _gathered(gradient, made)
    factors = sorted(kept, key=_is_matrix)[-2:]
    others = [one for one in factors if one.key != made.key]
    if len(others) == len(factors) == 2 and any(one.key == made.key for one in kept):  # noqa: PLR2004
        return gradient.difference * _gathered(gradient, made)
    if not others:
        return 0.0
    return _norm_of_product(gradient, others[-1], made) * (gradient.error + others[-1].error)


def _convolved_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    return _product_backward(gradients, kept, result, made) * _overlap(kept)


def _exponential_backward(gradients: Values, _: Values, result: Values, made: Value) -> float:
    largest = max((one.largest for one in result), default=1.0)
    error = max((one.error for one in result), default=0.0)
    return sum(2.0 * one.norm * largest * (one.error + error) * _gathered(one, made) for one in gradients)


def _centred_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _norm_backward(gradients, kept, made, kept[0].deviation if kept else 0.0)


def _scaled_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _norm_backward(gradients, kept, made, kept[0].rms if kept else 0.0)


def _norm_backward(gradients: Values, kept: Values, made: Value, divisor: float) -> float:
    """Return what is explained of the gradients of a norm: of what it was given, of its weight and bias."""
    if not kept:
        return 0.0
    first, *weights = kept
    if not divisor:
        return math.inf
    error = first.error * first.rms / divisor
    if made.size < first.size or made.key in {one.key for one in weights}:  # added up over all rows
        rows = first.size / made.size if made.size else 1.0
        own = min(1.0, rows * made.roundoff)
        return sum(one.norm * (one.error + error + own) * _gathered(one, made) for one in gradients)
    error += sum(one.error for one in weights)
    largest = max((one.largest for one in weights if one.size > 1), default=1.0)
    return sum(one.norm * (one.error + error) for one in gradients) * largest * _unevenness(first) / divisor


_FORWARD: Final[Mapping[ErrorModel, Callable[[Values, Value], float]]] = {
    ErrorModel.ADDITIVE: _additive,
    ErrorModel.SMOOTH: _additive,
    ErrorModel.KINKED: _additive,
    ErrorModel.SUMMED: _summed,
    ErrorModel.AVERAGED: _averaged,
    ErrorModel.SQUARED: _squared,
    ErrorModel.MULTIPLIED: _multiplied,
    ErrorModel.DIVIDED: _divided,
    ErrorModel.POWER: _power,
    ErrorModel.ROOT: _root,
    ErrorModel.INVERSE_ROOT: _inverse_root,
    ErrorModel.PRODUCT: _product,
    ErrorModel.CONVOLVED: _convolved,
    ErrorModel.EXPONENTIAL: _exponential,
    ErrorModel.LOGARITHMIC: _logarithmic,
    ErrorModel.CENTRED: _centred,
    ErrorModel.SCALED: _scaled,
}

_BACKWARD: Final[Mapping[ErrorModel, Callable[[Values, Values, Values, Value], float]]] = {
    ErrorModel.ADDITIVE: _additive_backward,
    ErrorModel.SUMMED: _summed_backward,
    ErrorModel.AVERAGED: _summed_backward,
    ErrorModel.SQUARED: _squared_backward,
    ErrorModel.SMOOTH: _smooth_backward,
    ErrorModel.KINKED: _kinked_backward,
    ErrorModel.MULTIPLIED: _multiplied_backward,
    ErrorModel.DIVIDED: _divided_backward,
    ErrorModel.POWER: _power_backward,
    ErrorModel.ROOT: _root_backward,
    ErrorModel.INVERSE_ROOT: _inverse_root_backward,
    ErrorModel.PRODUCT: _product_backward,
    ErrorModel.CONVOLVED: _convolved_backward,
    ErrorModel.EXPONENTIAL: _exponential_backward,
    ErrorModel.LOGARITHMIC: _logarithmic_backward,
    ErrorModel.CENTRED: _centred_backward,
    ErrorModel.SCALED: _scaled_backward,
}
