"""Measure tensors by their values."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.comparability import IncomparableError, Shape, common_shape, shapes_differ
from firstdrift.metrics.dtypes import Array, NumberKind, number_kind
from firstdrift.metrics.elementwise.measure import measure_elements, summarise
from firstdrift.metrics.elementwise.rows import row_profile, stands_out
from firstdrift.metrics.integers import measure_integers
from firstdrift.metrics.logits import measure_logits
from firstdrift.metrics.masked_arrays import without_masks
from firstdrift.metrics.masks import is_mask_value
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.metrics.stored_format import stored_roundoff
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

Load: TypeAlias = Callable[[DataLocation], Array]
"""Reads the values of a tensor; raises TensorUnreadableError where it cannot."""


def held_or(load: Load, held: Mapping[int, Array]) -> Load:
    """Read tensors that are in memory, by the `id` of their location, from there; others as before."""
    return lambda location: held[id(location)] if id(location) in held else load(location)


def measure_values(
    golden: DataLocation, target: DataLocation, load: Load, may_reshape: bool, logits: bool
) -> Measurement:
    """Measure element by element; arguments are those of `measure_pair`.

    Raises:
        IncomparableError: one cannot be read, holds no numbers, or the shapes do not fit.
    """
    return _measure(_load(golden, "golden", load), _load(target, "target", load), may_reshape, logits)


def measure_empty(golden: Shape, target: Shape, may_reshape: bool) -> Measurement:
    """Measure tensors without elements, of which no tool records any values: their shapes say it all.

    Raises:
        IncomparableError: the shapes do not fit.
    """
    return _measure(np.empty(golden, np.float32), np.empty(target, np.float32), may_reshape, logits=False)


def summarise_values(location: DataLocation, side: str, load: Load) -> SideSummary:
    """Compute the statistics of one tensor, which lies on the named side ("" if there is but one).

    Raises:
        IncomparableError: it cannot be read or holds no numbers.
    """
    return summarise(_load(location, side, load))


def _load(location: DataLocation, side: str, load: Load) -> Array:
    try:
        array = load(location)
    except TensorUnreadableError as error:
        raise IncomparableError(_unreadable(error.whole(), side)) from error
    if number_kind(array.dtype) is None:
        raise IncomparableError(_no_numbers(str(array.dtype), side))
    return array


def _unreadable(why: Message, side: str) -> Message:
    if not side:
        return Message.of("metrics.unreadable", why=why)
    return Message.of("metrics.side_unreadable", side=side_named(side), why=why)


def _no_numbers(dtype: str, side: str) -> Message:
    if not side:
        return Message.of("metrics.no_numbers", dtype=dtype)
    return Message.of("metrics.side_no_numbers", side=side_named(side), dtype=dtype)


def _measure(golden: Array, target: Array, may_reshape: bool, logits: bool) -> Measurement:
    shape = common_shape(golden.shape, target.shape, may_reshape=may_reshape)
    if shape is None:
        raise IncomparableError(shapes_differ(golden.shape, target.shape))
    golden, target = golden.reshape(shape), target.reshape(shape)
    *sides, errors = measure_elements(golden, target)
    differ = errors.equal < errors.size
    if differ and all(map(_may_be_masked, sides)) and any(is_mask_value(side.minimum) for side in sides):
        unmasked = without_masks(golden, target)
        errors = measure_elements(*unmasked)[2] if unmasked is not None else errors
    kinds = {number_kind(golden.dtype), number_kind(target.dtype)}
    return Measurement(
        MeasurementKind.DATA,
        golden=sides[0],
        target=sides[1],
        errors=errors,
        integers=measure_integers(golden, target) if kinds == {NumberKind.INTEGER} else None,
        logits=measure_logits(golden, target) if logits else None,
        equal=errors.equal == errors.size,
        stored_roundoff=_stored_roundoff(golden, target) if errors.equal < errors.size else None,
        by_row=row_profile(golden, target) if stands_out(errors) else None,
    )


def _stored_roundoff(golden: Array, target: Array) -> float:
    return max(stored_roundoff(golden), stored_roundoff(target))


def _may_be_masked(side: SideSummary) -> bool:
    """Tell whether a tensor has masks; those that are simply -inf on both sides agree as they are."""
    return is_mask_value(side.minimum) or bool(side.negative_infinity)
