"""Weights of experts one by one on one side, and in one tensor on the other.

    experts.0.gate_proj.weight [24, 16] ─┐
    experts.0.up_proj.weight   [24, 16] ─┼─ experts.gate_up_proj [4, 48, 16], or [4, 16, 48]
    experts.1.gate_proj.weight [24, 16] ─┘

Names say what may have been stacked, shapes whether it was. Two stacks may be transposed to each other, and
one may hold two of the other side by side.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.matching.fused.joined_tensors import ARRANGED_BY_VALUES, are_located, join_records
from firstdrift.matching.fused.thresholds import STACK_FITS
from firstdrift.matching.plan import Joining, NodeMatch, Origin, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.fused import other_spellings, parts_of_name
from firstdrift.operators.paths import is_one_expert, runs_through_experts, single_weight, stacked_weight
from firstdrift.wording.message import Message

_Key: TypeAlias = tuple[str, bool]
"""What a weight of an expert is called, and whether it is a bias."""


Place: TypeAlias = tuple[str, str]
"""A tensor: the name of its node, and its label."""


class _Held(Struct, frozen=True):
    """A weight and the node that has it."""

    node: Node
    record: TensorRecord

    @property
    def place(self) -> Place:
        return self.node.name, self.record.label


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
    for side in (work.golden, work.target):
        side.list_left_over(work.first_new)
    return _with_empty(golden, work.golden.paired), _with_empty(target, work.target.paired)


class _Side(Struct):
    """The nodes of one of the two slices.

    Attributes:
        nodes: all of them.
        row_of: the match of each matched node.
        taken: tensors that are compared.
        left: tensors of matched nodes that are left over.
        paired: the nodes that have a partner as weights of experts.
    """

    nodes: Sequence[Node]
    row_of: dict[str, int]
    taken: set[Place]
    left: list[UnmatchedTensor]
    paired: set[str] = set()

    def lists(self) -> Mapping[str, _List]:
        """Gather the weights of experts that are not compared yet, by the path of their list."""
        lists: defaultdict[str, _List] = defaultdict(_List)
        for node in self.nodes:
            if runs_through_experts(node.path) and node.direction is not Direction.BACKWARD:
                for record, name in _weights(node):
                    held = _Held(node, record)
                    if held.place not in self.taken:
                        _enter(lists, held, name)
        return lists

    def list_left_over(self, first_new: int) -> None:
        """List the unpaired tensors of newly matched nodes; a node without row that has some stays free."""
        for node in [node for node in self.nodes if node.name in self.paired]:
            others = [record for record in node.tensors if (node.name, record.label) not in self.taken]
            row = self.row_of.get(node.name)
            if row is None and others:
                self.paired.discard(node.name)
            elif row is not None and row >= first_new:
                self.left.extend(UnmatchedTensor(row, node.name, record) for record in others)

    def take(self, places: set[Place]) -> None:
        """Take what is compared now out of what was left over."""
        self.taken |= places
        self.left[:] = [tensor for tensor in self.left if (tensor.node, tensor.record.label) not in places]


def _enter(lists: defaultdict[str, _List], held: _Held, name: str) -> None:
    """Enter a weight of that name into the list that it belongs to."""
    if match := single_weight(name):
        of_list = lists[match["list"]].single[match["name"].lower(), bool(match["bias"])]
        of_list.setdefault(int(match["number"]), held)
    elif (match := stacked_weight(name)) and len(held.record.shape or ()) == 3 - bool(match["bias"]):
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
        compared = [pair for pair in tensors.pairs if pair.incomparable is None]
        self.golden = _Side(
            golden,
            {name: at for at, match in enumerate(matches) for name in match.golden},
            {(pair.golden_node, pair.golden.label) for pair in compared},
            tensors.unmatched_golden,
        )
        self.target = _Side(
            target,
            {name: at for at, match in enumerate(matches) for name in match.target},
            {(pair.target_node, pair.target.label) for pair in compared},
            tensors.unmatched_target,
        )

    def pair(
        self, wholes: Mapping[str, _List], parts: Mapping[str, _List], *, parts_are_golden: bool
    ) -> None:
        """Pair each stack with what it consists of."""
        for path, of_list in wholes.items():
            other = _list_of(path, parts)
            for key, whole in of_list.stacked.items():
                held = next(_candidates(key, whole.record, other), None)
                if held is not None:
                    self._add(held, whole, parts_are_golden=parts_are_golden)

    def _add(self, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> None:
        golden, target = (parts, [whole]) if parts_are_golden else ([whole], parts)
        places = {held.place for held in golden}, {held.place for held in target}
        if self.golden.taken & places[0] or self.target.taken & places[1]:
            return
        row = self._row(parts, whole, parts_are_golden=parts_are_golden)
        self.golden.take(places[0])
        self.target.take(places[1])
        self.tensors.pairs[:] = [
            pair
            for pair in self.tensors.pairs
            if pair.incomparable is None
            or (pair.golden_node, pair.golden.label) not in places[0]
            or (pair.target_node, pair.target.label) not in places[1]
        ]
        self.tensors.pairs.append(_stacked_pair(row, parts, whole, parts_are_golden=parts_are_golden))

    def _row(self, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> int:
        """Return the match that the pair belongs to: that of the whole, a new one, or one that it joins."""
        of_parts, of_whole = (self.golden, self.target) if parts_are_golden else (self.target, self.golden)
        names = tuple(dict.fromkeys(part.node.name for part in parts))
        free = tuple(name for name in names if name not in of_parts.row_of)
        own = (whole.node.name,)
        of_parts.paired.update(names)
        of_whole.paired.update(own)
        row = of_whole.row_of.setdefault(whole.node.name, len(self.matches))
        if row == len(self.matches):
            golden, target = (free, own) if parts_are_golden else (own, free)
            reasons = (Message.of("matching.reason.stacked_experts"),)
            self.matches.append(NodeMatch(golden, target, Origin.STRUCTURE, STACK_FITS, reasons=reasons))
            of_parts.row_of.update(dict.fromkeys(free, row))
        return row


def _stacked_pair(row: int, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> TensorPair:
    """Pair a stack with what it consists of."""
    records = tuple(part.record for part in parts)
    record = replace(whole.record, role=Role.PARAMETER, key=_label(whole))
    joined = replace(join_records(records, 0), shape=record.shape, role=Role.PARAMETER, key=record.key)
    located = are_located(records, record)
    golden, target = (parts[0].node.name, joined), (whole.node.name, record)
    if not parts_are_golden:
        golden, target = target, golden
    return TensorPair(
        row,
        golden[0],
        target[0],
        golden[1],
        target[1],
        (_how_stacked(parts, record), *([ARRANGED_BY_VALUES] if located else [])),
        golden_parts=records if parts_are_golden else (),
        target_parts=() if parts_are_golden else records,
        joining=Joining.STACKED,
        part_nodes=tuple(part.node.name for part in parts),
    )


def _weights(node: Node) -> Iterator[tuple[TensorRecord, str]]:
    """Yield the weights of a node with their full names; a value of unknown role may be one."""
    for record in node.tensors:
        if not record.is_tensor or not record.shape:
            continue
        if record.role is Role.PARAMETER:
            yield record, f"{node.path}.{record.key}"
        elif node.direction is Direction.NONE and record.key == "0":
            yield record, node.path


def _label(held: _Held) -> str:
    return held.record.key if held.record.role is Role.PARAMETER else held.node.path.rpartition(".")[2]


def _list_of(path: str, lists: Mapping[str, _List]) -> _List:
    """Return the list of that path, or the only one of the same layer; else an empty one."""
    if path in lists:
        return lists[path]
    numbers = re.findall(r"\d+", path)
    alike = [of_list for other, of_list in lists.items() if re.findall(r"\d+", other) == numbers]
    return alike[0] if len(alike) == 1 else _List()


def _candidates(key: _Key, whole: TensorRecord, of_list: _List) -> Iterator[list[_Held]]:
    """Yield what a stack may consist of: weights one by one, or other stacks."""
    name, is_bias = key
    others = ((other,) for other in other_spellings(name, "down"))
    for columns in ((name,), *parts_of_name(name), *others):
        keys = [(column, is_bias) for column in columns]
        single = of_list.one_by_one(keys, (whole.shape or (0,))[0])
        if _fit([part.record for part in single], whole, stacked=False):
            yield single
        stacked = [of_list.stacked[key] for key in keys if key in of_list.stacked]
        if len(stacked) == len(keys) and _fit([part.record for part in stacked], whole, stacked=True):
            yield stacked


def _fit(parts: Sequence[TensorRecord], whole: TensorRecord, *, stacked: bool) -> bool:
    """Tell whether weights may make up a stack: as many values, and one dimension in common."""
    shape = whole.shape or ()
    shapes = [part.shape or () for part in parts]
    if sum(map(prod, shapes)) != prod(shape) or any(part.problem for part in parts):
        return False
    inner = {each[1:] if stacked else each for each in shapes}
    if {len(each) for each in inner} != {len(shape) - 1} or len({each[-1:] for each in inner}) != 1:
        return False
    return len(shape) == 2 or not set(shape[1:]).isdisjoint(next(iter(inner)))  # noqa: PLR2004


def _how_stacked(parts: Sequence[_Held], whole: TensorRecord) -> Message:
    names = tuple(dict.fromkeys(re.split(r"[.]", _plain(part))[-1] for part in parts))
    experts = (whole.shape or (0,))[0]
    if len(names) > 1:
        return Message.of("matching.transform.stacked_side_by_side", experts=experts, names=names)
    return Message.of("matching.transform.stacked", experts=experts)


def _plain(held: _Held) -> str:
    """Return the name of a weight without what only says that it is one."""
    name = f"{held.node.path}.{held.record.key}" if held.record.role is Role.PARAMETER else held.node.path
    return name.removesuffix(".weight")


def _with_empty(nodes: Sequence[Node], paired: set[str]) -> frozenset[str]:
    """Add the modules around weights that have a partner, if they hold nothing else."""
    around = {node.parent for node in nodes if node.name in paired}
    around -= {node.parent for node in nodes if node.name not in paired}
    empty = (
        node.name for node in nodes if node.name in around and not node.tensors and is_one_expert(node.path)
    )
    return frozenset(paired.union(empty))
