"""Lay together what ranks hold of a tensor, where the dump says how each cut it.

    rank 0 "b s[cp:zigzag] h[tp]" cp 0, tp 0  ┐
    rank 1                        cp 0, tp 1  │ h side by side, then s, whose pieces are put in order:
    rank 2                        cp 1, tp 0  │ 0 3 | 1 2  ──▶  0 1 2 3
    rank 3                        cp 1, tp 1  ┘

Ranks that hold the same part are copies: the first is taken.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from msgspec.structs import replace

from firstdrift.dumps.sglang.dims import Cut, parse_dims, portion_of
from firstdrift.groups import grouped
from firstdrift.model.tensor import DataLocation, TensorRecord
from firstdrift.wording.message import Message

Place = tuple[int, ...]
"""Which rank of each group that cut a tensor holds a part."""


class _Held(NamedTuple):
    record: TensorRecord
    place: Place


def declared_whole(records: Sequence[TensorRecord]) -> TensorRecord | None:
    """Return the tensor that ranks hold parts of; None if the dump does not say how they do.

    A tensor whose parts cannot be put in order says why.
    """
    cuts, sizes = _cuts_of(records)
    held = [_Held(record, place) for record in records if (place := _place(record, cuts)) is not None]
    if not cuts or len(held) < len(records):
        return None
    copies = grouped(held, lambda one: one.place)
    if set(copies) != set(product(*map(range, sizes))) or not all(map(_are_alike, copies.values())):
        return None
    parts = {place: group[0].record for place, group in copies.items()}
    first = held[0].record
    if any(cut.is_zigzag and _names(first)[cut.axis] == "t" for cut in cuts):
        return replace(first, digest=None, problem=Message.of("dumps.sglang.packed_zigzag"))
    return _assembled(parts, cuts, sizes)


def _cuts_of(records: Sequence[TensorRecord]) -> tuple[list[Cut], list[int]]:
    """Return the cuts that the first rank tells of and the sizes of their groups; none of groups of one."""
    portion = portion_of(records[0].location)
    dims = None if portion is None else parse_dims(portion.dims)
    if (
        portion is None
        or dims is None
        or records[0].shape is None
        or len(dims.names) != len(records[0].shape)
    ):
        return [], []
    sizes = {group: size for group, _, size in portion.ranks}
    cuts = [cut for cut in dims.cuts if cut.group in sizes]
    return cuts, [sizes[cut.group] for cut in cuts]


def _place(record: TensorRecord, cuts: Sequence[Cut]) -> Place | None:
    portion = portion_of(record.location)
    if portion is None or record.shape is None or record.problem is not None:
        return None
    ranks = {group: rank for group, rank, _ in portion.ranks}
    return tuple(ranks[cut.group] for cut in cuts) if all(cut.group in ranks for cut in cuts) else None


def _names(record: TensorRecord) -> tuple[str, ...]:
    portion = portion_of(record.location)
    dims = None if portion is None else parse_dims(portion.dims)
    return () if dims is None else dims.names


def _are_alike(copies: Sequence[_Held]) -> bool:
    """Tell whether what should be copies may be: nothing that was recorded says otherwise."""
    shapes = {one.record.shape for one in copies}
    digests = {one.record.digest for one in copies if one.record.digest is not None}
    return len(shapes) == 1 and len(digests) <= 1


def _assembled(
    parts: Mapping[Place, TensorRecord], cuts: Sequence[Cut], sizes: Sequence[int]
) -> TensorRecord | None:
    """Undo the cuts, the last first."""
    left = dict(parts)
    for cut, size in reversed(list(zip(cuts, sizes, strict=True))):
        groups = grouped(sorted(left), lambda place: place[:-1])
        whole = {place: _joined([left[one] for one in ones], cut, size) for place, ones in groups.items()}
        if None in whole.values():
            return None
        left = {place: one for place, one in whole.items() if one is not None}
    return left[()]


def _joined(parts: Sequence[TensorRecord], cut: Cut, size: int) -> TensorRecord | None:
    shapes = [part.shape or () for part in parts]
    places = tuple(part.location for part in parts if part.location is not None)
    rests = {shape[: cut.axis] + shape[cut.axis + 1 :] for shape in shapes}
    if len(rests) > 1 or len(places) < len(parts) or (cut.is_addend and len(set(shapes)) > 1):
        return None
    first = parts[0]
    axis = None if cut.is_addend else cut.axis
    order = _zigzag(size) if cut.is_zigzag and not cut.is_addend else ()
    location = DataLocation(places[0].file, "shards", shards=places, axis=axis, order=order)
    length = shapes[0][cut.axis] if cut.is_addend else sum(shape[cut.axis] for shape in shapes)
    shape = (*shapes[0][: cut.axis], length, *shapes[0][cut.axis + 1 :])
    return replace(first, shape=shape, location=location, digest=None, statistics=None)


def _zigzag(size: int) -> tuple[int, ...]:
    """Return where the pieces lie that were dealt out from both ends: rank 0 has the first and the last."""
    dealt = [piece for rank in range(size) for piece in (rank, 2 * size - 1 - rank)]
    return tuple(sorted(range(2 * size), key=dealt.__getitem__))
