"""Measure tensors of which several ranks hold shards, and say which rank is off.

    side by side     the whole is measured; each shard against its part of the other tensor
    the same         each rank is measured; the worst counts
    a sum            the sum is measured; what one rank added to it cannot be told

Where one rank was asked for, what it holds is measured alone: the same as a copy, side by side against its
part of the whole, and of a sum not at all.

Fused tensors are sharded part by part: rank 0 holds the first half of q, k and v each, rank 1 the second. In
what order their columns lie in the other tensor is seen from the values, as where nodes were fused.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.arrays import Load
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.joined import best_arrangement
from firstdrift.metrics.measurement import Measurement, MeasurementKind, RankError
from firstdrift.metrics.ranks.shard_slice import Measure, cut, measure_cut, whole_of
from firstdrift.model.tensor import (
    MAY_BE_ADDEND,
    DataLocation,
    Sharding,
    Shards,
    TensorRecord,
    coarsest_roundoff,
    is_part_of_rank,
    say_addend,
)
from firstdrift.wording.message import Message

_AGREES: Final = 8
"""Roundings by which a sum may be off that is held to be one; no verdict calls so much an error."""

_CLEARLY_BETTER: Final = 0.5
"""Shards are a sum only if adding them up halves the difference."""


def measure_shards(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure a pair of which at least one side has shards; what a dump holds never makes it raise.

    Args:
        golden: the trusted tensor; its shards say what they are to the whole, likewise the target's.
        target: the tensor under suspicion.
        measure: measures a pair of tensors.
        load: reads the values of a tensor; raises TensorUnreadableError where it cannot.
    """
    if any(shards is not None and shards.only is not None for shards in (golden.shards, target.shards)):
        return _measure_one(golden, target, measure, load)
    golden, target = _by_values(golden, target, load), _by_values(target, golden, load)
    each = [_replicas(record) for record in (golden, target)]
    if any(each):
        return _measure_each(golden, target, measure, load, each)
    shards = target.shards or golden.shards
    if shards is None or Sharding.CONCATENATED not in (_sharding(golden), _sharding(target)):
        measured = measure(golden, target, load)
        only = shards.ranks[0] if shards is not None and len(shards.ranks) == 1 else None
        return measured if only is None else replace(measured, by_rank=(RankError(only, error_of(measured)),))
    if golden.location is None or target.location is None:
        measured = measure(golden, target, load)
        return replace(measured, by_rank=tuple(_bounds(golden, target, measured)) or None)
    return _measure_joined(golden, target, measure, load)


def error_of(measured: Measurement) -> float | None:
    """Return how far a pair is off: 0 if equal, infinite if only that is known; None if incomparable."""
    if measured.errors is not None:
        worse = measured.errors.mismatched_nonfinite > 0
        return math.inf if worse else measured.errors.relative_l2
    if measured.differences is not None:
        return math.inf if measured.differences.nonfinite_differs else measured.differences.error_bound
    return None if measured.equal is None else 0.0 if measured.equal else math.inf


def _sharding(record: TensorRecord) -> Sharding | None:
    return record.shards.sharding if record.shards is not None else None


def _replicas(record: TensorRecord) -> Shards | None:
    shards = record.shards
    if shards is None or len(shards.ranks) == 1 or shards.sharding is not Sharding.REPLICATED:
        return None
    return shards


def _by_values(record: TensorRecord, other: TensorRecord, load: Load) -> TensorRecord:
    """Decide by the values whether shards are the same, or parts of a sum."""
    shards = record.shards
    if shards is None or shards.sharding is not Sharding.BY_VALUES:
        return record
    replicated = replace(record, shards=replace(shards, sharding=Sharding.REPLICATED))
    locations = tuple(part.location for part in shards.records if part.location is not None)
    if len(locations) < len(shards.records) or other.location is None:
        return replicated
    try:
        whole = _wide(load(other.location)).ravel()
        parts = [_wide(load(location)).ravel() for location in locations]
    except TensorUnreadableError:
        return replicated
    if any(part.shape != whole.shape for part in parts):
        return replicated
    with np.errstate(all="ignore"):
        apart = min(float(np.linalg.norm(part - whole)) for part in parts)
        added = float(np.linalg.norm(np.sum(parts, axis=0) - whole))
    if not added < _CLEARLY_BETTER * apart:
        return replicated
    location = DataLocation(locations[0].file, "shards", shards=locations)
    return replace(record, location=location, shards=replace(shards, sharding=Sharding.SUMMED))


