"""Weights of experts one by one on one side, and in one tensor on the other.

    experts.0.gate_proj.weight [24, 16] ─┐
    experts.0.up_proj.weight   [24, 16] ─┼─ experts.gate_up_proj [4, 48, 16], or [4, 16, 48]
    experts.1.gate_proj.weight [24, 16] ─┘

Names say what may have been stacked, shapes whether it was. Two stacks may be transposed to each other, and
one may hold two of the other side by side.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, product
from math import prod
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.groups import firsts, seconds
from firstdrift.matching.fused.joined_tensors import (
    Tensor,
    golden_first,
    join_records,
    pair_of,
    say_arranged,
)
from firstdrift.matching.fused.thresholds import STACK_FITS
from firstdrift.matching.plan import Joining, NodeMatch, Origin, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing, left_over
from firstdrift.matching.tree import Place
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.fused import other_spellings, parts_of_name
from firstdrift.operators.paths import is_one_expert, runs_through_experts, single_weight, stacked_weight
from firstdrift.wording.message import Message

_Key: TypeAlias = tuple[str, bool]
"""What a weight of an expert is called, and whether it is a bias."""


class _Held(Struct, frozen=True):
    """A weight, or a value of unknown role that may be one, and the node that has it."""

    node: Node
    record: TensorRecord

    @property
    def place(self) -> Place:
        return self.node.name, self.record.label

    @property
    def path(self) -> str:
        """Its full name."""
        is_named = self.record.role is Role.PARAMETER
        return f"{self.node.path}.{self.record.key}" if is_named else self.node.path

    @property
    def shape(self) -> tuple[int, ...]:
        return self.record.shape or ()


class _List(Struct):
    """The weights of one list of experts: in one tensor, and one by one by the numbers of the experts."""

    stacked: dict[_Key, _Held] = {}
    single: defaultdict[_Key, dict[int, _Held]] = field(default_factory=partial(defaultdict, dict))

    def one_by_one(self, keys: Sequence[_Key], experts: int) -> list[_Held]:
        """Return the weights of those keys of all experts, key by key; nothing unless each has all."""
        columns = [self.single.get(key, {}) for key in keys]
        if any(sorted(column) != list(range(experts)) for column in columns):
            return []
        return [column[number] for column in columns for number in range(experts)]

    def in_stacks(self, keys: Sequence[_Key]) -> list[_Held]:
        """Return the stacks of those keys; nothing unless all are there."""
        return [self.stacked[key] for key in keys] if self.stacked.keys() >= set(keys) else []


def pair_stacks(
    golden: Sequence[Node], target: Sequence[Node], matches: list[NodeMatch], tensors: TensorPairing
) -> tuple[frozenset[str], frozenset[str]]:
    """Pair weights of experts that were stacked with those that were not; add to what was paired so far.

    Returns:
        The names of the golden and of the target nodes that have a partner by it.
    """
    if not all(any(runs_through_experts(node.path) for node in nodes) for nodes in (golden, target)):
        return frozenset(), frozenset()
    work = _Stacks(golden, target, matches, tensors)
    lists = work.golden.lists(), work.target.lists()
    work.pair(lists[1], lists[0], parts_are_golden=True)
    work.pair(lists[0], lists[1], parts_are_golden=False)
    return work.settle()


class _Side(Struct):
    """The nodes of one of the two slices.

    Attributes:
        nodes: all of them.
        row_of: the match of each matched node.
        taken: tensors that are compared.
        left: tensors of matched nodes that are left over.
        stacked: tensors that are compared as parts, or as the whole.
        paired: the nodes that have a partner as weights of experts.
    """

    nodes: Sequence[Node]
    row_of: dict[str, int]
    taken: set[Place]
    left: list[UnmatchedTensor]
    stacked: set[Place] = set()
    paired: set[str] = set()

    def lists(self) -> Mapping[str, _List]:
        """Gather the weights of experts that are not compared yet, by the path of their list."""
        lists: defaultdict[str, _List] = defaultdict(_List)
        for held in chain.from_iterable(map(_weights, self.nodes)):
            if held.place not in self.taken:
                _enter(lists, held)
        return lists

    def settle(self, first_new: int) -> frozenset[str]:
        """List the unpaired tensors of newly matched nodes; a node without row that has some stays free.

        Returns:
            The nodes that have a partner, and the modules around them that hold nothing else.
        """
        self.left[:] = [one for one in self.left if (one.node, one.record.label) not in self.stacked]
        for node in self.nodes:
            if node.name in self.paired:
                row = self.row_of.get(node.name, -1)
                others = left_over(row, [node], self.taken)
                if row >= first_new:
                    self.left.extend(others)
                elif row < 0 and others:
                    self.paired.discard(node.name)
        return frozenset(self.paired.union(self._around()))

    def _around(self) -> Iterator[str]:
        """Yield the modules around weights that have a partner, if they hold nothing else."""
        inside = {(node.parent, node.name in self.paired) for node in self.nodes}
        empty = (node.name for node in self.nodes if is_one_expert(node.path) and not node.tensors)
        return (name for name in empty if (name, True) in inside and (name, False) not in inside)

    def take(self, places: set[Place]) -> None:
        """Take what is compared now."""
        self.taken |= places
        self.stacked |= places


def _enter(lists: defaultdict[str, _List], held: _Held) -> None:
    """Enter a weight into the list that its name says it belongs to."""
    if match := single_weight(held.path):
        of_list = lists[match["list"]].single[match["name"].lower(), bool(match["bias"])]
        of_list.setdefault(int(match["number"]), held)
    elif (match := stacked_weight(held.path)) and len(held.shape) == 3 - bool(match["bias"]):
        lists[match["list"]].stacked.setdefault((match["name"].lower(), bool(match["bias"])), held)


class _Stacks:
    """What is paired so far; `first_new` is the first match that is added."""

    def __init__(
        self,
        golden: Sequence[Node],
        target: Sequence[Node],
        matches: list[NodeMatch],
        tensors: TensorPairing,
    ) -> None:
        self.matches, self.tensors, self.first_new = matches, tensors, len(matches)
        self._made: list[TensorPair] = []
        self._replaced: set[tuple[Place, Place]] = set()
        compared = [_places(pair) for pair in tensors.pairs if pair.incomparable is None]
        rows = _rows(match.golden for match in matches), _rows(match.target for match in matches)
        self.golden = _Side(golden, rows[0], set(firsts(compared)), tensors.unmatched_golden)
        self.target = _Side(target, rows[1], set(seconds(compared)), tensors.unmatched_target)

    def pair(
        self, wholes: Mapping[str, _List], parts: Mapping[str, _List], *, parts_are_golden: bool
    ) -> None:
        """Pair each stack with what it consists of."""
        for path, of_list in wholes.items():
            other = _list_of(path, parts)
            for key, whole in of_list.stacked.items():
                if (held := next(_candidates(key, whole, other), None)) is not None:
                    self._add(held, whole, parts_are_golden=parts_are_golden)

    def _add(self, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> None:
        taken = {held.place for held in parts}, {whole.place}
        golden, target = golden_first(*taken, own_is_golden=parts_are_golden)
        if self.golden.taken & golden or self.target.taken & target:
            return
        row = self._row(parts, whole, parts_are_golden=parts_are_golden)
        self.golden.take(golden)
        self.target.take(target)
        self._replaced.update(product(golden, target))
        self._made.append(_stacked_pair(row, parts, whole, parts_are_golden=parts_are_golden))

    def settle(self) -> tuple[frozenset[str], frozenset[str]]:
        """Put the new pairs in the place of others, and return the nodes of both sides that have one."""
        pairs = self.tensors.pairs
        pairs[:] = [one for one in pairs if one.incomparable is None or _places(one) not in self._replaced]
        pairs += self._made
        return self.golden.settle(self.first_new), self.target.settle(self.first_new)

    def _row(self, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> int:
        """Return the match that the pair belongs to: that of the whole, a new one, or one that it joins."""
        of_parts, of_whole = golden_first(self.golden, self.target, own_is_golden=parts_are_golden)
        names = tuple(dict.fromkeys(part.node.name for part in parts))
        free = tuple(name for name in names if name not in of_parts.row_of)
        own = (whole.node.name,)
        of_parts.paired.update(names)
        of_whole.paired.update(own)
        row = of_whole.row_of.setdefault(whole.node.name, len(self.matches))
        if row == len(self.matches):
            sides = golden_first(free, own, own_is_golden=parts_are_golden)
            reasons = (Message.of("matching.reason.stacked_experts"),)
            self.matches.append(NodeMatch(*sides, Origin.STRUCTURE, STACK_FITS, reasons=reasons))
            of_parts.row_of.update(dict.fromkeys(free, row))
        return row


def _rows(names: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """Return the match of each matched node, by the names of the nodes of each match."""
    return {name: at for at, of_match in enumerate(names) for name in of_match}


def _places(pair: TensorPair) -> tuple[Place, Place]:
    return (pair.golden_node, pair.golden.label), (pair.target_node, pair.target.label)


def _stacked_pair(row: int, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> TensorPair:
    """Pair a stack with what it consists of."""
    records = tuple(part.record for part in parts)
    key = whole.record.key if whole.record.role is Role.PARAMETER else whole.path.rpartition(".")[2]
    record = replace(whole.record, role=Role.PARAMETER, key=key)
    joined = replace(join_records(records, 0), shape=record.shape, role=Role.PARAMETER, key=key)
    sides = golden_first(
        Tensor(parts[0].node.name, joined, records),
        Tensor(whole.node.name, record),
        own_is_golden=parts_are_golden,
    )
    said = (_how_stacked(parts, whole), *say_arranged([*records, record]))
    pair = pair_of(row, *sides, said, Joining.STACKED)
    return replace(pair, part_nodes=tuple(part.node.name for part in parts))


def _weights(node: Node) -> Iterator[_Held]:
    """Yield the weights that a node may have of experts."""
    if node.direction is not Direction.BACKWARD and runs_through_experts(node.path):
        yield from (_Held(node, record) for record in node.tensors if _may_be_weight(node, record))


def _may_be_weight(node: Node, record: TensorRecord) -> bool:
    """Tell a weight, which a value of unknown role may be, from other tensors."""
    is_value = (node.direction, record.key) == (Direction.NONE, "0")
    return bool(record.shape) and (is_value or record.role is Role.PARAMETER)


def _list_of(path: str, lists: Mapping[str, _List]) -> _List:
    """Return the list of that path, or the only one of the same layer; else an empty one."""
    if path in lists:
        return lists[path]
    numbers = re.findall(r"\d+", path)
    alike = [of_list for other, of_list in lists.items() if re.findall(r"\d+", other) == numbers]
    return alike[0] if len(alike) == 1 else _List()


def _candidates(key: _Key, whole: _Held, of_list: _List) -> Iterator[list[_Held]]:
    """Yield what a stack may consist of: weights one by one, or other stacks."""
    name, is_bias = key
    for columns in ((name,), *parts_of_name(name), *zip(other_spellings(name, "down"), strict=True)):
        keys = [(column, is_bias) for column in columns]
        for dimension, parts in enumerate(
            (of_list.one_by_one(keys, whole.shape[0]), of_list.in_stacks(keys))
        ):
            if parts and _fit(parts, whole, dimension):
                yield parts


def _fit(parts: Sequence[_Held], whole: _Held, dimension: int) -> bool:
    """Tell whether weights, from a dimension on, may make up a stack: as many values, a size in common."""
    first, *_ = inner = [part.shape[dimension:] for part in parts]
    return (
        sum(prod(part.shape) for part in parts) == prod(whole.shape)
        and {(len(each), each[-1:]) for each in inner} == {(len(whole.shape) - 1, first[-1:])}
        and (len(first) == 1 or not set(whole.shape[1:]).isdisjoint(first))
        and not any(part.record.problem for part in parts)
    )


def _how_stacked(parts: Sequence[_Held], whole: _Held) -> Message:
    names = tuple(dict.fromkeys(part.path.removesuffix(".weight").rpartition(".")[2] for part in parts))
    if len(names) > 1:
        return Message.of("matching.transform.stacked_side_by_side", experts=whole.shape[0], names=names)
    return Message.of("matching.transform.stacked", experts=whole.shape[0])
