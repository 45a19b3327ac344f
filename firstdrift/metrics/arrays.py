"""Measure tensors by their values."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.bits import comparison_of
from firstdrift.metrics.comparability import IncomparableError, Shape, common_shape, shapes_differ
from firstdrift.metrics.dtypes import Array, NumberKind, number_kind
from firstdrift.metrics.elementwise.measure import Elements, compare_elements, measure_elements, summarise
from firstdrift.metrics.elementwise.rows import profile_of, row_profile, stands_out
from firstdrift.metrics.integers import measure_integers
from firstdrift.metrics.logits import measure_logits
from firstdrift.metrics.masks import is_mask_value, masked_on_both_sides
from firstdrift.metrics.measurement import (
    Measurement,
    MeasurementKind,
    PairErrors,
    RowProfile,
    SideSummary,
)
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
        raise IncomparableError(_said("unreadable", side, why=error.whole())) from error
    if number_kind(array.dtype) is None:
        raise IncomparableError(_said("no_numbers", side, dtype=str(array.dtype)))
    return array


def _said(what: str, side: str, **gaps: Message | str) -> Message:
    if not side:
        return Message.of(f"metrics.{what}", **gaps)
    return Message.of(f"metrics.side_{what}", side=side_named(side), **gaps)


def _measure(golden: Array, target: Array, may_reshape: bool, logits: bool) -> Measurement:
    shape = common_shape(golden.shape, target.shape, may_reshape=may_reshape)
    if shape is None:
        raise IncomparableError(shapes_differ(golden.shape, target.shape))
    own_shape = target.shape
    golden, target = golden.reshape(shape), target.reshape(shape)
    found = compare_elements(golden, target)
    errors = found.errors
    if errors.equal < errors.size and any(map(is_mask_value, (found.golden.minimum, found.target.minimum))):
        errors = _unmasked_errors(golden, target) or errors
    is_equal = errors.equal == errors.size
    return Measurement(
        MeasurementKind.DATA,
        golden=found.golden,
        target=found.target,
        errors=errors,
        integers=measure_integers(golden, target) if _are(NumberKind.INTEGER, golden, target) else None,
        logits=measure_logits(golden, target) if logits else None,
        equal=is_equal,
        stored_roundoff=None if is_equal else found.roundoff,
        by_row=_by_row(golden, target, found) if stands_out(errors) else None,
        bits=comparison_of(golden, target, found.differs_at, own_shape),
    )


def _by_row(golden: Array, target: Array, found: Elements) -> RowProfile | None:
    if found.errors.mismatched_nonfinite:
        return row_profile(golden, target)
    return profile_of(found.row_squared_difference, found.row_squared_golden)


def _are(kind: NumberKind, golden: Array, target: Array) -> bool:
    return number_kind(golden.dtype) is number_kind(target.dtype) is kind


def _unmasked_errors(golden: Array, target: Array) -> PairErrors | None:
    """Measure with elements masked on both sides as -inf; None if there are none.

    Only floating-point tensors have masks: -65504 among integers is a number like any other.
    """
    if not _are(NumberKind.FLOATING, golden, target):
        return None
    masked = masked_on_both_sides(_as_float64(golden), _as_float64(target))
    return measure_elements(_filled(golden, masked), _filled(target, masked))[2] if masked.any() else None


def _as_float64(array: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float64)


def _filled(array: Array, masked: Array) -> Array:
    copy = array.copy()
    copy[masked] = -np.inf
    return copy
