"""How errors become those of what is done to each element by itself; the table stands in `error_model.py`."""

import math
from collections.abc import Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import (
    Law,
    Value,
    Values,
    flipped,
    gathered,
    handed_back,
    handed_on,
    of_factor,
    relative_to,
    spread,
)


def _additive(given: Values, made: Value) -> float:
    return sum(handed_on(one, made) for one in given)


def _smooth_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    """Let slopes change by what their inputs do: their own slope is at most about one, and so are they."""
    return _with_slopes(gradient, sum(one.error * one.rms for one in kept), made)


def _saturating_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    """Let slopes change by what their outputs do: they are functions of these, 1 - y^2 by twice as much."""
    return _with_slopes(gradient, 2.0 * sum(one.error * one.rms for one in result or kept), made)


def _with_slopes(gradient: Value, turned: float, made: Value) -> float:
    by_gradient = of_factor(gradient, gradient.difference, gradient, made)
    return by_gradient + gradient.norm * min(1.0, turned) * gathered(gradient, made)


def _kinked_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    share = max(map(_share_at_kink, kept), default=0.0)
    return handed_back(gradient, kept, result, made) + flipped(
        share, gradient.norm * gathered(gradient, made), made
    )


def _share_at_kink(one: Value) -> float:
    """Return the share of elements that lie within their error of a kink, wherever it is."""
    if one.size < 2:  # noqa: PLR2004 (a slope of its own, and no input)
        return 0.0
    return min(1.0, one.error * one.rms / one.deviation) if one.deviation else 1.0


def _multiplied(given: Values, made: Value) -> float:
    total = 0.0
    for place, one in enumerate(given):
        others = [other for at, other in enumerate(given) if at != place]
        most = one.difference * math.prod(other.largest for other in others) * spread(one, made)
        if one.is_exact and len(others) == 1:  # where the other has few large elements
            most = min(most, one.largest_error * others[0].norm * spread(others[0], made))
        total += min(most, relative_to(made, one))
    return total


def _multiplied_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    others = [one for one in kept if one.key != made.key] or kept
    size = math.prod(one.largest for one in others)
    return of_factor(gradient, gradient.difference * size, gradient, made) + sum(
        of_factor(one, gradient.norm * one.error * size, gradient, made) for one in others
    )


def _multiplied_and_added(given: Values, made: Value) -> float:
    return _additive(given[:1], made) + _multiplied(given[1:], made)


def _multiplied_and_added_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    is_added = not kept or made.key == kept[0].key
    backward = handed_back if is_added else _multiplied_backward
    return backward(gradient, kept[1:], result, made)


def _divided(given: Values, made: Value) -> float:
    if len(given) != 2 or not given[1].smallest:  # noqa: PLR2004
        return 0.0
    one, other = given
    by_dividend = one.difference * spread(one, made) / other.smallest
    by_divisor = other.difference * spread(other, made) * made.largest / other.smallest
    return min(by_dividend, relative_to(made, one)) + min(by_divisor, relative_to(made, other))


def _divided_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of g / b, the gradient of a; or of g a / b^2, that of b."""
    if len(kept) != 2 or not kept[1].smallest:  # noqa: PLR2004
        return 0.0
    one, other = kept
    of_dividend = made.key == one.key
    size = 1.0 if of_dividend else max((value.largest for value in result), default=1.0)
    slope = gradient.norm / other.smallest
    by_gradient = of_factor(gradient, gradient.difference * size / other.smallest, gradient, made)
    divisor = slope * size * other.error * other.rms / other.smallest
    if of_dividend:
        return by_gradient + of_factor(other, divisor, gradient, made)
    dividend = slope * one.error * one.rms / other.smallest
    by_divisor = 2.0 * min(divisor * gathered(gradient, made), relative_to(made, other))
    return by_gradient + of_factor(one, dividend, gradient, made) + by_divisor


def _power(given: Values, made: Value) -> float:
    if len(given) != 2:  # noqa: PLR2004
        return 0.0
    return _raised(given[0], given[1].minimum, made)


def _raised(base: Value, power: float, made: Value) -> float:
    by_slope = base.difference * _slope_of_power(base, power) * spread(base, made)
    return min(by_slope, abs(power) * relative_to(made, base))


def _root(given: Values, made: Value) -> float:
    """Return what is explained of a root: that of a difference is at most the difference of roots squared."""
    (one, *_) = given
    at_zero = math.sqrt(one.difference * math.sqrt(one.size))
    return min(at_zero, _raised(one, 0.5, made) if one.smallest else math.inf)


def _inverse_root(given: Values, made: Value) -> float:
    return _raised(given[0], -0.5, made)


def _power_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    return _raised_backward(gradient, kept, made, kept[1].minimum) if len(kept) == 2 else 0.0  # noqa: PLR2004


def _root_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    return _raised_backward(gradient, kept, made, 0.5)


def _inverse_root_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    return _raised_backward(gradient, kept, made, -0.5)


def _raised_backward(gradient: Value, kept: Values, made: Value, power: float) -> float:
    if not kept:
        return 0.0
    base, slope = kept[0], _slope_of_power(kept[0], power)
    by_base = of_factor(base, gradient.norm * base.error * slope, gradient, made)
    return of_factor(gradient, gradient.difference * slope, gradient, made) + abs(power - 1.0) * by_base


def _slope_of_power(base: Value, power: float) -> float:
    """Return the largest slope of x to the power of p over the values of x; 0 where it has no bound."""
    if power < 1.0 and not base.smallest:
        return 0.0
    try:
        slopes: list[float] = [end ** (power - 1.0) for end in (base.largest, base.smallest) if end]
    except OverflowError:
        return math.inf
    return abs(power) * max(slopes, default=0.0)


LAWS: Final[Mapping[ErrorModel, Law]] = {
    ErrorModel.ADDITIVE: Law(_additive, handed_back),
    ErrorModel.SMOOTH: Law(_additive, _smooth_backward),
    ErrorModel.SATURATING: Law(_additive, _saturating_backward),
    ErrorModel.KINKED: Law(_additive, _kinked_backward),
    ErrorModel.MULTIPLIED: Law(_multiplied, _multiplied_backward),
    ErrorModel.MULTIPLIED_AND_ADDED: Law(_multiplied_and_added, _multiplied_and_added_backward),
    ErrorModel.DIVIDED: Law(_divided, _divided_backward),
    ErrorModel.POWER: Law(_power, _power_backward),
    ErrorModel.ROOT: Law(_root, _root_backward),
    ErrorModel.INVERSE_ROOT: Law(_inverse_root, _inverse_root_backward),
}
