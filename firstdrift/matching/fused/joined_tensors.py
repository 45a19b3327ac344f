"""Pair the tensors of nodes with those of the one node into which they were fused.

q_proj  output.0 [2, 16, 64] ─┐
k_proj  output.0 [2, 16, 32] ─┼─ joined along the last dimension ─── linear_qkv output.0 [2, 16, 128]
v_proj  output.0 [2, 16, 32] ─┘
q_proj  input.0  [2, 16, 64] ─── linear_qkv input.0 [2, 16, 64]      and so for k_proj and v_proj
"""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import firsts, known
from firstdrift.matching.fused.thresholds import NAMED_EXPERTS
from firstdrift.matching.plan import Joining, Messages, TensorPair
from firstdrift.matching.tensors import TensorPairing, relate_shapes
from firstdrift.matching.tree import is_operator, tensors_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, Sharding, TensorRecord, join_statistics, shared_location
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape, side_named

Shape: TypeAlias = tuple[int, ...]

_JOINED_ALONG: Final = {-1: "matching.transform.joined_last", 0: "matching.transform.joined_first"}
_AXES: Final = (-1, 0)
"""Dimensions along which tensors are joined: outputs along the last, weights [out, in] along the first."""

ARRANGED_BY_VALUES: Final = Message.of("matching.transform.arranged_by_values")
"""Said of parts of which only the values tell how they lie in the whole."""

_PARTS_NOT_RECORDED: Final = Message.of("matching.incomparable.parts_not_recorded")
_PROBLEM: Final = attrgetter("problem")


def joined_axis(parts: Sequence[TensorRecord], whole: TensorRecord) -> int | None:
    """Return the dimension along which parts make up a whole, -1 or 0; None if along none of them."""
    return next((axis for axis in _AXES if _is_known_to_fit(_joined_shape(parts, axis), whole.shape)), None)


def join_records(parts: Sequence[TensorRecord], axis: int) -> TensorRecord:
    """Return the record of parts joined along a dimension, as far as it follows from theirs.

    It bears role and key of the first. Its statistics are those of all elements, however they are arranged:
    the largest maximum, the smallest minimum, the weighted mean and the root of the sum of squared norms.
    """
    statistics = join_statistics(parts)
    is_recorded = statistics is not None or are_located(parts)
    return replace(
        parts[0],
        shape=_joined_shape(parts, axis),
        statistics=statistics,
        digest=None,
        location=None,
        problem=next(filter(None, map(_PROBLEM, parts)), None if is_recorded else _PARTS_NOT_RECORDED),
        shards=None,
    )


