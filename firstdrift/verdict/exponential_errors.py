"""How errors become those of exponentials and logarithms of their sums; the table is in `error_model.py`."""

import math
from collections.abc import Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import Law, Value, Values, gathered, relative_to
from firstdrift.verdict.fixed_thresholds import RECORDED_NORM


def _exponential(given: Values, made: Value) -> float:
    return made.norm * _largest_error(given)


def _exponential_backward(gradient: Value, _: Values, result: Values, made: Value) -> float:
    """Return what is explained of y g, and of what a softmax takes off, which is no more.

    By the largest of one and the norm of the other, whichever tells less. What is positive, as e^x and not
    e^x - 1, is its own slope: it is off by what its result is.
    """
    total = 0.0
    for value in result:
        by_gradient, by_result = gradient.difference * value.largest, gradient.norm * value.largest
        if gradient.is_exact:
            by_gradient = min(by_gradient, value.norm * gradient.largest_error)
            by_result = min(by_result, value.norm * gradient.largest)
        by_result *= value.error
        if value.minimum >= 0.0:
            by_result = min(by_result, relative_to(made, value))
        total += 2.0 * (by_gradient + by_result) * gathered(gradient, made)
    return total


def _logarithmic(given: Values, made: Value) -> float:
    return 2.0 * math.sqrt(made.size) * _largest_error(given)


def _logarithmic_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of the gradients of losses and of log softmax, in which a softmax p stands.

    No row of p is off by more than the largest error of what it was given.
    """
    off = _largest_error(kept)
    if gradient.size > 1:
        of_each = _of_log_softmax if gradient.size == made.size else _of_sums
        return of_each(gradient, result, made, off)
    rows = made.size / _length_of_rows(made)
    scale = gradient.norm / rows
    if made.norm > RECORDED_NORM.value * scale * math.sqrt(2.0 * rows):  # added up, and not averaged
        scale = gradient.norm
    return made.norm * gradient.error + off * scale * math.sqrt(rows)


def _of_log_softmax(gradient: Value, result: Values, made: Value, off: float) -> float:
    """Return what is explained of g - p S, where S is the sum of a row of g.

    Of n elements it is at most root of n times their norm; a row of p has a norm of at most root of max p.
    And p S is what g and the gradient that is made are apart.
    """
    highest = max((value.maximum for value in result), default=0.0)
    sums = math.sqrt(_length_of_rows(made) * math.exp(min(0.0, highest)))
    taken_off = min(sums * gradient.norm, gradient.norm + made.norm)
    return math.hypot(gradient.difference, gradient.difference * sums, taken_off * off)


def _of_sums(gradient: Value, result: Values, made: Value, off: float) -> float:
    """Return what is explained of g p, where each sum has a gradient; p is off by what the sum is, too."""
    by_gradient = min(gradient.difference, relative_to(made, gradient))
    return by_gradient + made.norm * (off + _largest_error(result))


def _largest_error(given: Values) -> float:
    return max((one.largest_error for one in given), default=0.0)


def _length_of_rows(one: Value) -> int:
    return (one.shape[-1] if one.shape else 0) or one.size or 1


LAWS: Final[Mapping[ErrorModel, Law]] = {
    ErrorModel.EXPONENTIAL: Law(_exponential, _exponential_backward),
    ErrorModel.LOGARITHMIC: Law(_logarithmic, _logarithmic_backward),
}
