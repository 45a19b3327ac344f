"""How errors become those of products of matrices and convolutions; the table stands in `error_model.py`."""

import math
from collections.abc import Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_terms import Law, Value, Values, handed_back, handed_on
from firstdrift.verdict.fixed_thresholds import MOST_CANCELLED


def _product(given: Values, made: Value) -> float:
    """Return what the two largest inputs multiply to, and what the others, such as a bias, add.

    Where the other factor was not recorded, few elements may cancel by chance: for one element to be c times
    smaller than expected is as likely as 1 / c, for several of them at once as its power.
    """
    if len(given) < 2:  # noqa: PLR2004
        return made.norm * given[0].error * MOST_CANCELLED.value ** (1.0 / made.size) if made.size else 0.0
    *added, one, other = sorted(given, key=_by_dimensions)
    multiplied = _norm_of_product(one, other, made) * (one.error + other.error)
    return multiplied + sum(handed_on(value, made) for value in added)


def cancelled(given: Values, made: Value) -> float:
    """Return how many times larger a product would be if nothing cancelled out, at least 1: its condition."""
    if len(given) < 2 or not made.norm:  # noqa: PLR2004
        return 1.0
    *_, one, other = sorted(given, key=_by_dimensions)
    return max(1.0, _norm_of_product(one, other, made) * _overlap(given) / made.norm)


def _convolved(given: Values, made: Value) -> float:
    return _product(given, made) * _overlap(given)


def _product_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    factors = sorted(kept, key=_by_dimensions)[-2:]
    others = [one for one in factors if one.key != made.key]
    is_added = len(others) == len(factors) == 2 and any(one.key == made.key for one in kept)  # noqa: PLR2004
    if not kept or is_added:  # only what is added up, such as the gradient of a bias, is known
        return handed_back(gradient, kept, result, made)
    if not others:
        return 0.0
    return _norm_of_product(gradient, others[-1], made) * (gradient.error + others[-1].error)


def _convolved_backward(gradient: Value, kept: Values, result: Values, made: Value) -> float:
    return _product_backward(gradient, kept, result, made) * _overlap(kept)


def _by_dimensions(one: Value) -> tuple[bool, int]:
    """Sort what is added before what is multiplied: vectors first, the smaller before the larger.

    Of three matrices the first is added, as torch has it.
    """
    is_matrix = len(one.shape) > 1
    return is_matrix, 0 if is_matrix else one.size


def _norm_of_product(one: Value, other: Value, made: Value) -> float:
    """Return the norm of a product of matrices as it is where nothing cancels out and nothing adds up.

    Each of its elements is a sum over the dimension that both share, which their sizes tell.
    """
    if not made.size:
        return 0.0
    matrices = math.prod(one.shape[:-2]) if one.shape[:-2] == other.shape[:-2] else 1
    shared = math.sqrt(one.size * other.size / made.size / max(1, matrices))
    return math.sqrt(made.size * shared) * one.rms * other.rms


def _overlap(given: Values) -> float:
    """Return what sizes do not tell of a convolution: each element of the kernel sees nearly the whole input.

    So more products are added up than in a product of matrices of those sizes, by the root of how many
    elements the kernel has for each pair of channels.
    """
    elements = math.prod(given[1].shape[2:]) if len(given) > 1 else 1
    return math.sqrt(math.sqrt(elements))


LAWS: Final[Mapping[ErrorModel, Law]] = {
    ErrorModel.PRODUCT: Law(_product, _product_backward),
    ErrorModel.CONVOLVED: Law(_convolved, _convolved_backward),
}
