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
from firstdrift.groups import known
from firstdrift.metrics.arrangement import CLEARLY_BETTER
from firstdrift.metrics.arrays import Load, held_or
from firstdrift.metrics.conversion import widened
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.measurement import Measurement, MeasurementKind, RankError, incomparable
from firstdrift.metrics.ranks.shard_slice import Layout, Measure, cut, measure_cut, whole_of
from firstdrift.model.tensor import (
    MAY_BE_ADDEND,
    DataLocation,
    Sharding,
    Shards,
    Statistics,
    TensorRecord,
    coarsest_roundoff,
    is_part_of_rank,
    say_addend,
    shared_location,
)
from firstdrift.wording.message import Message

_AGREES: Final = 8
"""Roundings by which a sum may be off that is held to be one; no verdict calls so much an error."""

_NO_SHARDS: Final = Shards((), ())


def measure_shards(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure a pair of which at least one side has shards; what a dump holds never makes it raise."""
    if any(map(_is_of_one_rank, (golden, target))):
        return _measure_one(golden, target, measure, load)
    golden, target = sides = _by_values(golden, target, load), _by_values(target, golden, load)
    if any(map(_are_copies, sides)):
        return _measure_each(golden, target, measure, load)
    if Sharding.CONCATENATED not in map(_sharding, sides):
        return _with_lone_rank(measure(golden, target, load), target.shards or _shards(golden))
    if None in (golden.location, target.location):
        measured = measure(golden, target, load)
        return replace(measured, by_rank=tuple(_bounds(golden, target, measured)) or None)
    return _measure_joined(golden, target, measure, load)


def error_of(measured: Measurement) -> float | None:
    """Return how far a pair is off: 0 if equal, infinite if only that is known; None if incomparable."""
    if (errors := measured.errors) is not None:
        return math.inf if errors.mismatched_nonfinite else errors.relative_l2
    if (differences := measured.differences) is not None:
        return math.inf if differences.nonfinite_differs else differences.error_bound
    return {None: None, True: 0.0, False: math.inf}[measured.equal]


def _sharding(record: TensorRecord) -> Sharding | None:
    return _shards(record).sharding


def _shards(record: TensorRecord) -> Shards:
    """Return what ranks hold of a tensor: nothing, if it has no shards."""
    return record.shards or _NO_SHARDS


def _is_of_one_rank(record: TensorRecord) -> bool:
    return _shards(record).only is not None


def _are_copies(record: TensorRecord) -> bool:
    return len(_shards(record).ranks) > 1 and _sharding(record) is Sharding.REPLICATED


def _with_lone_rank(measured: Measurement, shards: Shards) -> Measurement:
    if len(shards.ranks) != 1:
        return measured
    return replace(measured, by_rank=(RankError(shards.ranks[0], error_of(measured)),))


def _by_values(record: TensorRecord, other: TensorRecord, load: Load) -> TensorRecord:
    """Decide by the values whether shards are the same, or parts of a sum."""
    shards = _shards(record)
    if shards.sharding is not Sharding.BY_VALUES:
        return record
    parts = shards.locations
    known = other.location if len(parts) == len(shards.records) else None
    if known is None or not _is_sum(parts, known, load):
        return replace(record, shards=replace(shards, sharding=Sharding.REPLICATED))
    summed = replace(shards, sharding=Sharding.SUMMED)
    return replace(record, location=shared_location(parts, None), shards=summed)


def _is_sum(parts: Sequence[DataLocation], whole: DataLocation, load: Load) -> bool:
    """Tell whether adding up tensors brings them clearly nearer to another than the nearest of them."""
    try:
        wanted = widened(load(whole)).ravel()
        addends = [widened(load(part)).ravel() for part in parts]
    except TensorUnreadableError:
        return False
    if any(addend.shape != wanted.shape for addend in addends):
        return False
    with np.errstate(all="ignore"):
        apart = min(float(np.linalg.norm(addend - wanted)) for addend in addends)
        added = float(np.linalg.norm(np.sum(addends, axis=0) - wanted))
    return added < CLEARLY_BETTER * apart


def _measure_each(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure the copies of all ranks; the worst counts."""
    ranks = _shards(target if _are_copies(target) else golden).ranks
    pairs = zip(_copies(golden, len(ranks)), _copies(target, len(ranks)), strict=True)
    measured = [measure(*pair, load) for pair in pairs]
    by_rank = tuple(map(RankError, ranks, map(error_of, measured)))
    for rank, found in zip(ranks, measured, strict=True):
        if found.kind is MeasurementKind.INCOMPARABLE:
            why = Message.of("metrics.of_rank", rank=rank, reason=found.reason)
            return replace(found, reason=why, by_rank=by_rank)
    worst = max(measured, key=lambda found: (_or_zero(error_of(found)), _has_other_bits(found)))
    return replace(worst, by_rank=by_rank)


def _copies(record: TensorRecord, count: int) -> tuple[TensorRecord, ...]:
    """Return the copies of a tensor, so many; the first counts for all where there are more or fewer."""
    copies = _shards(record).records if _are_copies(record) else (record,)
    return copies if len(copies) == count else copies[:1] * count


def _has_other_bits(measured: Measurement) -> bool:
    return measured.bits is not None and measured.bits.index is not None


def _or_zero(error: float | None) -> float:
    return 0.0 if error is None else math.inf if math.isnan(error) else error


def _measure_joined(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure shards laid side by side, in the order in which the other tensor has them."""
    locations = known(record.location for record in (golden, target))
    try:
        arrays = list(map(load, locations))
    except TensorUnreadableError as error:
        return incomparable(Message.of("metrics.shards_unreadable", why=error.whole()))
    at = int(_sharding(target) is Sharding.CONCATENATED)
    shards, other = _shards((golden, target)[at]), (target, golden)[at]
    layout = Layout.of(shards)
    if not layout.fits(arrays[at]):
        return measure(golden, target, load)
    order, how = _ordered(layout, arrays[at], arrays[1 - at], other)
    arrays[at] = layout.taken(arrays[at], order)
    held = dict(zip(map(id, locations), arrays, strict=True))
    measured = measure(golden, target, held_or(load, held)).remarked(how)
    if measured.errors is None:
        return measured
    by_rank = _shard_errors(arrays, arrays[at].shape, layout, order, equal=bool(measured.equal))
    return replace(measured, by_rank=tuple(map(RankError, shards.ranks, by_rank)) or None)


def _measure_one(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure what one rank holds, against its part of the whole if it is a part."""
    own, other = (target, golden) if _is_of_one_rank(target) else (golden, target)
    shards = _shards(own)
    try:
        if is_part_of_rank(own):
            return _measure_part(own, other, measure, load, own_is_golden=own is golden)
        if shards.of:
            return _measure_alone(golden, target, measure, load)
        if _adds_up(own, other, load):
            return incomparable(say_addend(shards))
    except TensorUnreadableError as error:
        return incomparable(Message.of("metrics.ranks_unreadable", why=error.whole()))
    alone, other = replace(own, shards=None), _by_values(other, own, load)
    return measure_shards(*((other, alone) if own is target else (alone, other)), measure, load)


def _measure_alone(golden: TensorRecord, target: TensorRecord, measure: Measure, load: Load) -> Measurement:
    """Measure what may be a part of a sum, of which no other is there: it is the sum if it agrees with it."""
    measured = measure(replace(golden, shards=None), replace(target, shards=None), load)
    error = error_of(measured)
    if measured.errors is not None and error is not None:
        error = max(error, measured.errors.worst_row_relative_l2)
    if error is None or error <= _AGREES * coarsest_roundoff(golden.dtype, target.dtype):
        return measured
    return incomparable(MAY_BE_ADDEND)


def _adds_up(own: TensorRecord, other: TensorRecord, load: Load) -> bool:
    """Tell whether the values of all ranks say that each holds a part of a sum.

    Raises:
        TensorUnreadableError: those of one cannot be read.
    """
    if _sharding(own) is not Sharding.BY_VALUES or other.location is None:
        return False
    for location in _shards(own).locations:
        load(location)
    return _sharding(_by_values(own, other, load)) is Sharding.SUMMED


def _measure_part(
    own: TensorRecord, other: TensorRecord, measure: Measure, load: Load, *, own_is_golden: bool
) -> Measurement:
    """Measure a part against that of the whole, which is found by laying all parts over it.

    Raises:
        TensorUnreadableError: the values of one cannot be read.
    """
    whole, shards = whole_of(own), _shards(own)
    if whole.location is None or other.location is None:
        return incomparable(Message.of("metrics.part_unknown"))
    laid, over, layout = load(whole.location), load(other.location), Layout.of(shards)
    order, how = _ordered(layout, laid, over, other) if layout.fits(laid) else (None, None)
    parts = cut(layout.taken(laid, order), over, shards, order)
    if parts is None:
        return incomparable(Message.of("metrics.shards_and_whole", shards=laid.shape, whole=over.shape))
    return measure_cut(own, other, parts, measure, own_is_golden=own_is_golden).remarked(how)


def _ordered(
    layout: Layout, laid: Array, whole: Array, other: TensorRecord
) -> tuple[Array | None, Message | None]:
    """Return in which order shards lie in the whole, and how; None if as they are, or both have shards."""
    if _sharding(other) is Sharding.CONCATENATED:
        return None, None
    order, how = layout.ordered(laid, whole)
    return order, None if order is None else how


def _shard_errors(
    arrays: Sequence[Array], shape: tuple[int, ...], layout: Layout, order: Array | None, *, equal: bool
) -> list[float]:
    """Return the relative L2 error of what each rank holds of a golden and a target tensor."""
    if equal:
        return [0.0] * len(layout.sizes)
    if arrays[0].size != arrays[1].size:
        return []
    back = None if order is None else np.argsort(order)
    bounds = np.cumsum(layout.sizes)[:-1]
    golden, target = (
        np.split(layout.taken(widened(array).reshape(shape), back), bounds, axis=layout.axis)
        for array in arrays
    )
    return list(map(_relative, golden, target))


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
    shards, bound = _shards(sharded), whole.statistics
    if bound is None or _sharding(golden) is _sharding(target):
        return
    if measured.equal:
        yield from (RankError(rank, 0.0) for rank in shards.ranks)
    elif bound.norm and math.isfinite(bound.norm):
        for rank, shard in zip(shards.ranks, shards.records, strict=True):
            if shard.statistics is not None:
                yield RankError(rank, _excess(shard.statistics, bound, bound.norm))


def _excess(part: Statistics, whole: Statistics, norm: float) -> float | None:
    """Return by how much of a norm a part exceeds the whole; None if that cannot be told."""
    ends = ((part.maximum, whole.maximum), (whole.minimum, part.minimum), (part.norm, whole.norm))
    over = [high - low for high, low in ends if high is not None and low is not None]
    return max((max(0.0, each) / norm for each in over if math.isfinite(each)), default=None)
