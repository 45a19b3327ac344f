"""How errors become those of sums, means and losses of elements; the table stands in `error_model.py`."""

import math
from collections.abc import Mapping
from typing import Final

from firstdrift.model.tensor import ROUNDING
from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import Law, Value, Values, flipped, gathered, spread
from firstdrift.verdict.fixed_thresholds import RECORDED_NORM


def _added_up(one: Value, made: Value) -> float:
    """Return the same of sums along one dimension; running sums are as many as what they add up."""
    return math.sqrt(max(one.shape, default=1)) if one.size == made.size else gathered(one, made)


def _summed(given: Values, made: Value) -> float:
    return sum(_of_sum(one, made, _added_up(one, made)) for one in given)


def _averaged(given: Values, made: Value) -> float:
    return sum(_of_sum(one, made, gathered(one, made)) / gathered(one, made) ** 2 for one in given)


def _of_sum(one: Value, made: Value, times: float) -> float:
    """Return by what sums are off; that of a whole tensor by what its errors add up to, and its own rounding.

    Kernels add up in float32 inside, in some order: the root of n terms, each off by one rounding.
    """
    if made.size > 1 or not one.is_exact:
        return one.difference * times
    return abs(one.drift) + min(one.roundoff, ROUNDING["float32"]) * times * one.norm


def _summed_backward(gradient: Value, _: Values, __: Values, made: Value) -> float:
    """Return what is explained: each term has the gradient of its sum, which running sums add up."""
    running = gradient.difference * _added_up(gradient, made) if gradient.size == made.size else 0.0
    return max(running, gradient.error * made.norm)


def _distance(given: Values, made: Value) -> float:
    return _moved_apart(given) * gathered(_largest_of(given), made) / _terms_of_distance(given, made)


def _distance_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of the signs of differences, which flip."""
    if not kept or not result:
        return 0.0
    loss = result[0]
    apart = loss.rms * _terms_of_distance(kept, loss) / (made.size if loss.size == 1 else 1.0)
    moved = _moved_apart(kept) / math.sqrt(made.size)
    return gradient.error * made.norm + flipped(min(1.0, moved / apart) if apart else 1.0, made.norm, made)


def _huber(given: Values, made: Value) -> float:
    """Return what is explained of distances that are squared where they are small.

    The slope of such a distance h is at most 1 and at most root of 2 h, so all slopes are of their sum.
    """
    if made.size > 1:
        return _distance(given, made)
    moved, terms = _moved_apart(given), _terms_of_distance(given, made)
    by_slopes = math.sqrt(2.0 * made.norm * terms) * moved + 0.5 * moved * moved
    return min(_distance(given, made), by_slopes / terms)


def _huber_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of slopes that follow differences, by no more than these are off."""
    if not kept or not result:
        return 0.0
    by_difference = gradient.largest * _moved_apart(kept) / _terms_of_distance(kept, result[0])
    return gradient.error * made.norm + by_difference


def _squared(given: Values, made: Value) -> float:
    """Return what is explained of the squares of a difference, each kept or all of them averaged or added up.

    (d + e)^2 - d^2 = 2 d e + e^2, of which the sum is at most 2 |d| |e| + |e|^2.
    """
    moved = _moved_apart(given)
    if made.size > 1:
        return 2.0 * math.sqrt(made.largest) * moved + moved * moved
    size = _terms_of_squares(given, made)
    return (2.0 * math.sqrt(size * made.norm) * moved + moved * moved) / size


def _squared_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of 2 d g: by what the gradient g is off, and the difference d.

    Where there is a gradient for each square, the two are multiplied element by element.
    """
    if not kept or not result:
        return 0.0
    moved, loss = _moved_apart(kept), result[0]
    if loss.size > 1:
        return 2.0 * (gradient.difference * math.sqrt(loss.largest) + moved * gradient.largest)
    apart = math.sqrt(loss.norm * _terms_of_squares(kept, loss))
    return made.norm * (gradient.error + (moved / apart if apart else math.inf))


def _largest_of(given: Values) -> Value:
    return max(given, key=lambda one: one.size)


def _moved_apart(given: Values) -> float:
    """Return by what the difference of two inputs is off, the errors of which have nothing in common."""
    return math.hypot(*(one.difference * spread(one, _largest_of(given)) for one in given[:2]))


def _most_apart(given: Values) -> float:
    """Return the most that the norm of a difference may be: that of both inputs."""
    return sum(one.norm * spread(one, _largest_of(given)) for one in given[:2])


def _terms_of_distance(given: Values, made: Value) -> float:
    """Return by how many terms a distance was divided: one of a sum, all of what may be a mean."""
    size = _largest_of(given).size
    is_mean = made.size == 1 and math.sqrt(size) * made.norm <= RECORDED_NORM.value * _most_apart(given)
    return float(size) if is_mean else 1.0


def _terms_of_squares(given: Values, made: Value) -> float:
    """Return the same of squares of differences."""
    size, most = _largest_of(given).size, _most_apart(given)
    return float(size) if size * made.norm <= RECORDED_NORM.value * most * most else 1.0


LAWS: Final[Mapping[ErrorModel, Law]] = {
    ErrorModel.SUMMED: Law(_summed, _summed_backward),
    ErrorModel.AVERAGED: Law(_averaged, _summed_backward),
    ErrorModel.DISTANCE: Law(_distance, _distance_backward),
    ErrorModel.HUBER: Law(_huber, _huber_backward),
    ErrorModel.SQUARED: Law(_squared, _squared_backward),
}
