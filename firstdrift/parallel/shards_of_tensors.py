"""What the tensors that ranks hold are to one another: the same, side by side, or summed by a collective.

What they are to the whole is not asked here: that shows when they are held against the other dump.

Where a dump says how each rank cut a tensor, what they hold is laid together:

    rank 0 "b s[cp:zigzag] h[tp]" cp 0, tp 0  ┐
    rank 1                        cp 0, tp 1  │ h side by side, then s, whose pieces are put in order:
    rank 2                        cp 1, tp 0  │ 0 3 | 1 2  ──▶  0 1 2 3
    rank 3                        cp 1, tp 1  ┘

Ranks that hold the same part are copies: the first is taken.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse, product
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from firstdrift.dumps.sglang.dims import Cut, Dims, parse_dims, portion_of
from firstdrift.errors import TensorUnreadableError
from firstdrift.groups import gathered, grouped, known, known_items
from firstdrift.model.node import Node
from firstdrift.model.tensor import (
    Role,
    Sharding,
    Shards,
    Statistics,
    TensorRecord,
    is_floating,
    join_statistics,
    shared_location,
)
from firstdrift.operators.properties import sum_over_ranks
from firstdrift.parallel.merged_nodes import MergedNode
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    import numpy.typing as npt


Place = tuple[int, ...]
"""Which rank of each group that cut a tensor holds a part."""


def declared_whole(records: Sequence[TensorRecord]) -> TensorRecord | None:
    """Return the tensor that ranks hold parts of; None if the dump does not say how they do.

    What it says is taken from the first rank. A tensor whose parts cannot be put in order says why.
    """
    dims, sizes = _declared(records[0])
    cuts = [cut for cut in dims.cuts if cut.group in sizes]
    copies = gathered((_place(record, cuts), record) for record in records)
    if not cuts or not _are_complete(copies, [sizes[cut.group] for cut in cuts]):
        return None
    if "t" in {dims.names[cut.axis] for cut in cuts if cut.is_zigzag}:
        return replace(records[0], digest=None, problem=Message.of("dumps.sglang.packed_zigzag"))
    return _assembled(copies, cuts)


def _declared(record: TensorRecord) -> tuple[Dims, dict[str, int]]:
    """Return what a dump says of the dimensions of a tensor, and the sizes of the groups that share it."""
    portion = portion_of(record.location)
    dims = None if portion is None else parse_dims(portion.dims)
    if portion is None or dims is None or len(dims.names) != len(record.shape or ()):
        return Dims((), ()), {}
    return dims, {group: size for group, _, size in portion.ranks}


def _are_complete(copies: Mapping[Place | None, Sequence[TensorRecord]], sizes: Sequence[int]) -> bool:
    """Tell whether there is a part for each place, and its copies are copies."""
    # What a dump says of the sizes may be far more than there is.
    is_whole = len(copies) == prod(sizes) and set(copies) == set(product(*map(range, sizes)))
    return is_whole and all(map(_are_alike, copies.values()))


def _place(record: TensorRecord, cuts: Sequence[Cut]) -> Place | None:
    """Return which rank of each group holds a tensor; None if that is not said, or it cannot be read."""
    portion = portion_of(record.location)
    if portion is None or record.shape is None or record.problem is not None:
        return None
    ranks = {group: rank for group, rank, _ in portion.ranks}
    place = known(ranks.get(cut.group) for cut in cuts)
    return tuple(place) if len(place) == len(cuts) else None


def _are_alike(copies: Sequence[TensorRecord]) -> bool:
    """Tell whether what should be copies may be: nothing that was recorded says otherwise."""
    shapes, digests = {one.shape for one in copies}, {one.digest for one in copies}
    return len(shapes) == 1 and len(digests - {None}) <= 1


def _assembled(
    copies: Mapping[Place | None, Sequence[TensorRecord]], cuts: Sequence[Cut]
) -> TensorRecord | None:
    """Undo the cuts, the last first."""
    left = {place: group[0] for place, group in copies.items() if place is not None}
    for cut in reversed(cuts):
        groups = grouped(sorted(left), lambda place: place[:-1])
        whole = {place: _joined([left[one] for one in ones], cut) for place, ones in groups.items()}
        left = known_items(whole)
        if len(left) < len(whole):
            return None
    return left[()]


def _joined(parts: Sequence[TensorRecord], cut: Cut) -> TensorRecord | None:
    """Lay the parts of a dimension side by side, or add them up; None if they do not fit."""
    axis = None if cut.is_addend else cut.axis
    shape = _joint_shape([part.shape or () for part in parts], axis)
    places = known(part.location for part in parts)
    if shape is None or len(places) < len(parts):
        return None
    order = zigzag(len(parts)) if cut.is_zigzag and axis is not None else ()
    location = replace(shared_location(places, axis), order=order)
    return replace(parts[0], shape=shape, location=location, digest=None, statistics=None)


def _joint_shape(shapes: Sequence[tuple[int, ...]], axis: int | None) -> tuple[int, ...] | None:
    """Return the shape of what lies side by side, or is added up (no axis); None if that cannot be done."""
    rests = {(len(shape), _with_length(shape, axis, 0)) for shape in shapes}
    if len(rests) > 1:
        return None
    length = 0 if axis is None else sum(shape[axis] for shape in shapes)
    return _with_length(shapes[0], axis, length)


def _with_length(shape: tuple[int, ...], axis: int | None, length: int) -> tuple[int, ...]:
    """Return a shape with another length of a dimension; as it is, if there is no such dimension."""
    return shape if axis is None else (*shape[:axis], length, *shape[axis + 1 :])


def zigzag(size: int) -> tuple[int, ...]:
    """Return where the pieces lie that were dealt out from both ends: rank 0 has the first and the last."""
    dealt = [piece for rank in range(size) for piece in (rank, 2 * size - 1 - rank)]
    return tuple(sorted(range(2 * size), key=dealt.__getitem__))


_SAME: Final = 1e-3
"""Difference of statistics, relative to the norm, up to which ranks hold the same tensor."""

_SAMPLE: Final = 1024
_LOOKS_SAME: Final = 1e-2

Totals = Mapping[Hashable, TensorRecord]
"""Sums over ranks that were recorded, by what tells the values that were summed from others."""


def tensors_of(merged: MergedNode, totals: Totals, only: int | None) -> Iterator[TensorRecord]:
    """Yield the tensors of a merged node, or those that one rank holds, each with what every rank holds."""
    of_ranks = ((rank, record) for rank, node in merged.held.items() for record in node.tensors)
    by_label = gathered((record.label, (rank, record)) for rank, record in of_ranks)
    ranks = merged.held if merged.alike else ()
    for records in map(dict, by_label.values()):
        held = tuple(records.values())
        may_be_whole = only is None and len(held) == len(merged.held)
        if may_be_whole and (whole := declared_whole(held)) is not None:
            yield whole
        elif only in (None, *records):
            missing = tuple(filterfalse(records.__contains__, ranks))
            total = totals.get(_values(held))
            shards = Shards(tuple(records), held, total, missing=missing, only=only)
            yield replace(_shown(held, total), shards=shards)


def _shown(held: Sequence[TensorRecord], total: TensorRecord | None) -> TensorRecord:
    if total is None:
        return _guessed_whole(held)
    return replace(total, role=held[0].role, key=held[0].key, shape=held[0].shape)


def _guessed_whole(held: Sequence[TensorRecord]) -> TensorRecord:
    """Return what shards look like as a whole, as far as can be told before they are matched.

    Where ranks hold other values each, they are taken to be side by side along the last dimension.
    """
    first = held[0]
    shapes = {record.shape for record in held}
    if len(held) == 1 or len(shapes) > 1 or not first.shape or not is_floating(first.dtype):
        return first
    same = agree(held)
    if _begin_alike(held) if same is None else same:
        return first
    return replace(first, shape=(*first.shape[:-1], len(held) * first.shape[-1]))


# ---- whether ranks hold the same


def agree(parts: Sequence[TensorRecord]) -> bool | None:
    """Tell whether ranks hold the same tensor, by what was recorded of it; None if nothing was."""
    if all(part.digest is not None for part in parts):
        return len({part.digest for part in parts}) == 1
    recorded = known(part.statistics for part in parts)
    if len(recorded) < len(parts):
        return None
    return all(_are_near(recorded[0], other) for other in recorded[1:])


def _are_near(one: Statistics, other: Statistics) -> bool:
    scale = max((abs(value) for value in (one.maximum, one.minimum) if value is not None), default=0.0)
    units = {"maximum": scale, "minimum": scale, "mean": scale, "norm": abs(one.norm or 0.0)}
    return all(_is_near(getattr(one, name), getattr(other, name), unit) for name, unit in units.items())


def _is_near(one: float | None, other: float | None, unit: float) -> bool:
    """Tell whether two numbers are near, if both are known; infinities and NaN are near one another."""
    if one is None or other is None or one == other:
        return True
    if isfinite(one) and isfinite(other):
        return not abs(one - other) > _SAME * unit  # a unit that is NaN tells nothing
    return not isfinite(one) and not isfinite(other)


def _begin_alike(held: Sequence[TensorRecord]) -> bool:
    """Tell whether tensors begin with the same values on all ranks; True where they cannot be read."""
    import numpy as np

    samples = first_values(held, _SAMPLE)
    if samples is None:
        return True
    if len({sample.shape for sample in samples}) > 1:
        return False
    with np.errstate(all="ignore"):
        apart = [np.linalg.norm(sample - samples[0]) for sample in samples[1:]]
        return not any(apart > _LOOKS_SAME * np.linalg.norm(samples[0]))


def first_values(records: Iterable[TensorRecord], most: int) -> "list[npt.NDArray[Any]] | None":
    """Return the first values of tensors, so many of each; None where one cannot be read."""
    import numpy as np

    from firstdrift.dumps.storage.tensor_data import load_tensor

    samples = []
    for record in records:
        if record.location is None or record.problem is not None:
            return None
        try:
            values = load_tensor(record.location).reshape(-1)[:most]
        except TensorUnreadableError:
            return None
        samples.append(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
    return samples


# ---- sums that collectives made


def find_totals(nodes: Iterable[MergedNode]) -> Totals:
    """Find the sums that all-reduces and reduce-scatters made, by the values that went in."""
    totals: dict[Hashable, TensorRecord] = {}
    for merged in nodes:
        if len(merged.held) > 1 and sum_over_ranks(merged.node.type_name) and _adds_up(merged.node):
            given = _firsts(merged, Role.INPUT)
            values, total = _values(given), _reduced(merged, given)
            if values is not None and total is not None:
                totals.setdefault(values, total)
    return totals


def _reduced(merged: MergedNode, given: Sequence[TensorRecord]) -> TensorRecord | None:
    """Return the sum that an operator made: on each rank, or each rank its part of the first dimension."""
    if sum_over_ranks(merged.node.type_name) == "whole":
        return _first(merged.node, Role.OUTPUT)
    parts = _firsts(merged, Role.OUTPUT)
    shapes = {part.shape and (len(parts) * part.shape[0], *part.shape[1:]) for part in parts}
    if not given or not given[0].shape or shapes != {given[0].shape}:
        return None
    locations = known(part.location for part in parts)
    return replace(
        parts[0],
        shape=given[0].shape,
        statistics=join_statistics(parts),
        digest=None,
        location=shared_location(locations, 0) if len(locations) == len(parts) else None,
        problem=next(iter(known(part.problem for part in parts)), None),
        shards=Shards(tuple(merged.held), tuple(parts), sharding=Sharding.CONCATENATED, axis=0),
    )


def _firsts(merged: MergedNode, role: Role) -> list[TensorRecord]:
    """Return the first tensor of a role that each rank has; none if not all have one."""
    firsts = [_first(node, role) for node in merged.held.values()]
    return [] if None in firsts else known(firsts)


def _first(node: Node, role: Role) -> TensorRecord | None:
    return next((record for record in node.records(role) if record.is_tensor), None)


def _adds_up(node: Node) -> bool:
    operators = [record.scalar or "" for record in node.tensors if record.dtype.endswith("ReduceOp")]
    return all("SUM" in operator for operator in operators)


def _values(records: Sequence[TensorRecord]) -> Hashable:
    """Return what tells tensors of several ranks from others; None where nothing was recorded."""
    if len(records) < 2 or not all(each.statistics or each.digest for each in records):  # noqa: PLR2004
        return None
    return tuple((prod(each.shape or ()), each.statistics, each.digest) for each in records)
