"""Measure a tensor that was fused against the parts it was fused from.

    q [.., 64], k [.., 32], v [.., 32]  against  qkv [.., 128], which may lie there as

    qqqqkkvv    one after another
    qqkvqqkv    one after another in each of 2 groups (of key/value heads)
    qqqqkvkv    the first apart, the others so

How it lies there is seen from the values: the arrangement under which the two differ least, if a witness
lies so too: the weight, or the same tensor of another layer. Without one, parts lie one after another.
Statistics do not depend on it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.arrangement import best_arrangement, in_turns
from firstdrift.metrics.arrays import Load, held_or
from firstdrift.metrics.comparability import DoNotFitError, ReasonedError, shapes_against, shapes_of
from firstdrift.metrics.conversion import alike, widened
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.experts.expert_rows import stack_experts
from firstdrift.metrics.experts.stacked_weights import stack_weights
from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import Measurement, incomparable
from firstdrift.metrics.part_errors import errors_of_parts
from firstdrift.metrics.ranks.shard_slice import cut, measure_cut, whole_of
from firstdrift.metrics.rearrangement import are_witnessed, rearranged
from firstdrift.metrics.rotation import DoesNotRotateError, rotated_as
from firstdrift.model.tensor import DataLocation, Parts, Role, TensorRecord, is_part_of_rank
from firstdrift.wording.message import Message

_JOINED: Final = DataLocation(Path(), "joined")
"""Where a joined tensor lies: in memory."""


class Joined(NamedTuple):
    """A tensor that was joined from parts.

    Attributes:
        array: the elements.
        how: how they lie there; None where that was not seen from the values.
        labels: of which part an element is, as `errors_of_parts` takes them; None if it is of several.
    """

    array: Array
    how: Message | None = None
    labels: Array | None = None


def measure_joined(
    golden: TensorRecord, target: TensorRecord, parts: Parts, load: Load, may_reshape: bool
) -> Measurement:
    """Measure a pair of which one tensor is joined from parts; what a dump holds never makes it raise."""
    if any(part.location is None or part.problem is not None for part in parts.records):
        return measure_pair(golden, target, load, may_reshape)
    own = target if parts.are_golden else golden
    whole = whole_of(own).location
    try:
        held = {} if whole is None else {id(whole): load(whole)}
        laid = held.get(id(whole))
        joined = _join(parts, laid, load)
    except ReasonedError as error:
        return incomparable(_why(error))
    except TensorUnreadableError as error:
        return incomparable(Message.of("metrics.parts_unreadable", why=error.whole()))
    if is_part_of_rank(own):
        return _measure_part(own, joined.array, laid, parts, may_reshape).remarked(joined.how)
    if parts.are_golden:
        golden = replace(golden, location=_JOINED)
    else:
        target = replace(target, location=_JOINED)
    held_by_id = held_or(load, {id(_JOINED): joined.array} | held)
    measured = measure_pair(golden, target, held_by_id, may_reshape).remarked(joined.how)
    return measured if laid is None else _with_parts(measured, joined, laid, parts)


def _with_parts(measured: Measurement, joined: Joined, laid: Array, parts: Parts) -> Measurement:
    """Add how far each part is off."""
    if measured.errors is None or measured.equal or joined.labels is None or laid.size != joined.array.size:
        return measured
    whole = laid.reshape(joined.array.shape)
    golden, target = (joined.array, whole) if parts.are_golden else (whole, joined.array)
    errors = errors_of_parts(golden, target, joined.labels, len(parts.records))
    return replace(measured, by_part=errors)


def _why(error: ReasonedError) -> Message:
    if isinstance(error, DoesNotRotateError):
        return Message.of("metrics.not_rotated", why=error.message)
    return Message.of("metrics.parts_do_not_fit", why=error.message)


def _measure_part(
    own: TensorRecord, joined: Array, laid: Array | None, parts: Parts, may_reshape: bool
) -> Measurement:
    """Measure what one rank holds of a fused tensor against its part of what was joined."""
    pieces = cut(laid, joined, own.shards) if laid is not None and own.shards is not None else None
    if pieces is None:
        return incomparable(Message.of("metrics.part_unknown"))
    measure = partial(measure_pair, may_reshape=may_reshape)
    return measure_cut(own, parts.records[0], pieces, measure, own_is_golden=not parts.are_golden)


def load_joined(parts: Parts, whole: Array, load: Load) -> Joined:
    """Load the parts of a pair, and join them as the whole, the tensor on the other side, has them.

    Raises:
        TensorUnreadableError: one of them cannot be read, or they do not join.
    """
    try:
        return _join(parts, whole, load)
    except ReasonedError as error:
        raise TensorUnreadableError(Message.of("metrics.parts_unreadable", why=error.message)) from error


def _loaded(records: Iterable[TensorRecord], load: Load) -> list[Array]:
    return [load(record.location) for record in records if record.location is not None]


def _join(parts: Parts, whole: Array | None, load: Load) -> Joined:
    if parts.rearranged:
        witnesses = partial(_loaded, parts.records[1:], load) if parts.records[1:] else None
        is_given = parts.records[0].role is Role.INPUT
        (array,) = _loaded(parts.records[:1], load)
        return Joined(*rearranged(array, whole, witnesses, is_given=is_given))
    arrays = _loaded(parts.records, load)
    if parts.rotated and whole is not None:
        return Joined(*rotated_as(arrays[0], arrays[1], arrays[2], whole))
    if parts.of_experts:
        return Joined(*stack_experts(arrays, whole, in_turns))
    if parts.stacked:
        return Joined(*stack_weights(arrays, whole, in_turns))
    return (
        _sum(arrays) if parts.summed else _concatenate(arrays, whole, partial(_loaded_witnesses, parts, load))
    )


def _sum(arrays: Sequence[Array]) -> Joined:
    if len({array.shape for array in arrays}) != 1:
        raise DoNotFitError(Message.of("metrics.shapes_are", shapes=shapes_of(arrays)))
    return Joined(reduce(np.add, map(widened, arrays)))


def _loaded_witnesses(parts: Parts, load: Load) -> Iterator[Array]:
    """Yield what has to be arranged alike, parts side by side, then the whole; not what cannot be read."""
    for *records, whole in parts.witnesses:
        with suppress(ReasonedError, TensorUnreadableError):
            arrays, laid = _loaded(records, load), _loaded([whole_of(whole)], load)
            yield from (np.concatenate(alike(arrays), axis=_axis(arrays, laid[0].shape)), laid[0])


def _concatenate(
    arrays: Sequence[Array], whole: Array | None, witnesses: Callable[[], Iterable[Array]]
) -> Joined:
    """Lay parts side by side along the last or first dimension, as the whole and witnesses are arranged."""
    axis = _axis(arrays, None if whole is None else whole.shape)
    joined = np.concatenate(alike(arrays), axis=axis)
    sizes = [array.shape[axis] for array in arrays]
    labels = np.repeat(np.arange(len(arrays)), sizes)
    along = [1] * joined.ndim
    along[axis] = len(labels)
    if whole is None:
        return Joined(joined)
    order, how = best_arrangement(joined, whole, axis, in_turns(sizes))
    if order is not None and not are_witnessed(order, list(witnesses())):
        order, how = None, Message.of("metrics.arranged", how=Message.of("metrics.in_sequence"))
    if order is None:
        return Joined(joined, how, labels.reshape(along))
    return Joined(np.take(joined, order, axis=axis), how, labels[order].reshape(along))


def _axis(arrays: Sequence[Array], whole: tuple[int, ...] | None) -> int:
    """Return the dimension, last or first, along which the parts have the size of the whole."""
    are_alike = len({array.ndim for array in arrays}) == 1 and arrays[0].ndim
    for axis in (-1, 0) if are_alike else ():
        if _lie_along(arrays, axis, whole):
            return axis
    raise DoNotFitError(shapes_against(arrays, whole or ()))


def _lie_along(arrays: Sequence[Array], axis: int, whole: tuple[int, ...] | None) -> bool:
    others = {tuple(np.delete(array.shape, axis).tolist()) for array in arrays}
    length = sum(array.shape[axis] for array in arrays)
    return len(others) == 1 and (whole is None or _ends_with(whole, axis, length))


def _ends_with(whole: tuple[int, ...], axis: int, length: int) -> bool:
    sizes = (size for size in (whole[::-1] if axis else whole) if size != 1)
    return bool(whole) and next(sizes, 1) == length
