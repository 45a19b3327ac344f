"""Cut out of two tensors laid over each other what one rank holds of them.

shards   rank 0 | rank 1          laid out as the whole     q0 q1 k0 k1 v0 v1
                 ───────   ─▶                                  ══    ══    ══   these columns of both
"""

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from firstdrift.metrics.arrays import Load
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.tensor import DataLocation, Shards, TensorRecord, is_part_of_rank, shared_location

Measure: TypeAlias = Callable[[TensorRecord, TensorRecord, Load], Measurement]
"""Measures one golden against one target tensor."""


def whole_of(record: TensorRecord) -> TensorRecord:
    """Return the whole that a part belongs to; the tensor itself if it is none, or parts were not saved."""
    shards = record.shards
    if shards is None or not is_part_of_rank(record):
        return record
    axis = shards.axis or 0
    locations = [part.location for part in shards.records if part.location is not None]
    if len(locations) < len(shards.records):
        return record
    shape = list(record.shape or ())
    if shape:
        shape[axis] = sum(_sizes(shards))
    return replace(
        record,
        shape=tuple(shape),
        statistics=None,
        digest=None,
        location=shared_location(locations, axis),
        shards=replace(shards, only=None),
    )


def cut(whole: Array, other: Array, shards: Shards, order: Array | None = None) -> tuple[Array, Array] | None:
    """Cut out of two tensors what the one rank holds; None if they do not lie over each other.

    Args:
        whole: the shards side by side, in the order in which the other tensor has them.
        other: what they are compared with, of any shape of as many elements.
        shards: what the ranks hold.
        order: where the whole was put in another order than that of the ranks, that order.
    """
    axis, sizes = shards.axis or 0, _sizes(shards)
    if (
        shards.only is None
        or whole.shape[axis : axis + 1] != (sum(sizes),)
        or other.size != prod(whole.shape)
    ):
        return None
    held_by = np.repeat(np.arange(len(sizes)), sizes)
    if order is not None:
        held_by = held_by[order]
    columns = np.flatnonzero(held_by == shards.ranks.index(shards.only))
    return np.take(whole, columns, axis=axis), np.take(other.reshape(whole.shape), columns, axis=axis)


def measure_cut(
    own: TensorRecord,
    other: TensorRecord,
    parts: tuple[Array, Array],
    measure: Measure,
    *,
    own_is_golden: bool,
) -> Measurement:
    """Measure what one rank holds against what was cut out of the other tensor."""
    places = DataLocation(Path(), "own"), DataLocation(Path(), "other")
    arrays = dict(zip(map(id, places), parts, strict=True))
    records = [
        replace(record, shape=parts[0].shape, statistics=None, digest=None, location=place, shards=None)
        for record, place in zip((own, other), places, strict=True)
    ]
    golden, target = records if own_is_golden else records[::-1]
    return measure(golden, target, lambda location: arrays[id(location)])


def _sizes(shards: Shards) -> list[int]:
    axis = shards.axis or 0
    return [part.shape[axis] if part.shape else 0 for part in shards.records]