def _measure_each(
    golden: TensorRecord,
    target: TensorRecord,
    measure: Measure,
    load: Load,
    each: Sequence[Shards | None],
) -> Measurement:
    goldens = each[0].records if each[0] is not None else (golden,)
    targets = each[1].records if each[1] is not None else (target,)
    ranks = (each[1] or each[0] or Shards((), ())).ranks
    if len(goldens) == len(targets):
        pairs = list(zip(goldens, targets, strict=True))
    elif each[1] is not None:
        pairs = [(goldens[0], one) for one in targets]
    else:
        pairs = [(one, targets[0]) for one in goldens]
    measured = [measure(one, other, load) for one, other in pairs]
    by_rank = tuple(RankError(rank, error_of(found)) for rank, found in zip(ranks, measured, strict=True))
    for rank, found in zip(ranks, measured, strict=True):
        if found.kind is MeasurementKind.INCOMPARABLE:
            said = Message.of("metrics.of_rank", rank=rank, reason=found.reason)
            return replace(found, reason=said, by_rank=by_rank)
    worst = max(measured, key=lambda found: _or_zero(error_of(found)))
    return replace(worst, by_rank=by_rank)


def _or_zero(error: float | None) -> float:
    return 0.0 if error is None else math.inf if math.isnan(error) else error


