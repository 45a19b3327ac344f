"""How errors of its inputs become that of an operator's output; the table stands in `error_model.py`."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import (
    Value,
    Values,
    added_up,
    by_dimensions,
    gathered,
    largest_of,
    norm_of_product,
    overlap,
    size_of_loss,
    slope_of_power,
    spread,
    unevenness,
)
from firstdrift.verdict.fixed_thresholds import MOST_CANCELLED, RECORDED_NORM


def _additive(given: Values, made: Value) -> float:
    return sum(_handed_on(one, made) for one in given)


def _handed_on(one: Value, made: Value) -> float:
    """Return how much of the error of an input an output may have: of a part of it, what its elements may."""
    whole = one.difference * spread(one, made)
    return min(whole, one.largest_error * math.sqrt(made.size)) if one.is_exact else whole


def _summed(given: Values, made: Value) -> float:
    return sum(one.difference * added_up(one, made) for one in given)


def _averaged(given: Values, made: Value) -> float:
    return sum(one.difference / gathered(one, made) for one in given)


def _distance(given: Values, made: Value) -> float:
    """Return what is explained of the mean of distances; of their sum, if it is more than a mean can be."""
    size = largest_of(given).size
    most = sum(one.norm * spread(one, largest_of(given)) for one in given)
    is_sum = made.size == 1 and math.sqrt(size) * made.norm > RECORDED_NORM.value * most
    return _summed(given, made) if is_sum else _averaged(given, made)


def _squared(given: Values, made: Value) -> float:
    """Return what is explained of the squares of a difference, each kept or all of them averaged or added up.

    (d + e)^2 - d^2 = 2 d e + e^2, of which the sum is at most 2 |d| |e| + |e|^2.
    """
    if not given:
        return 0.0
    moved = sum(one.difference * spread(one, largest_of(given)) for one in given[:2])
    if made.size > 1:
        return 2.0 * math.sqrt(made.largest) * moved + moved * moved
    size = size_of_loss(given, made)
    return (2.0 * math.sqrt(size * made.norm) * moved + moved * moved) / size


def _multiplied(given: Values, made: Value) -> float:
    total = 0.0
    for place, one in enumerate(given):
        others = [other for at, other in enumerate(given) if at != place]
        by_largest = one.difference * math.prod(other.largest for other in others) * spread(one, made)
        if one.is_exact and len(others) == 1:  # where the other has few large elements
            by_largest = min(by_largest, one.largest_error * others[0].norm * spread(others[0], made))
        total += by_largest
    return total


def _multiplied_and_added(given: Values, made: Value) -> float:
    return _additive(given[:1], made) + _multiplied(given[1:], made)


def _divided(given: Values, made: Value) -> float:
    if len(given) != 2 or not given[1].smallest:  # noqa: PLR2004
        return 0.0
    one, other = given
    parts = one.difference * spread(one, made) + other.difference * spread(other, made) * made.largest
    return parts / other.smallest


def _power(given: Values, made: Value) -> float:
    if len(given) != 2:  # noqa: PLR2004
        return 0.0
    return given[0].difference * slope_of_power(given[0], given[1].minimum) * spread(given[0], made)


def _root(given: Values, made: Value) -> float:
    """Return what is explained of a root: that of a difference is at most the difference of roots squared."""
    (one, *_) = given
    at_zero = math.sqrt(one.difference * math.sqrt(one.size))
    by_slope = one.difference * slope_of_power(one, 0.5) * spread(one, made) if one.smallest else math.inf
    return min(at_zero, by_slope)


def _inverse_root(given: Values, made: Value) -> float:
    return given[0].difference * slope_of_power(given[0], -0.5) * spread(given[0], made)


def _product(given: Values, made: Value) -> float:
    """Return what the two largest inputs multiply to, and what the others, such as a bias, add.

    Where the other factor was not recorded, few elements may cancel by chance: for one element to be c times
    smaller than expected is as likely as 1 / c, for several of them at once as its power.
    """
    if len(given) < 2:  # noqa: PLR2004
        return made.norm * given[0].error * MOST_CANCELLED.value ** (1.0 / made.size) if made.size else 0.0
    *added, one, other = sorted(given, key=by_dimensions)
    multiplied = norm_of_product(one, other, made) * (one.error + other.error)
    return multiplied + _additive(added, made)


def _convolved(given: Values, made: Value) -> float:
    return _product(given, made) * overlap(given)


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
    return first.error * first.rms / divisor * unevenness(first) * made.norm + _additive(weights, made)


FORWARD: Final[Mapping[ErrorModel, Callable[[Values, Value], float]]] = {
    ErrorModel.ADDITIVE: _additive,
    ErrorModel.SMOOTH: _additive,
    ErrorModel.KINKED: _additive,
    ErrorModel.SUMMED: _summed,
    ErrorModel.AVERAGED: _averaged,
    ErrorModel.DISTANCE: _distance,
    ErrorModel.SQUARED: _squared,
    ErrorModel.MULTIPLIED: _multiplied,
    ErrorModel.MULTIPLIED_AND_ADDED: _multiplied_and_added,
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
