"""Measure one pair of tensors, by whatever was recorded of the two.

data and data                   element by element
statistics and statistics       by their differences; data stands in for statistics
digest and digest               equal or not
scalar and scalar               equal or not
empty and empty                 equal if their shapes are, whatever was recorded
anything else                   incomparable, and why
"""

import itertools
import math
import operator
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.digests import measure_digests, measure_scalars
from firstdrift.metrics.dtypes import Array, NumberKind, number_kind
from firstdrift.metrics.elementwise import measure_elements, summarise
from firstdrift.metrics.integers import measure_integers
from firstdrift.metrics.logits import measure_logits
from firstdrift.metrics.masks import is_mask_value, without_masks
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.metrics.statistics import measure_statistics
from firstdrift.tensors import DataLocation, TensorRecord

Load: TypeAlias = Callable[[DataLocation], Array]
Shape: TypeAlias = tuple[int, ...]


def measure_pair(
    golden: TensorRecord, target: TensorRecord, load: Load, transform: str = "", logits: bool = False
) -> Measurement:
    """Measure a golden tensor against a target tensor; what a dump holds never makes it raise.

    Args:
        golden: the trusted tensor.
        target: the tensor under suspicion.
        load: reads the values of a tensor; raises TensorUnreadableError where it cannot.
        transform: not empty if the tensors may be reshaped to each other, whatever their shapes.
        logits: whether the last dimension is the vocabulary.
    """
    try:
        return _measure(golden, target, load, transform, logits)
    except _IncomparableError as error:
        return Measurement(MeasurementKind.INCOMPARABLE, str(error))


def common_shape(golden: Shape, target: Shape, transform: str = "") -> Shape | None:
    """Return the shape to which both tensors can be reshaped for comparison, or None.

    Dimensions of size 1 do not count, and neighbouring dimensions may be merged on one side:
    [1, 5, 896] and [5, 896] give [5, 896], and so do [5, 14, 64] and [5, 896]. With a transform any
    shapes of one size will do, and the target's is taken.
    """
    if golden == target:
        return golden
    if math.prod(golden) != math.prod(target):
        return None
    left, right = (tuple(size for size in shape if size != 1) for shape in (golden, target))
    coarse, fine = sorted((left, right), key=len)
    if set(_ends(coarse)) <= set(_ends(fine)):
        return coarse
    return target if transform else None


class _IncomparableError(Exception):
    """The two cannot be compared; the text says why."""


def _measure(
    golden: TensorRecord, target: TensorRecord, load: Load, transform: str, logits: bool
) -> Measurement:
    for side, record in (("golden", golden), ("target", target)):
        if record.problem is not None:
            raise _IncomparableError(f"{side}: {record.problem}")
    if golden.is_tensor != target.is_tensor:
        raise _IncomparableError(f"{_describe(golden)} against {_describe(target)}")
    if not golden.is_tensor:
        return measure_scalars(golden, target)
    if golden.location and target.location:
        return _measure_data(
            _load(golden.location, "golden", load), _load(target.location, "target", load), transform, logits
        )
    _require_common_size(golden.shape, target.shape)
    if golden.shape is not None and target.shape is not None and math.prod(golden.shape) == 0:
        return _measure_data(_empty(golden), _empty(target), transform, logits=False)
    if golden.statistics and target.statistics:
        return _with_digests(measure_statistics(golden, target), golden, target)
    if golden.digest and target.digest:
        return measure_digests(golden, target)
    return measure_statistics(_statistics(golden, "golden", load), _statistics(target, "target", load))


def _ends(shape: Shape) -> Shape:
    return tuple(itertools.accumulate(shape, operator.mul))


def _describe(record: TensorRecord) -> str:
    return "a tensor" if record.is_tensor else f"the {record.dtype or 'scalar'} {record.scalar}"


def _load(location: DataLocation, side: str, load: Load) -> Array:
    try:
        array = load(location)
    except TensorUnreadableError as error:
        raise _IncomparableError(f"the data of the {side} side could not be read: {error}") from error
    if number_kind(array.dtype) is None:
        raise _IncomparableError(f"the data of the {side} side are of dtype {array.dtype}, not numbers")
    return array


def _measure_data(golden: Array, target: Array, transform: str, logits: bool) -> Measurement:
    shape = common_shape(golden.shape, target.shape, transform)
    if shape is None:
        raise _IncomparableError(f"shapes differ: {list(golden.shape)} and {list(target.shape)}")
    golden, target = golden.reshape(shape), target.reshape(shape)
    golden_side, target_side, errors = measure_elements(golden, target)
    if errors.equal < errors.size and (unmasked := _unmasked(golden, target, golden_side, target_side)):
        errors = measure_elements(*unmasked)[2]
    kinds = {number_kind(golden.dtype), number_kind(target.dtype)}
    return Measurement(
        MeasurementKind.DATA,
        golden=golden_side,
        target=target_side,
        errors=errors,
        integers=measure_integers(golden, target) if kinds == {NumberKind.INTEGER} else None,
        logits=measure_logits(golden, target) if logits else None,
        equal=errors.equal == errors.size,
    )


def _unmasked(
    golden: Array, target: Array, golden_side: SideSummary, target_side: SideSummary
) -> tuple[Array, Array] | None:
    """Return the tensors without their masks, where both have masks, and not simply -inf both."""
    finite = [is_mask_value(side.minimum) for side in (golden_side, target_side)]
    infinite = [bool(side.negative_infinity) for side in (golden_side, target_side)]
    if any(finite) and (finite[0] or infinite[0]) and (finite[1] or infinite[1]):
        return without_masks(golden, target)
    return None


def _require_common_size(golden: Shape | None, target: Shape | None) -> None:
    # Neither statistics nor digests depend on how the same elements are arranged in dimensions.
    if golden is not None and target is not None and math.prod(golden) != math.prod(target):
        raise _IncomparableError(f"shapes differ: {list(golden)} and {list(target)}")


def _statistics(record: TensorRecord, side: str, load: Load) -> TensorRecord | SideSummary:
    if record.statistics:
        return record
    if record.location:
        return summarise(_load(record.location, side, load))
    held = "only a digest" if record.digest else "nothing but its shape and dtype"
    raise _IncomparableError(f"no values were recorded: the {side} side has {held}")


def _empty(record: TensorRecord) -> Array:
    """Return the data of an empty tensor, of which no tool records any: its shape says it all."""
    return np.empty(record.shape or (0,), np.float32)


def _with_digests(measured: Measurement, golden: TensorRecord, target: TensorRecord) -> Measurement:
    """Let digests overrule statistics that agree by chance."""
    if not measured.equal or not golden.digest or not target.digest:
        return measured
    digests = measure_digests(golden, target)
    if digests.equal is not False:
        return measured
    return replace(measured, equal=False, reason="the statistics agree, the digests do not")