def _measure_joined(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure shards laid side by side, in the order in which the other tensor has them."""
    locations = [location for location in (golden.location, target.location) if location is not None]
    try:
        arrays = {id(location): load(location) for location in locations}
    except TensorUnreadableError as error:
        return Measurement(
            MeasurementKind.INCOMPARABLE, Message.of("metrics.shards_unreadable", why=error.whole())
        )
    sharded = target if _sharding(target) is Sharding.CONCATENATED else golden
    other = golden if sharded is target else target
    shards, place = sharded.shards, sharded.location
    if shards is None or place is None or other.location is None:
        return measure(golden, target, load)
    axis = shards.axis or 0
    sizes = [part.shape[axis] if part.shape else 0 for part in shards.records]
    if arrays[id(place)].shape[axis : axis + 1] != (sum(sizes),):  # the files hold other shapes than recorded
        return measure(golden, target, load)
    order, said = _ordered(arrays[id(place)], arrays[id(other.location)], other, axis, sizes)
    if order is not None:
        arrays[id(place)] = np.take(arrays[id(place)], order, axis=axis)
    measured = measure(
        golden, target, lambda location: arrays[id(location)] if id(location) in arrays else load(location)
    )
    if measured.errors is None:
        return measured
    if not measured.reason and order is not None:
        measured = replace(measured, reason=said)
    if measured.equal:
        return replace(measured, by_rank=tuple(RankError(rank, 0.0) for rank in shards.ranks))
    by_rank = _shard_errors(
        arrays[id(golden.location)], arrays[id(target.location)], sharded is golden, axis, sizes, order
    )
    return replace(measured, by_rank=tuple(map(RankError, shards.ranks, by_rank)) or None)


def _measure_one(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure what one rank holds, against its part of the whole if it is a part."""
    own, other = (target, golden) if target.shards and target.shards.only is not None else (golden, target)
    try:
        if is_part_of_rank(own):
            return _measure_part(own, other, measure, load, own_is_golden=own is golden)
        if own.shards is not None and own.shards.of:
            return _measure_alone(golden, target, measure, load)
        if own.shards is not None and _adds_up(own, other, load):
            return Measurement(MeasurementKind.INCOMPARABLE, say_addend(own.shards))
    except TensorUnreadableError as error:
        return Measurement(
            MeasurementKind.INCOMPARABLE, Message.of("metrics.ranks_unreadable", why=error.whole())
        )
    other = _by_values(other, own, load)
    alone = replace(own, shards=None)
    return (
        measure_shards(other, alone, measure, load)
        if own is target
        else measure_shards(alone, other, measure, load)
    )


def _measure_alone(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure what may be a part of a sum, of which no other is there: it is the sum if it agrees with it."""
    measured = measure(replace(golden, shards=None), replace(target, shards=None), load)
    error = error_of(measured)
    if measured.errors is not None and error is not None:
        error = max(error, measured.errors.worst_row_relative_l2)
    if error is None or error <= _AGREES * coarsest_roundoff(golden.dtype, target.dtype):
        return measured
    return Measurement(MeasurementKind.INCOMPARABLE, MAY_BE_ADDEND)


def _adds_up(own: TensorRecord, other: TensorRecord, load: Load) -> bool:
    """Tell whether the values of all ranks say that each holds a part of a sum.

    Raises:
        TensorUnreadableError: those of one cannot be read.
    """
    shards = own.shards
    if shards is None or _sharding(own) is not Sharding.BY_VALUES or other.location is None:
        return False
    for part in shards.records:
        if part.location is not None:
            load(part.location)
    settled = _by_values(own, other, load)
    return _sharding(settled) is Sharding.SUMMED


def _measure_part(
    own: TensorRecord, other: TensorRecord, measure: Measure, load: Load, *, own_is_golden: bool
) -> Measurement:
    """Measure a part against that of the whole, which is found by laying all parts over it.

    Raises:
        TensorUnreadableError: the values of one cannot be read.
    """
    whole, shards = whole_of(own), own.shards
    if shards is None or whole.location is None or other.location is None:
        return Measurement(MeasurementKind.INCOMPARABLE, Message.of("metrics.part_unknown"))
    laid, over = load(whole.location), load(other.location)
    axis = shards.axis or 0
    sizes = [part.shape[axis] if part.shape else 0 for part in shards.records]
    fits = laid.shape[axis : axis + 1] == (sum(sizes),)
    order, said = _ordered(laid, over, other, axis, sizes) if fits else (None, None)
    parts = cut(laid if order is None else np.take(laid, order, axis=axis), over, shards, order)
    if parts is None:
        why = Message.of("metrics.shards_and_whole", shards=laid.shape, whole=over.shape)
        return Measurement(MeasurementKind.INCOMPARABLE, why)
    measured = measure_cut(own, other, parts, measure, own_is_golden=own_is_golden)
    reason = measured.reason or (said if order is not None else None)
    return replace(measured, reason=reason) if measured.errors is not None else measured


def _ordered(
    joined: Array, whole: Array, other: TensorRecord, axis: int, sizes: list[int]
) -> tuple[Array | None, Message | None]:
    """Return in which order shards lie in the whole; None if as they are, or both sides have shards."""
    return (None, None) if _sharding(other) is Sharding.CONCATENATED else _arrange(joined, whole, axis, sizes)


def _arrange(joined: Array, whole: Array, axis: int, sizes: list[int]) -> tuple[Array | None, Message | None]:
    if axis == joined.ndim - 1:
        return best_arrangement(joined, whole, -1, _arrangements(sizes))
    if axis == 0:
        return best_arrangement(joined, whole, 0, _arrangements(sizes))
    return None, None


def _arrangements(sizes: list[int]) -> Iterator[tuple[Array, Message]]:
    """Yield the orders in which parts that were fused before they were sharded lie in the whole."""
    size = sizes[0]
    if len(set(sizes)) != 1:
        return
    for parts in _fused(size):
        starts = np.cumsum([0, *parts[:-1]])
        order = [
            np.arange(start, start + part) + rank * size
            for start, part in zip(starts, parts, strict=True)
            for rank in range(len(sizes))
        ]
        yield np.concatenate(order), Message.of("metrics.by_fused_parts", sizes=parts)


def _fused(size: int) -> Iterator[tuple[int, ...]]:
    """Yield how a shard of a fused tensor may be made up: gate and up, or q, k and v for groups of heads."""
    if size % 2 == 0:
        yield size // 2, size // 2
    for queries in range(1, size - 1):
        if size % (queries + 2) == 0:
            part = size // (queries + 2)
            yield queries * part, part, part


def _shard_errors(
    golden: Array, target: Array, golden_is_sharded: bool, axis: int, sizes: list[int], order: Array | None
) -> list[float]:
    """Return the relative L2 error of what each rank holds."""
    shape = (golden if golden_is_sharded else target).shape
    if golden.size != target.size:
        return []
    first, second = _wide(golden).reshape(shape), _wide(target).reshape(shape)
    if order is not None:
        back = np.argsort(order)
        first, second = np.take(first, back, axis=axis), np.take(second, back, axis=axis)
    bounds = np.cumsum(sizes)[:-1]
    parts = zip(np.split(first, bounds, axis=axis), np.split(second, bounds, axis=axis), strict=True)
    return [_relative(one, other) for one, other in parts]


def _relative(golden: Array, target: Array) -> float:
    with np.errstate(all="ignore"):
        same = (golden == target) | (np.isnan(golden) & np.isnan(target))
        difference = float(np.linalg.norm(np.where(same, 0, target - golden)))
        norm = float(np.linalg.norm(np.where(same & ~np.isfinite(golden), 0, golden)))
    if difference == 0:
        return 0.0
    error = difference / norm if norm else math.inf
    return math.inf if math.isnan(error) else error


def _bounds(golden: TensorRecord, target: TensorRecord, measured: Measurement) -> Iterator[RankError]:
    """Say how far each shard is off at least: by how much it exceeds the whole that it is a part of."""
    sharded, whole = (target, golden) if _sharding(target) is Sharding.CONCATENATED else (golden, target)
    both = _sharding(golden) is _sharding(target)
    bound = whole.statistics
    if sharded.shards is None or bound is None or both:
        return
    if measured.equal:
        yield from (RankError(rank, 0.0) for rank in sharded.shards.ranks)
        return
    if not bound.norm or not math.isfinite(bound.norm):
        return
    for rank, shard in zip(sharded.shards.ranks, sharded.shards.records, strict=True):
        known = shard.statistics
        if known is None:
            continue
        over = [
            high - low
            for high, low in (
                (known.maximum, bound.maximum),
                (bound.minimum, known.minimum),
                (known.norm, bound.norm),
            )
            if high is not None and low is not None
        ]
        finite = [max(0.0, each) for each in over if math.isfinite(each)]
        yield RankError(rank, max(finite) / bound.norm if finite else None)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
