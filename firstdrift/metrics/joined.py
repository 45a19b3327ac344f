"""Measure a tensor that was fused against the parts it was fused from.

    q [.., 64], k [.., 32], v [.., 32]  against  qkv [.., 128], which may lie there as

    qqqqkkvv    one after another
    qqkvqqkv    one after another in each of 2 groups (of key/value heads)
    qqqqkvkv    the first apart, the others so

How it lies there is seen from the values: the arrangement under which the two differ least. Statistics
do not depend on it.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from math import gcd
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.arrays import Load
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.experts.expert_rows import stack_experts
from firstdrift.metrics.experts.stacked_weights import stack_weights
from firstdrift.metrics.fitting import DoNotFitError, shapes_against, shapes_of
from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.metrics.ranks.shard_slice import cut, measure_cut, whole_of
from firstdrift.metrics.rotation import DoesNotRotateError, rotated_as
from firstdrift.model.parts import Parts
from firstdrift.model.tensor import DataLocation, TensorRecord, is_part_of_rank
from firstdrift.wording.message import Message

_JOINED: Final = DataLocation(Path(), "joined")
"""Where a joined tensor lies: in memory."""

_ROWS_LOOKED_AT: Final = 64
_CLEARLY_BETTER: Final = 0.5
"""Another arrangement is taken only if it halves the difference: rounding makes none look better."""


def measure_joined(
    golden: TensorRecord, target: TensorRecord, parts: Parts, load: Load, may_reshape: bool
) -> Measurement:
    """Measure a pair of which one tensor is joined from parts; what a dump holds never makes it raise.

    Args:
        golden: the trusted tensor; if it is joined, without location.
        target: the tensor under suspicion, likewise.
        parts: what one of the two is joined from.
        load: reads the values of a tensor; raises TensorUnreadableError where it cannot.
        may_reshape: whether the tensors may be reshaped to each other, whatever their shapes.
    """
    if any(part.location is None or part.problem is not None for part in parts.records):
        return measure_pair(golden, target, load, may_reshape)
    own = target if parts.are_golden else golden
    whole = whole_of(own)
    try:
        arrays = [load(part.location) for part in parts.records if part.location is not None]
        loaded = load(whole.location) if whole.location is not None else None
        joined, said = _join(parts, arrays, loaded)
    except DoesNotRotateError as error:
        return _incomparable(Message.of("metrics.not_rotated", why=error.message))
    except DoNotFitError as error:
        return _incomparable(Message.of("metrics.parts_do_not_fit", why=error.message))
    except TensorUnreadableError as error:
        return _incomparable(Message.of("metrics.parts_unreadable", why=error.whole()))

    if is_part_of_rank(own):
        return _measure_part(own, (joined, said), loaded, parts, may_reshape)

    def load_joined(location: DataLocation) -> Array:
        if location is _JOINED:
            return joined
        return loaded if loaded is not None and location is whole.location else load(location)

    if parts.are_golden:
        golden = replace(golden, location=_JOINED)
    else:
        target = replace(target, location=_JOINED)
    measured = measure_pair(golden, target, load_joined, may_reshape)
    return replace(measured, reason=measured.reason or said) if measured.errors is not None else measured


def _incomparable(why: Message) -> Measurement:
    return Measurement(MeasurementKind.INCOMPARABLE, why)


def _measure_part(
    own: TensorRecord,
    joined: tuple[Array, Message | None],
    loaded: Array | None,
    parts: Parts,
    may_reshape: bool,
) -> Measurement:
    """Measure what one rank holds of a fused tensor against its part of what was joined."""
    pieces = cut(loaded, joined[0], own.shards) if loaded is not None and own.shards is not None else None
    if pieces is None:
        return _incomparable(Message.of("metrics.part_unknown"))
    other = parts.records[0]
    measure = partial(measure_pair, may_reshape=may_reshape)
    measured = measure_cut(own, other, pieces, measure, own_is_golden=not parts.are_golden)
    return replace(measured, reason=measured.reason or joined[1]) if measured.errors is not None else measured


def load_joined(parts: Parts, whole: Array, load: Load) -> tuple[Array, Message | None]:
    """Load the parts of a pair and join them as the whole has them; return them, and how they lie, in words.

    Args:
        parts: what is joined.
        whole: the tensor on the other side.
        load: reads the values of a tensor; raises TensorUnreadableError where it cannot.

    Raises:
        TensorUnreadableError: one of them cannot be read, or they do not join.
    """
    try:
        return _join(
            parts, [load(part.location) for part in parts.records if part.location is not None], whole
        )
    except (DoNotFitError, DoesNotRotateError) as error:
        raise TensorUnreadableError(Message.of("metrics.parts_unreadable", why=error.message)) from error


def _join(parts: Parts, arrays: Sequence[Array], whole: Array | None) -> tuple[Array, Message | None]:
    """Join the parts, and say how, where it was seen from the values."""
    if parts.rotated and whole is not None:
        return rotated_as(arrays[0], arrays[1], arrays[2], whole)
    if parts.of_experts:
        return stack_experts(arrays, whole, _arrangements)
    if parts.stacked:
        return stack_weights(arrays, whole, _arrangements)
    return _sum(arrays) if parts.summed else _concatenate(arrays, whole)


def _sum(arrays: Sequence[Array]) -> tuple[Array, None]:
    if len({array.shape for array in arrays}) != 1:
        raise DoNotFitError(Message.of("metrics.shapes_are", shapes=shapes_of(arrays)))
    wide = np.complex128 if any(np.iscomplexobj(array) for array in arrays) else np.float64
    return reduce(np.add, (array.astype(wide) for array in arrays)), None


def _concatenate(arrays: Sequence[Array], whole: Array | None) -> tuple[Array, Message | None]:
    """Lay parts side by side along the last or the first dimension, arranged as in the whole."""
    axis = _axis(arrays, whole.shape if whole is not None else None)
    if len({array.dtype for array in arrays}) != 1:
        arrays = [array.astype(np.float64) for array in arrays]
    joined = np.concatenate(arrays, axis=axis)
    if whole is None:
        return joined, None
    arrangements = _arrangements([array.shape[axis] for array in arrays])
    order, said = best_arrangement(joined, whole, axis, arrangements)
    return (joined if order is None else np.take(joined, order, axis=axis)), said


def _axis(arrays: Sequence[Array], whole: tuple[int, ...] | None) -> int:
    """Return the dimension, last or first, along which the parts have the size of the whole."""
    ranks = {array.ndim for array in arrays}
    for axis in (-1, 0):
        others = {tuple(np.delete(array.shape, axis).tolist()) for array in arrays if array.ndim}
        length = sum(array.shape[axis] for array in arrays if array.ndim)
        fits = whole is None or (bool(whole) and _ends_with(whole, axis, length))
        if len(ranks) == len(others) == 1 and fits:
            return axis
    raise DoNotFitError(shapes_against(arrays, whole or ()))


def _ends_with(whole: tuple[int, ...], axis: int, length: int) -> bool:
    return next((size for size in (whole[::-1] if axis else whole) if size != 1), 1) == length


def _rows(array: Array, axis: int) -> Array:
    """View a tensor as rows that run along a dimension, the first ones of them."""
    bare = np.squeeze(array)
    if bare.ndim < 2:  # noqa: PLR2004
        return bare.reshape(1, -1)
    if axis == 0:
        return bare.reshape(bare.shape[0], -1)[:, :_ROWS_LOOKED_AT].T
    return bare.reshape(-1, bare.shape[-1])[:_ROWS_LOOKED_AT]


def best_arrangement(
    joined: Array, whole: Array, axis: int, arrangements: Iterable[tuple[Array, Message]]
) -> tuple[Array | None, Message | None]:
    """Return in which order what was joined lies in the whole; None if as it is.

    Args:
        joined: the parts, one after another.
        whole: what they are compared with.
        axis: along which they were joined: the first (0) or the last (-1).
        arrangements: the orders that are possible, each with what is said of it.
    """
    first, second = _finite(_rows(joined, axis)), _finite(_rows(whole, axis))
    if first.shape != second.shape:
        return None, None
    least, chosen, said = (
        np.linalg.norm(first - second) * _CLEARLY_BETTER,
        None,
        Message.of("metrics.in_sequence"),
    )
    for order, description in arrangements:
        difference = np.linalg.norm(first[:, order] - second)
        if difference < least:
            least, chosen, said = difference, order, description
    return chosen, Message.of("metrics.arranged", how=said)


def _finite(rows: Array) -> Array:
    wide = rows.astype(np.complex128 if np.iscomplexobj(rows) else np.float64)
    return np.where(np.isfinite(wide), wide, 0)


def _arrangements(sizes: list[int]) -> Iterator[tuple[Array, Message]]:
    """Yield the ways in which parts are known to be laid out: in turn in each group, and in reverse order.

    Keys and values may take turns behind all queries.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    columns = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    common = gcd(*sizes)
    for groups in (count for count in range(1, common + 1) if common % count == 0):
        grouped = [part.reshape(groups, -1) for part in columns]
        each = Message.of("metrics.in_groups", groups=groups)
        if groups > 1:
            yield np.concatenate(grouped, axis=1).ravel(), each
        yield (
            np.concatenate(grouped[::-1], axis=1).ravel(),
            Message.of("metrics.reversed", how=each) if groups > 1 else Message.of("metrics.last_first"),
        )
    shared = gcd(*sizes[1:])
    for groups in (count for count in range(2, shared + 1) if shared % count == 0 and len(sizes) > 2):  # noqa: PLR2004
        others = np.concatenate([part.reshape(groups, -1) for part in columns[1:]], axis=1).ravel()
        said = Message.of("metrics.first_then_groups", groups=groups)
        yield np.concatenate([columns[0], others]), said