def join_rows(parts: Sequence[TensorRecord], columns: int = 1) -> TensorRecord | None:
    """Return the record of the rows of experts, one after another; None where they are not known to fit.

    Parts are those of all experts that lie in the first column, then those of the second.
    """
    sizes = [(prod(part.shape[:-1]), part.shape[-1]) for part in parts if part.shape]
    rows = firsts(sizes[: len(parts) // columns])
    if len(sizes) < len(parts) or sizes != [(count, sizes[0][1]) for count in rows] * columns:
        return None
    return replace(join_records(parts, 0), shape=(sum(rows), columns * sizes[0][1]))


def are_located(records: Iterable[TensorRecord]) -> bool:
    """Tell whether the values of all these tensors were saved."""
    return all(record.location is not None for record in records)


def whole_axes(record: TensorRecord) -> list[int]:
    """Return the dimensions along which the shards of a tensor can lie side by side, the last one first."""
    shards = record.shards
    if shards is None or max(len(shards.records), shards.of) <= 1:
        return []
    axes = range(len(shards.records[0].shape or ()))
    return [axis for axis in (*axes[-1:], *axes[:-1]) if _joined_shape(shards.records, axis) is not None]


def possible_wholes(record: TensorRecord) -> list[TensorRecord]:
    """Return what a tensor may be as a whole: its shards side by side, or as it is."""
    return [*(concatenated(record, axis) for axis in whole_axes(record)), record]


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
    locations = tuple(known(part.location for part in parts))
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
        if records and (pairs := work.pairs(*_with_whole_shards(records, record))):
            tensors.pairs += pairs
            taken |= work.places(work.parts, records, record)
    tensors.leave(match, golden, target, (taken, taken))


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
    tensors.leave(match, golden, target, (taken, taken))


def _fused(match: int, golden: Sequence[Node], target: Sequence[Node]) -> "_Fused":
    parts, whole = (golden, target[0]) if len(target) == 1 else (target, golden[0])
    return _Fused(match, tuple(parts), whole, parts_are_golden=len(target) == 1)


def say_arranged(records: Iterable[TensorRecord]) -> Messages:
    """Say that values tell how parts lie in a whole, where those of all were saved."""
    return (ARRANGED_BY_VALUES,) if are_located(records) else ()


def say_rows(experts: Sequence[int], records: Iterable[TensorRecord]) -> Messages:
    """Say how the rows of experts, of which there are records, are joined; for many the first are named."""
    named = tuple(experts[:NAMED_EXPERTS])
    rows = Message.of("matching.transform.rows_by_expert", experts=named)
    if len(experts) > NAMED_EXPERTS:
        rows = Message.of("matching.transform.rows_by_many_experts", experts=named, count=len(experts))
    return (rows, *say_arranged(records))


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

    def partners(self, record: TensorRecord) -> list[TensorRecord]:
        """Return the tensor of each part that a tensor of the whole corresponds to, if each has one."""
        partners = [_partner(part, self.whole, record) for part in self.parts]
        alike = [part for part in partners if part is not None and part.is_tensor is record.is_tensor]
        return alike if len(alike) == len(partners) else []

    def pairs(self, parts: list[TensorRecord], whole: TensorRecord) -> list[TensorPair]:
        """Pair a tensor of the whole with that of each part, with all joined, or with their sum."""
        if not all(_may_fit(part.shape, whole.shape) for part in parts):
            return [self._concatenated(parts, whole)]
        if (self.whole.direction, whole.role) == (Direction.BACKWARD, Role.OUTPUT):
            return [self._summed(parts, whole)] if are_located([*parts, whole]) else []
        if whole.is_tensor and whole.role is not Role.INPUT and joined_axis(parts, whole) is not None:
            return [self._concatenated(parts, whole)]
        nodes = zip(self.parts, parts, strict=True)
        return [self._pair(Tensor(node.name, part), whole, ()) for node, part in nodes]

    def _why_apart(self, parts: list[TensorRecord], whole: TensorRecord) -> Message:
        if whole.shape is not None and 0 in whole.shape:
            side = side_named("target" if self.parts_are_golden else "golden")
            return Message.of("matching.incomparable.whole_is_empty", side=side)
        shapes = tuple(map(_shape, parts))
        return Message.of("matching.incomparable.parts_do_not_join", parts=shapes, whole=_shape(whole))

    def _concatenated(self, parts: list[TensorRecord], whole: TensorRecord) -> TensorPair:
        axis = joined_axis(parts, whole)
        joined = join_records(parts, -1 if axis is None else axis)
        first = Tensor(self.parts[0].name, joined, tuple(parts))
        if axis is None:
            why = self._why_apart(parts, whole)
            return replace(self._pair(first, whole, (), Joining.CONCATENATED), incomparable=why)
        said = (Message.of(_JOINED_ALONG[axis], parts=self._names()),)
        pair = self._pair(first, whole, said + say_arranged([*parts, whole]), Joining.CONCATENATED)
        return replace(pair, part_nodes=tuple(node.name for node in self.parts))

    def of_experts(
        self, nodes: Sequence[Node], parts: list[TensorRecord], whole: TensorRecord, experts: Sequence[int]
    ) -> TensorPair | None:
        """Pair the rows of experts with those of the whole; None unless the shapes prove it."""
        joined = join_rows(parts, len(parts) // len(experts))
        if joined is None:
            return None
        wholes = (each for each in possible_wholes(whole) if _is_known_to_fit(joined.shape, each.shape))
        fitting = next(wholes, None)
        if fitting is None:
            return None
        said = say_rows(experts, [*parts, fitting])
        rows = Tensor(nodes[0].name, joined, tuple(parts))
        pair = self._pair(rows, fitting, said, Joining.OF_EXPERTS)
        return replace(pair, part_nodes=tuple(node.name for node in nodes))

    def _summed(self, parts: list[TensorRecord], whole: TensorRecord) -> TensorPair:
        total = replace(parts[0], statistics=None, digest=None, location=None)
        summed = (Message.of("matching.transform.sum_of_parts", parts=self._names()),)
        pair = self._pair(Tensor(self.parts[0].name, total, tuple(parts)), whole, summed, Joining.SUMMED)
        return replace(pair, transform=summed)

    def _pair(
        self, part: "Tensor", whole: TensorRecord, said: Messages, joining: Joining | None = None
    ) -> TensorPair:
        """Pair a tensor of the whole with what corresponds to it; say how that is brought to its shape."""
        said += relate_shapes(part.record.shape, whole.shape)[0]
        sides = golden_first(part, Tensor(self.whole.name, whole), own_is_golden=self.parts_are_golden)
        return pair_of(self.match, *sides, said, joining)

    def _names(self) -> tuple[str, ...]:
        names = [f"{node.path}.{node.call}" if is_operator(node) else node.path for node in self.parts]
        return tuple(name.rpartition(".")[2] if not is_operator(self.whole) else name for name in names)


class Tensor(Struct, frozen=True):
    """One side of a pair of tensors: the name of its node, its record, and the parts it is joined from."""

    node: str
    record: TensorRecord
    parts: tuple[TensorRecord, ...] = ()


T = TypeVar("T")


def golden_first(own: T, other: T, *, own_is_golden: bool) -> tuple[T, T]:
    """Return what belongs to the two dumps, the golden one's first."""
    return (own, other) if own_is_golden else (other, own)


def tensors_in(pair: TensorPair) -> tuple["Tensor", "Tensor"]:
    """Return the golden and the target tensor of a pair."""
    golden = Tensor(pair.golden_node, pair.golden, pair.golden_parts)
    return golden, Tensor(pair.target_node, pair.target, pair.target_parts)


def pair_of(
    match: int, golden: Tensor, target: Tensor, transform: Messages, joining: Joining | None
) -> TensorPair:
    """Return the pair of two tensors, one of which may be joined from parts."""
    return TensorPair(
        match=match,
        golden_node=golden.node,
        target_node=target.node,
        golden=golden.record,
        target=target.record,
        transform=transform,
        golden_parts=golden.parts,
        target_parts=target.parts,
        joining=joining,
    )


def _is_known_to_fit(golden: Shape | None, target: Shape | None) -> bool:
    return None not in (golden, target) and _may_fit(golden, target)


def _may_fit(golden: Shape | None, target: Shape | None) -> bool:
    return relate_shapes(golden, target)[1] is None


def _with_whole_shards(
    parts: list[TensorRecord], whole: TensorRecord
) -> tuple[list[TensorRecord], TensorRecord]:
    """Lay the shards of ranks side by side where only then the parts make up the whole."""
    if whole.role is Role.INPUT:
        return parts, whole
    shards = [parts, *([concatenated(part, axis) for part in parts] for axis in whole_axes(parts[0]))]
    joining = [way for way in product(shards, possible_wholes(whole)) if joined_axis(*way) is not None]
    if whole.role is Role.PARAMETER:  # of a weight, [out, in], what is given is joined
        joining.sort(key=lambda way: joined_axis(*way) != 0)
    return next(iter(joining), (parts, whole))


def _partner(part: Node, whole: Node, record: TensorRecord) -> TensorRecord | None:
    """Return the tensor of a part of the same key, or the only one of its role where each has only one."""
    own, others = _by_key(part, record.role), _by_key(whole, record.role)
    return own.get(record.key) if (len(own), len(others)) != (1, 1) else next(iter(own.values()))


def _by_key(node: Node, role: Role) -> dict[str, TensorRecord]:
    return {tensor.key: tensor for tensor in reversed(node.tensors) if tensor.role is role}


def _shape(record: TensorRecord) -> Message:
    return Message.of("matching.kind.unknown_shape") if record.shape is None else shape(record.shape)


def _joined_shape(parts: Sequence[TensorRecord], axis: int) -> Shape | None:
    """Return the shape of what is joined along a dimension; None unless shapes are alike but for it."""
    known = [part.shape for part in parts if part.shape]
    around = {(len(shape), shape[:axis], shape[axis:][1:]) for shape in known}
    if len(known) < len(parts) or len(around) != 1:
        return None
    _, before, after = around.pop()
    return (*before, sum(shape[axis] for shape in known), *after)
