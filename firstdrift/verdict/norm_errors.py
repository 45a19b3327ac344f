"""How errors become those of what a norm gives, and of its gradients; the table is in `error_model.py`."""

import math
from collections.abc import Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import Law, Value, Values, gathered, of_factor, spread

_STATISTICS: Final = ("running_mean", "running_var")

ByRole = Mapping[str, Value]


def _centred(given: Values, made: Value) -> float:
    if roles := _roles(given):
        return _by_statistics(given[0], roles, made)
    return _normalised(given, given[0].deviation, made)


def _scaled(given: Values, made: Value) -> float:
    return _normalised(given, given[0].rms, made)


def _normalised(given: Values, divisor: float, made: Value) -> float:
    """Return what is explained of a norm: its weight multiplies numbers of about one, its bias is added."""
    first, *weights = _without_statistics(given)
    if not divisor:
        return math.inf
    moved = first.error * first.rms / divisor * _unevenness(first) * made.norm
    return moved + sum(one.difference * spread(one, made) for one in weights)


def _centred_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    if roles := _roles(kept):
        return _by_statistics_backward(gradient, kept[0], roles, made)
    return _normalised_backward(gradient, kept, made, kept[0].deviation if kept else 0.0)


def _scaled_backward(gradient: Value, kept: Values, _: Values, made: Value) -> float:
    if kept and gradient.size < made.size == kept[0].size:  # the norm itself was given
        return made.norm * (gradient.error + 2.0 * kept[0].error)
    return _normalised_backward(gradient, kept, made, kept[0].rms if kept else 0.0)


def _normalised_backward(gradient: Value, kept: Values, made: Value, divisor: float) -> float:
    """Return what is explained of the gradients of a norm: of what it was given, of its weight and bias."""
    if not kept:
        return 0.0
    first, *weights = _without_statistics(kept)
    if not divisor:
        return math.inf
    error = first.error * first.rms / divisor
    role = next((one.role for one in weights if one.key == made.key), None)
    if role == "bias":
        return _added_up(gradient, 0.0, first, made)
    if role is not None or made.size < first.size:
        mean = math.sqrt(max(0.0, first.rms * first.rms - first.deviation * first.deviation))
        shift = first.roundoff * mean / divisor
        return _added_up(gradient, error, first, made, shift)
    factors = [one for one in weights if one.role != "bias"]
    largest = max((one.largest for one in factors if one.shape), default=1.0)
    size = max(made.norm, gradient.norm * largest * _unevenness(first) / divisor)
    return size * (gradient.error + error + sum(one.error for one in factors))


def _added_up(gradient: Value, error: float, first: Value, made: Value, shift: float = 0.0) -> float:
    """Return what is explained of the gradients of a weight or a bias: sums over all rows.

    What statistics tell of errors may all have one sign. Values tell how far they do; the rest adds up as
    random errors do. A `shift` is that of all rows of a channel, by its mean. Weights of whole rows are added
    up in the dtype of the tensors: each step is rounded, and at last none moves the sum.
    """
    sums, roundoff = gathered(gradient, made), made.roundoff
    apart = gradient.norm * (gradient.error + error)
    if not gradient.is_exact:
        return apart * sums + min(1.0, sums * sums * roundoff) * gradient.norm * sums
    apart += abs(gradient.drift) / math.sqrt(made.size)
    if first.shape[-1:] != (made.size,):
        return apart + shift * gradient.norm * sums
    return apart + roundoff * gradient.norm * sums + min(1.0, sums * sums * roundoff) * made.norm


def _roles(given: Values) -> ByRole:
    """Return what a norm by given statistics was given, by what it is called; nothing of any other norm."""
    roles = {one.role: one for one in given if one.role}
    training = roles.get("training")
    return roles if training and not training.maximum and all(map(roles.get, _STATISTICS)) else {}


def _without_statistics(given: Values) -> Values:
    return [one for one in given if one.role not in _STATISTICS]


def _by_statistics(first: Value, roles: ByRole, made: Value) -> float:
    """Return what is explained of (x - mean) weight / root of variance + bias, each of a channel."""
    mean, bias, inverse = roles["running_mean"], roles.get("bias"), _inverse_deviation(roles)
    moved = first.difference + mean.difference * spread(mean, made)
    scaled = inverse * (first.norm + mean.norm * spread(mean, made))
    total, size = inverse * _largest_weight(roles) * moved, made.norm
    if bias is not None:
        total += bias.difference * spread(bias, made)
        size += bias.norm * spread(bias, made)
    return total + _by_weight(roles, size, scaled) + _by_variance(roles, size)


def _by_statistics_backward(gradient: Value, first: Value, roles: ByRole, made: Value) -> float:
    role = next((role for role, one in roles.items() if one.key == made.key), "")
    inverse, by_variance = _inverse_deviation(roles), _by_variance(roles, made.norm)
    if role == "bias":
        return _added_up(gradient, 0.0, first, made)
    if role == "weight":
        mean = roles["running_mean"]
        moved, shift = inverse * first.error * first.rms, inverse * mean.error * mean.rms
        size = max(1.0, inverse * (first.rms + mean.rms))
        return size * _added_up(gradient, moved / size, first, made, shift / size) + by_variance
    by_gradient = gradient.difference * inverse * _largest_weight(roles)
    by_weight = _by_weight(roles, made.norm, inverse * gradient.norm)
    return of_factor(gradient, by_gradient, gradient, made) + by_weight + by_variance


def _inverse_deviation(roles: ByRole) -> float:
    least = roles["running_var"].minimum + (roles["eps"].minimum if "eps" in roles else 0.0)
    return 1.0 / math.sqrt(least) if least > 0.0 else math.inf


def _largest_weight(roles: ByRole) -> float:
    return roles["weight"].largest if "weight" in roles else 1.0


def _by_weight(roles: ByRole, size: float, before: float) -> float:
    """Return by what numbers of a norm are off by their weights; before it they have another norm."""
    weight = roles.get("weight")
    return min(weight.relative * size, weight.largest_error * before) if weight is not None else 0.0


def _by_variance(roles: ByRole, size: float) -> float:
    variance = roles["running_var"]
    most = variance.difference / variance.minimum if variance.minimum > 0.0 else math.inf
    return 0.5 * min(variance.relative, most) * size


def _unevenness(one: Value) -> float:
    """Return how much smaller some rows of a tensor are than its rms, as its largest element tells.

    That of normally distributed elements is sqrt(2 ln size) times their rms.
    """
    if one.size < 2 or not one.rms:  # noqa: PLR2004
        return 1.0
    return max(1.0, one.largest / (one.rms * math.sqrt(2.0 * math.log(one.size))))


LAWS: Final[Mapping[ErrorModel, Law]] = {
    ErrorModel.CENTRED: Law(_centred, _centred_backward),
    ErrorModel.SCALED: Law(_scaled, _scaled_backward),
}
