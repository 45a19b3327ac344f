"""Masks in the values of tensors: see `masks` for what a mask is."""

import numpy as np

from firstdrift.metrics.dtypes import Array, NumberKind, number_kind
from firstdrift.metrics.masks import MASK_RANGES


def without_masks(golden: Array, target: Array) -> tuple[Array, Array] | None:
    """Return copies in which elements masked on both sides are -inf; None if there are none.

    Only floating-point tensors have masks: -65504 among integers is a number like any other.
    """
    if not number_kind(golden.dtype) is number_kind(target.dtype) is NumberKind.FLOATING:
        return None
    masked = _masked(golden) & _masked(target)
    if not masked.any():
        return None
    return _filled(golden, masked), _filled(target, masked)


def _masked(array: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        values = array.astype(np.float64)
    found: Array = values == -np.inf
    for low, high in MASK_RANGES:
        found |= (values >= low) & (values <= high)
    return found


def _filled(array: Array, masked: Array) -> Array:
    copy = array.copy()
    copy[masked] = -np.inf
    return copy
