"""How errors become that of a gradient that a backward operator gives; the table is in `error_model.py`."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import (
    Value,
    Values,
    gathered,
    is_matrix,
    largest_of,
    norm_of_product,
    overlap,
    size_of_loss,
    slope_of_power,
    spread,
    unevenness,
)
from firstdrift.verdict.fixed_thresholds import RECORDED_NORM


def _additive_backward(gradients: Values, _: Values, __: Values, made: Value) -> float:
    return sum(one.difference * gathered(one, made) for one in gradients)


def _summed_backward(gradients: Values, _: Values, __: Values, made: Value) -> float:
    return sum(one.error * made.norm for one in gradients)


def _squared_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of 2 d g: by what the gradient g is off, and the difference d."""
    if not kept or not result:
        return 0.0
    moved = sum(one.difference * spread(one, largest_of(kept)) for one in kept[:2])
    loss = result[0]
    apart = math.sqrt(loss.norm * (size_of_loss(kept, loss) if loss.size == 1 else math.sqrt(loss.size)))
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
    return sum(one.norm * (one.error + turned) * gathered(one, made) for one in gradients)


def _kinked_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    turned = math.sqrt(max(map(_share_at_kink, kept), default=0.0))
    return sum(one.norm * (one.error + turned) * gathered(one, made) for one in gradients)


def _share_at_kink(one: Value) -> float:
    """Return the share of elements that lie within their error of a kink, wherever it is."""
    if one.size < 2:  # noqa: PLR2004 (a slope of its own, and no input)
        return 0.0
    return min(1.0, one.error * one.rms / one.deviation) if one.deviation else 1.0


def _multiplied_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    others = [one for one in kept if one.key != made.key] or kept
    size, error = math.prod(one.largest for one in others), sum(one.error for one in others)
    return sum(one.norm * (one.error + error) * size * gathered(one, made) for one in gradients)


def _divided_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    if len(kept) != 2 or not kept[1].smallest:  # noqa: PLR2004
        return 0.0
    one, other = kept
    size, error = 1.0, other.error * other.rms / other.smallest  # of the slope 1 / b
    if made.key != one.key:  # of the slope a / b / b
        size = max((value.largest for value in result), default=1.0)
        error = 2.0 * error * size + one.error * one.rms / other.smallest
    return sum(g.norm * (g.error * size + error) * gathered(g, made) for g in gradients) / other.smallest


def _power_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _of_power(gradients, kept, made, kept[1].minimum) if len(kept) == 2 else 0.0  # noqa: PLR2004


def _root_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _of_power(gradients, kept, made, 0.5)


def _inverse_root_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _of_power(gradients, kept, made, -0.5)


def _of_power(gradients: Values, kept: Values, made: Value, power: float) -> float:
    if not kept:
        return 0.0
    slope, error = slope_of_power(kept[0], power), abs(power - 1.0) * kept[0].error
    return sum(one.norm * (one.error + error) * slope * gathered(one, made) for one in gradients)


def _product_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    gradient = max(gradients, key=is_matrix)
    if not kept:  # only what is added up, such as the gradient of a bias, is known
        return gradient.difference * gathered(gradient, made)
    factors = sorted(kept, key=is_matrix)[-2:]
    others = [one for one in factors if one.key != made.key]
    if len(others) == len(factors) == 2 and any(one.key == made.key for one in kept):  # noqa: PLR2004
        return gradient.difference * gathered(gradient, made)
    if not others:
        return 0.0
    return norm_of_product(gradient, others[-1], made) * (gradient.error + others[-1].error)


def _convolved_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    return _product_backward(gradients, kept, result, made) * overlap(kept)


def _exponential_backward(gradients: Values, _: Values, result: Values, made: Value) -> float:
    largest = max((one.largest for one in result), default=1.0)
    error = max((one.error for one in result), default=0.0)
    return sum(2.0 * one.norm * largest * (one.error + error) * gathered(one, made) for one in gradients)


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
        return sum(one.norm * (one.error + error + own) * gathered(one, made) for one in gradients)
    error += sum(one.error for one in weights)
    largest = max((one.largest for one in weights if one.size > 1), default=1.0)
    return sum(one.norm * (one.error + error) for one in gradients) * largest * unevenness(first) / divisor


BACKWARD: Final[Mapping[ErrorModel, Callable[[Values, Values, Values, Value], float]]] = {
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
