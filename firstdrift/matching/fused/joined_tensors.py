"""Pair the tensors of nodes with those of the one node into which they were fused.

q_proj  output.0 [2, 16, 64] ─┐
k_proj  output.0 [2, 16, 32] ─┼─ joined along the last dimension ─── linear_qkv output.0 [2, 16, 128]
v_proj  output.0 [2, 16, 32] ─┘
q_proj  input.0  [2, 16, 64] ─── linear_qkv input.0 [2, 16, 64]      and so for k_proj and v_proj
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.fused.thresholds import NAMED_EXPERTS
from firstdrift.matching.plan import Joining, Messages, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing, relate_shapes
from firstdrift.matching.tree import is_operator, tensors_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, Sharding, TensorRecord, join_statistics, shared_location
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape

Shape: TypeAlias = tuple[int, ...]

_JOINED_ALONG: Final = {-1: "matching.transform.joined_last", 0: "matching.transform.joined_first"}
_AXES: Final = (-1, 0)
"""Dimensions along which tensors are joined: outputs along the last, weights [out, in] along the first."""

ARRANGED_BY_VALUES: Final = Message.of("matching.transform.arranged_by_values")
"""Said of parts of which only the values tell how they lie in the whole."""


def joined_axis(parts: Sequence[Shape | None], whole: Shape | None) -> int | None:
    """Return the dimension along which parts make up a whole, -1 or 0; None if along none of them."""
    joined = ((axis, _joined_shape(parts, axis)) for axis in _AXES if whole is not None)
    return next((axis for axis, shape in joined if shape is not None and _fits(shape, whole)), None)


def join_records(parts: Sequence[TensorRecord], axis: int) -> TensorRecord:
    """Return the record of parts joined along a dimension, as far as it follows from theirs.

    It bears role and key of the first. Its statistics are those of all elements, however they are arranged:
    the largest maximum, the smallest minimum, the weighted mean and the root of the sum of squared norms.
    """
    problem = next((part.problem for part in parts if part.problem is not None), None)
    statistics = join_statistics(parts)
    if problem is None and statistics is None and any(part.location is None for part in parts):
        problem = Message.of("matching.incomparable.parts_not_recorded")
    shape = _joined_shape([part.shape for part in parts], axis)
    return replace(
        parts[0],
        shape=shape,
        statistics=statistics,
        digest=None,
        location=None,
        problem=problem,
        shards=None,
    )


def join_rows(parts: Sequence[TensorRecord], columns: int = 1) -> TensorRecord | None:
    """Return the record of the rows of experts, one after another; None where they are not known to fit.

    Parts are those of all experts that lie in the first column, then those of the second.
    """
    shapes = [part.shape for part in parts if part.is_tensor and part.shape]
    count = len(parts) // columns
    rows = [prod(shape[:-1]) for shape in shapes]
    widths = [shape[-1] for shape in shapes]
    if len(shapes) < len(parts) or len(set(widths)) != 1 or rows != rows[:count] * columns:
        return None
    return replace(join_records(parts, 0), shape=(sum(rows[:count]), columns * widths[0]))


def are_located(parts: Sequence[TensorRecord], whole: TensorRecord) -> bool:
    """Tell whether the values of a whole and of all its parts were saved."""
    return all(record.location is not None for record in (*parts, whole))


def whole_axes(record: TensorRecord) -> list[int]:
    """Return the dimensions along which the shards of a tensor can lie side by side, the last one first."""
    shapes = [shard.shape for shard in record.shards.records] if record.shards else []
    is_alone = record.shards is not None and record.shards.of > 1
    first = shapes[0] if len(shapes) > 1 or is_alone else None
    if not first:
        return []
    axes = (len(first) - 1, *range(len(first) - 1))
    return [axis for axis in axes if _joined_shape(shapes, axis) is not None]


def concatenated(record: TensorRecord, axis: int) -> TensorRecord:
    """Return the whole of which a record has the shards, side by side along a dimension."""
    if record.shards is None:
        return record
    parts = record.shards.records
    if record.shards.of and parts[0].shape:
        shape = list(parts[0].shape)
        shape[axis] *= record.shards.of
        return replace(record, shape=tuple(shape), statistics=None, digest=None)
    whole = join_records(parts, axis)
    locations = tuple(part.location for part in parts if part.location is not None)
    return replace(
        whole,
        location=shared_location(locations, axis) if len(locations) == len(parts) else None,
        shards=replace(record.shards, sharding=Sharding.CONCATENATED, axis=axis),
    )


def pair_joined(tensors: TensorPairing, match: int, golden: Sequence[Node], target: Sequence[Node]) -> None:
    """Pair the tensors of a match of several nodes with one, and list what is left over.

    The gradient of the whole's input is the sum of those of the parts. It is left over where only
    statistics were recorded: those of a sum do not follow from those of what is added.
    """
    work = _fused(match, golden, target)
    taken: set[tuple[str, str]] = set()
    for record in work.whole.tensors:
        records = work.partners(record)
        pairs = work.pairs(*_with_whole_shards(records, record)) if records is not None else []
        if records is not None and pairs:
            tensors.pairs += pairs
            taken |= work.places(work.parts, records, record)
    _list_left_over(tensors, match, golden, target, taken)


def pair_experts(
    tensors: TensorPairing, match: int, golden: Sequence[Node], target: Sequence[Node], experts: Sequence[int]
) -> None:
    """Pair what experts that ran one by one took and gave with that of the one that ran them together.

    What each expert computes of one input was given to each of its operators. One side has one node, the
    other those of all experts by the first of their operators, then by the second.
    """
    work = _fused(match, golden, target)
    columns = [work.parts[at : at + len(experts)] for at in range(0, len(work.parts), len(experts))]
    taken: set[tuple[str, str]] = set()
    for role, groups in ((Role.INPUT, columns), (Role.OUTPUT, [work.parts])):
        for record, nodes in product(tensors_of(work.whole, role)[:1], groups):
            records = [part for node in nodes for part in tensors_of(node, role)[:1]]
            if len(records) < len(nodes):
                continue
            pair = work.of_experts(nodes, records, record, experts)
            if pair is not None:
                tensors.pairs.append(pair)
                taken |= work.places(nodes, records, record)
    _list_left_over(tensors, match, golden, target, taken)


def _fused(match: int, golden: Sequence[Node], target: Sequence[Node]) -> "_Fused":
    parts, whole = (golden, target[0]) if len(target) == 1 else (target, golden[0])
    return _Fused(match, tuple(parts), whole, parts_are_golden=len(target) == 1)


def _list_left_over(
    tensors: TensorPairing,
    match: int,
    golden: Sequence[Node],
    target: Sequence[Node],
    taken: set[tuple[str, str]],
) -> None:
    for side, nodes in ((tensors.unmatched_golden, golden), (tensors.unmatched_target, target)):
        side += [
            UnmatchedTensor(match, node.name, record)
            for node in nodes
            for record in node.tensors
            if (node.name, record.label) not in taken
        ]


def say_rows(experts: Sequence[int], *, located: bool) -> Messages:
    """Say how the rows of experts are joined; for many the first few are named."""
    named = tuple(experts[:NAMED_EXPERTS])
    rows = Message.of("matching.transform.rows_by_expert", experts=named)
    if len(experts) > NAMED_EXPERTS:
        rows = Message.of("matching.transform.rows_by_many_experts", experts=named, count=len(experts))
    return (rows, ARRANGED_BY_VALUES) if located else (rows,)


class _Fused(Struct, frozen=True):
    """A match of parts with the whole into which they were fused."""

    match: int
    parts: tuple[Node, ...]
    whole: Node
    parts_are_golden: bool

    def places(
        self, nodes: Sequence[Node], parts: Sequence[TensorRecord], whole: TensorRecord
    ) -> set[tuple[str, str]]:
        """Return node and label of a tensor of the whole, and of each of its parts."""
        places = {(node.name, part.label) for node, part in zip(nodes, parts, strict=True)}
        return places | {(self.whole.name, whole.label)}

    def partners(self, record: TensorRecord) -> list[TensorRecord] | None:
        """Return the tensor of each part that a tensor of the whole corresponds to; None if one has none."""
        partners = [_partner(part, self.whole, record) for part in self.parts]
        alike = [part for part in partners if part is not None and part.is_tensor is record.is_tensor]
        return alike if len(alike) == len(self.parts) else None

    def pairs(self, parts: list[TensorRecord], whole: TensorRecord) -> list[TensorPair]:
        """Pair a tensor of the whole with that of each part, with all joined, or with their sum."""
        shapes = [part.shape for part in parts]
        relations = [relate_shapes(shape, whole.shape) for shape in shapes]
        is_shared = not whole.is_tensor or all(incomparable is None for _, incomparable in relations)
        axis = joined_axis(shapes, whole.shape) if whole.is_tensor else None
        if not is_shared:
            return [self._concatenated(parts, whole, axis)]
        if self.whole.direction is Direction.BACKWARD and whole.role is Role.OUTPUT:
            return [self._summed(parts, whole)] if are_located(parts, whole) else []
        if axis is None or whole.role is Role.INPUT:
            return [
                self._pair(node.name, part, whole, transform)
                for node, part, (transform, _) in zip(self.parts, parts, relations, strict=True)
            ]
        return [self._concatenated(parts, whole, axis)]

    def _concatenated(self, parts: list[TensorRecord], whole: TensorRecord, axis: int | None) -> TensorPair:
        joined = join_records(parts, -1 if axis is None else axis)
        if axis is None:
            shapes = tuple(map(_shape, parts))
            why = Message.of("matching.incomparable.parts_do_not_join", parts=shapes, whole=_shape(whole))
            pair = replace(self._pair(self.parts[0].name, joined, whole), incomparable=why)
            return self._of_parts(pair, parts, Joining.CONCATENATED)
        said: Messages = (Message.of(_JOINED_ALONG[axis], parts=self._names()),)
        if are_located(parts, whole):
            said = (*said, ARRANGED_BY_VALUES)
        reshape = relate_shapes(joined.shape, whole.shape)[0]
        pair = self._pair(self.parts[0].name, joined, whole, said + reshape)
        return self._of_parts(pair, parts, Joining.CONCATENATED)

    def of_experts(
        self, nodes: Sequence[Node], parts: list[TensorRecord], whole: TensorRecord, experts: Sequence[int]
    ) -> TensorPair | None:
        """Pair the rows of experts with those of the whole; None unless the shapes prove it."""
        joined = join_rows(parts, len(parts) // len(experts))
        wholes = [*(concatenated(whole, axis) for axis in whole_axes(whole)), whole]
        if joined is None:
            return None
        fitting = [record for record in wholes if record.shape and _fits(joined.shape, record.shape)]
        if not fitting:
            return None
        whole = fitting[0]
        reshape = relate_shapes(joined.shape, whole.shape)[0]
        said = say_rows(experts, located=are_located(parts, whole))
        pair = self._pair(nodes[0].name, joined, whole, said + reshape)
        pair = replace(pair, part_nodes=tuple(node.name for node in nodes))
        return self._of_parts(pair, parts, Joining.OF_EXPERTS)

    def _summed(self, parts: list[TensorRecord], whole: TensorRecord) -> TensorPair:
        total = replace(parts[0], statistics=None, digest=None, location=None)
        summed = Message.of("matching.transform.sum_of_parts", parts=self._names())
        pair = self._pair(self.parts[0].name, total, whole, (summed,))
        return self._of_parts(pair, parts, Joining.SUMMED)

    def _pair(
        self, node: str, part: TensorRecord, whole: TensorRecord, transform: Messages = ()
    ) -> TensorPair:
        if self.parts_are_golden:
            return TensorPair(self.match, node, self.whole.name, part, whole, transform)
        return TensorPair(self.match, self.whole.name, node, whole, part, transform)

    def _of_parts(self, pair: TensorPair, parts: list[TensorRecord], joining: Joining) -> TensorPair:
        if self.parts_are_golden:
            return replace(pair, golden_parts=tuple(parts), joining=joining)
        return replace(pair, target_parts=tuple(parts), joining=joining)

    def _names(self) -> tuple[str, ...]:
        names = [f"{node.path}.{node.call}" if is_operator(node) else node.path for node in self.parts]
        return tuple(name.rpartition(".")[2] if not is_operator(self.whole) else name for name in names)


def _fits(golden: Shape | None, target: Shape | None) -> bool:
    return relate_shapes(golden, target)[1] is None


def _with_whole_shards(
    parts: list[TensorRecord], whole: TensorRecord
) -> tuple[list[TensorRecord], TensorRecord]:
    """Lay the shards of ranks side by side where only then the parts make up the whole."""
    sides = (
        [parts, *([concatenated(part, axis) for part in parts] for axis in whole_axes(parts[0]))],
        [*(concatenated(whole, axis) for axis in whole_axes(whole)), whole],
    )
    if whole.is_tensor and whole.role is not Role.INPUT:
        for shards, record in product(*sides):
            if joined_axis([shard.shape for shard in shards], record.shape) is not None:
                return shards, record
    return parts, whole


def _partner(part: Node, whole: Node, record: TensorRecord) -> TensorRecord | None:
    """Return the tensor of a part of the same key, or the only one of its role where each has only one."""
    of_role = [tensor for tensor in part.tensors if tensor.role is record.role]
    for tensor in of_role:
        if tensor.key == record.key:
            return tensor
    only = sum(tensor.role is record.role for tensor in whole.tensors) == len(of_role) == 1
    return of_role[0] if only else None


def _shape(record: TensorRecord) -> Message:
    return Message.of("matching.kind.unknown_shape") if record.shape is None else shape(record.shape)


def _joined_shape(shapes: Sequence[Shape | None], axis: int) -> Shape | None:
    known = [shape for shape in shapes if shape]
    if len(known) != len(shapes) or len({len(shape) for shape in known}) != 1:
        return None
    at = axis % len(known[0])
    if len({(*shape[:at], *shape[at + 1 :]) for shape in known}) != 1:
        return None
    first = known[0]
    return (*first[:at], sum(shape[at] for shape in known), *first[at + 1 :])
