"""Cut out of two tensors laid over each other what one rank holds of them.

shards   rank 0 | rank 1          laid out as the whole     q0 q1 k0 k1 v0 v1
                 ───────   ─▶                                  ══    ══    ══   these columns of both
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from firstdrift.metrics.arrangement import best_arrangement, fused_parts
from firstdrift.metrics.arrays import Load
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.tensor import DataLocation, Shards, TensorRecord, is_part_of_rank, shared_location
from firstdrift.parallel.shards_of_tensors import zigzag
from firstdrift.wording.message import Message

Measure: TypeAlias = Callable[[TensorRecord, TensorRecord, Load], Measurement]
"""Measures one golden against one target tensor."""


class Layout(NamedTuple):
    """Shards side by side: along which dimension, how many of its indexes each has, and whether in zigzag."""

    axis: int
    sizes: list[int]
    is_dealt: bool = False

    @classmethod
    def of(cls, shards: Shards) -> "Layout":
        """Tell how shards lie, as they were recorded."""
        axis = shards.axis or 0
        sizes = [part.shape[axis] if part.shape else 0 for part in shards.records]
        return cls(axis, sizes, shards.dealt)

    def fits(self, laid: Array) -> bool:
        """Tell whether the files hold the shapes that were recorded."""
        return laid.shape[self.axis : self.axis + 1] == (sum(self.sizes),)

    def ordered(self, laid: Array, whole: Array) -> tuple[Array | None, Message | None]:
        """Return in which order shards lie in the whole, and how that is; None if as they are."""
        if self.is_dealt:
            pieces = np.arange(sum(self.sizes)).reshape(2 * len(self.sizes), -1)
            return pieces[list(zigzag(len(self.sizes)))].ravel(), Message.of(
                "metrics.arranged", how=Message.of("metrics.in_zigzag")
            )
        axis = -1 if self.axis == laid.ndim - 1 else self.axis
        return (None, None) if axis > 0 else best_arrangement(laid, whole, axis, fused_parts(self.sizes))

    def taken(self, array: Array, indexes: Array | None) -> Array:
        """Return some indexes of the dimension, in their order; all if there is no order."""
        return array if indexes is None else np.take(array, indexes, axis=self.axis)


def whole_of(record: TensorRecord) -> TensorRecord:
    """Return the whole that a part belongs to; the tensor itself if it is none, or parts were not saved."""
    shards = record.shards
    if shards is None or not is_part_of_rank(record):
        return record
    locations = shards.locations
    if len(locations) < len(shards.records):
        return record
    axis, sizes, _ = Layout.of(shards)
    shape = record.shape or ()
    return replace(
        record,
        shape=(*shape[:axis], sum(sizes), *shape[axis + 1 :]) if shape else (),
        statistics=None,
        digest=None,
        location=shared_location(locations, axis),
        shards=replace(shards, only=None),
    )


def cut(whole: Array, other: Array, shards: Shards, order: Array | None = None) -> tuple[Array, Array] | None:
    """Cut out of two tensors what the one rank holds; None if they do not lie over each other.

    The whole has the shards side by side, in an order if the other tensor has them so; the other may have any
    shape of as many elements.
    """
    layout = Layout.of(shards)
    if shards.only is None or not layout.fits(whole) or other.size != whole.size:
        return None
    held_by = np.repeat(np.arange(len(layout.sizes)), layout.sizes)
    if order is not None:
        held_by = held_by[order]
    columns = np.flatnonzero(held_by == shards.ranks.index(shards.only))
    return layout.taken(whole, columns), layout.taken(other.reshape(whole.shape), columns)


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
