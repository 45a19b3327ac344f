"""How errors become that of a gradient that a backward operator gives; the table is in `error_model.py`."""

import math
from collections.abc import Callable, Mapping
from itertools import product
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
from firstdrift.verdict.fixed_thresholds import RECORDED_NORM


def _additive_backward(gradients: Values, _: Values, __: Values, made: Value) -> float:
    return sum(one.difference * gathered(one, made) for one in gradients)


def _summed_backward(gradients: Values, _: Values, __: Values, made: Value) -> float:
    """Return what is explained: each term has the gradient of its sum, which running sums add up."""
    running = sum(one.difference * added_up(one, made) for one in gradients if one.size == made.size)
    return max(running, sum(one.error * made.norm for one in gradients))


def _distance_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of the signs of differences, which flip, and of slopes that follow them."""
    if not kept or not result:
        return 0.0
    moved = sum(one.difference * spread(one, largest_of(kept)) for one in kept[:2])
    total = 0.0
    for one, loss in product(gradients, result):
        terms = 1.0 if loss.size > 1 else one.norm * math.sqrt(made.size) / made.norm if made.norm else 1.0
        apart = loss.rms * (math.sqrt(made.size) if loss.size > 1 else terms / math.sqrt(made.size))
        share = min(1.0, moved / apart / math.sqrt(made.size)) if apart else 1.0
        total += one.error * made.norm + one.largest / terms * moved + _flipped(share, made.norm, made)
    return total


def _squared_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    """Return what is explained of 2 d g: by what the gradient g is off, and the difference d.

    Where there is a gradient for each square, the two are multiplied element by element.
    """
    if not kept or not result:
        return 0.0
    moved = sum(one.difference * spread(one, largest_of(kept)) for one in kept[:2])
    loss = result[0]
    if loss.size > 1:
        apart = math.sqrt(loss.largest)
        return sum(2.0 * (one.difference * apart + moved * one.largest) for one in gradients)
    apart = math.sqrt(loss.norm * size_of_loss(kept, loss))
    error = sum(one.error for one in gradients)
    return made.norm * (error + (moved / apart if apart else math.inf))


def _logarithmic_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    """Return what is explained of the gradient of a loss: softmax less one of the classes, over the rows.

    Of each row it is at most root of 2, and off by 2 max|dx| times the norm of its softmax. Where each
    element has a gradient, the softmax is multiplied by their sum, at most the root of how many there are.
    """
    off = 2.0 * max((value.largest_error for value in kept), default=0.0)
    rows = made.size // made.shape[-1] if made.shape and made.shape[-1] else 1
    total = 0.0
    for one in gradients:
        if one.size > 1:
            sums = math.sqrt(made.size / rows) if one.size == made.size else 1.0
            total += one.difference * (1.0 + sums) + one.norm * sums * off
            continue
        scale = one.norm / rows
        if made.norm > RECORDED_NORM.value * scale * math.sqrt(2.0 * rows):  # added up, and not averaged
            scale = one.norm
        total += made.norm * one.error + off * scale * math.sqrt(rows)
    return total


def _smooth_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    """Let slopes change by what their inputs do: their own slope is at most about one, and so are they."""
    turned = min(1.0, sum(one.error * one.rms for one in kept))
    return sum(one.norm * (one.error + turned) * gathered(one, made) for one in gradients)


def _kinked_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    share = max(map(_share_at_kink, kept), default=0.0)
    return sum(
        one.difference * gathered(one, made) + _flipped(share, one.norm * gathered(one, made), made)
        for one in gradients
    )


def _flipped(share: float, norm: float, made: Value) -> float:
    """Return what is explained where a share of gradients of some norm flips, and one by chance.

    None is off by more than the largest error that was seen; it may leave one place and come to another.
    """
    if not made.is_exact:
        return norm * math.sqrt(share)
    return math.sqrt(2.0 * (share * made.size + 1.0)) * made.largest_error


def _share_at_kink(one: Value) -> float:
    """Return the share of elements that lie within their error of a kink, wherever it is."""
    if one.size < 2:  # noqa: PLR2004 (a slope of its own, and no input)
        return 0.0
    return min(1.0, one.error * one.rms / one.deviation) if one.deviation else 1.0


def _multiplied_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    others = [one for one in kept if one.key != made.key] or kept
    size, error = math.prod(one.largest for one in others), sum(one.error for one in others)
    return sum(one.norm * (one.error + error) * size * gathered(one, made) for one in gradients)


def _multiplied_and_added_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    is_added = not kept or made.key == kept[0].key
    backward = _additive_backward if is_added else _multiplied_backward
    return backward(gradients, kept[1:], result, made)


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
    gradient = max(gradients, key=by_dimensions)
    if not kept:  # only what is added up, such as the gradient of a bias, is known
        return gradient.difference * gathered(gradient, made)
    factors = sorted(kept, key=by_dimensions)[-2:]
    others = [one for one in factors if one.key != made.key]
    if len(others) == len(factors) == 2 and any(one.key == made.key for one in kept):  # noqa: PLR2004
        return gradient.difference * gathered(gradient, made)
    if not others:
        return 0.0
    return norm_of_product(gradient, others[-1], made) * (gradient.error + others[-1].error)


def _convolved_backward(gradients: Values, kept: Values, result: Values, made: Value) -> float:
    return _product_backward(gradients, kept, result, made) * overlap(kept)


def _exponential_backward(gradients: Values, _: Values, result: Values, made: Value) -> float:
    """Return what is explained of y g, and of what a softmax takes off: by the largest of y, or that of g."""
    total = 0.0
    for value, one in product(result, gradients):
        by_gradient = one.norm * value.largest * (one.error + value.error)
        by_result = value.norm * (one.largest_error + one.largest * value.error)
        total += 2.0 * min(by_gradient, by_result if one.is_exact else math.inf) * gathered(one, made)
    return total


def _centred_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    return _norm_backward(gradients, kept, made, kept[0].deviation if kept else 0.0)


def _scaled_backward(gradients: Values, kept: Values, _: Values, made: Value) -> float:
    if kept and all(one.size < made.size == kept[0].size for one in gradients):  # the norm itself was given
        return made.norm * sum(one.error + 2.0 * kept[0].error for one in gradients)
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
    largest = max((one.largest for one in weights if one.shape), default=1.0)
    return sum(one.norm * (one.error + error) for one in gradients) * largest * unevenness(first) / divisor


BACKWARD: Final[Mapping[ErrorModel, Callable[[Values, Values, Values, Value], float]]] = {
    ErrorModel.ADDITIVE: _additive_backward,
    ErrorModel.SUMMED: _summed_backward,
    ErrorModel.AVERAGED: _summed_backward,
    ErrorModel.DISTANCE: _distance_backward,
    ErrorModel.SQUARED: _squared_backward,
    ErrorModel.SMOOTH: _smooth_backward,
    ErrorModel.KINKED: _kinked_backward,
    ErrorModel.MULTIPLIED: _multiplied_backward,
    ErrorModel.MULTIPLIED_AND_ADDED: _multiplied_and_added_backward,
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
