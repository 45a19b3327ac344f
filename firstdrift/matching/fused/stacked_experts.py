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
from math import prod
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.fused.joined_tensors import ARRANGED_BY_VALUES, join_records
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


class _Held(Struct, frozen=True):
    """A weight and the node that has it."""

    node: Node
    record: TensorRecord

    @property
    def place(self) -> tuple[str, str]:
        return self.node.name, self.record.label


class _List(Struct):
    """The weights of one list of experts: in one tensor, and one by one by the numbers of the experts."""

    stacked: dict[_Key, _Held]
    single: defaultdict[_Key, dict[int, _Held]]


def pair_stacks(
    golden: Sequence[Node], target: Sequence[Node], matches: list[NodeMatch], tensors: TensorPairing
) -> tuple[frozenset[str], frozenset[str]]:
    """Pair weights of experts that were stacked with those that were not; add to what was paired so far.

    Args:
        golden: the nodes of the golden slice.
        target: those of the target slice.
        matches: what is matched so far.
        tensors: what is paired so far.

    Returns:
        The names of the golden and of the target nodes that have a partner by it.
    """
    if not all(any(runs_through_experts(node.path) for node in nodes) for nodes in (golden, target)):
        return frozenset(), frozenset()
    work = _Stacks(matches, tensors)
    lists = work.lists(golden, are_golden=True), work.lists(target, are_golden=False)
    work.pair(lists[1], lists[0], parts_are_golden=True)
    work.pair(lists[0], lists[1], parts_are_golden=False)
    work.list_left_over(golden, target)
    return _with_empty(golden, work.paired[0]), _with_empty(target, work.paired[1])


class _Stacks:
    """What is paired so far."""

    def __init__(self, matches: list[NodeMatch], tensors: TensorPairing) -> None:
        self.matches, self.tensors = matches, tensors
        self.paired: tuple[set[str], set[str]] = set(), set()
        self.known = len(matches)
        self.row_of = (
            {name: at for at, match in enumerate(matches) for name in match.golden},
            {name: at for at, match in enumerate(matches) for name in match.target},
        )
        compared = [pair for pair in tensors.pairs if pair.incomparable is None]
        self.taken = (
            {(pair.golden_node, pair.golden.label) for pair in compared},
            {(pair.target_node, pair.target.label) for pair in compared},
        )

    def lists(self, nodes: Sequence[Node], *, are_golden: bool) -> Mapping[str, _List]:
        """Gather the weights of experts that are not compared yet, by the path of their list."""
        found: defaultdict[str, _List] = defaultdict(lambda: _List({}, defaultdict(dict)))
        for node in nodes:
            if not runs_through_experts(node.path) or node.direction is Direction.BACKWARD:
                continue
            for record, name in _weights(node):
                held = _Held(node, record)
                if held.place in self.taken[not are_golden]:
                    continue
                if match := single_weight(name):
                    of_list = found[match["list"]].single[match["name"].lower(), bool(match["bias"])]
                    of_list.setdefault(int(match["number"]), held)
                elif (match := stacked_weight(name)) and len(record.shape or ()) == 3 - bool(match["bias"]):
                    key = match["name"].lower(), bool(match["bias"])
                    found[match["list"]].stacked.setdefault(key, held)
        return found

    def pair(
        self, wholes: Mapping[str, _List], parts: Mapping[str, _List], *, parts_are_golden: bool
    ) -> None:
        """Pair each stack with what it consists of."""
        for path, of_list in wholes.items():
            other = _list_of(path, parts)
            for key, whole in of_list.stacked.items() if other is not None else ():
                for found in _candidates(key, whole.record, other) if other is not None else ():
                    self._add(found, whole, parts_are_golden=parts_are_golden)
                    break

    def _add(self, parts: Sequence[_Held], whole: _Held, *, parts_are_golden: bool) -> None:
        side_of_parts = 0 if parts_are_golden else 1
        places = [part.place for part in parts]
        if whole.place in self.taken[1 - side_of_parts] or not self.taken[side_of_parts].isdisjoint(places):
            return
        row = self._row(parts, whole, side_of_parts)
        joined = replace(
            join_records([part.record for part in parts], 0), shape=whole.record.shape, role=Role.PARAMETER
        )
        record = replace(whole.record, role=Role.PARAMETER, key=_label(whole))
        joined = replace(joined, key=record.key)
        located = all(one.location is not None for one in (record, *(part.record for part in parts)))
        said = (_said(parts, record), *([ARRANGED_BY_VALUES] if located else []))
        pair = TensorPair(row, parts[0].node.name, whole.node.name, joined, record, said)
        if not parts_are_golden:
            pair = TensorPair(row, whole.node.name, parts[0].node.name, record, joined, said)
        records = tuple(part.record for part in parts)
        self._forget((parts, [whole]) if parts_are_golden else ([whole], parts))
        self.tensors.pairs.append(
            replace(
                pair,
                golden_parts=records if parts_are_golden else (),
                target_parts=() if parts_are_golden else records,
                joining=Joining.STACKED,
                part_nodes=tuple(part.node.name for part in parts),
            )
        )
        self.taken[side_of_parts].update(places)
        self.taken[1 - side_of_parts].add(whole.place)

    def list_left_over(self, golden: Sequence[Node], target: Sequence[Node]) -> None:
        """List the unpaired tensors of newly matched nodes; a node without row that has some stays free."""
        left = self.tensors.unmatched_golden, self.tensors.unmatched_target
        for side, nodes in enumerate((golden, target)):
            for node in nodes:
                if node.name not in self.paired[side]:
                    continue
                others = [one for one in node.tensors if (node.name, one.label) not in self.taken[side]]
                row = self.row_of[side].get(node.name)
                if row is None and others:
                    self.paired[side].discard(node.name)
                elif row is not None and row >= self.known:
                    left[side].extend(UnmatchedTensor(row, node.name, one) for one in others)

    def _row(self, parts: Sequence[_Held], whole: _Held, side_of_parts: int) -> int:
        """Return the match that the pair belongs to: that of the whole, a new one, or one that it joins."""
        names = tuple(dict.fromkeys(part.node.name for part in parts))
        free = tuple(name for name in names if name not in self.row_of[side_of_parts])
        self.paired[side_of_parts].update(names)
        self.paired[1 - side_of_parts].add(whole.node.name)
        row = self.row_of[1 - side_of_parts].get(whole.node.name)
        if row is None:
            row = len(self.matches)
            own = (whole.node.name,)
            golden, target = (free, own) if side_of_parts == 0 else (own, free)
            self.matches.append(
                NodeMatch(
                    golden,
                    target,
                    Origin.STRUCTURE,
                    STACK_FITS,
                    reasons=(Message.of("matching.reason.stacked_experts"),),
                )
            )
            self.row_of[1 - side_of_parts][whole.node.name] = row
            self.row_of[side_of_parts].update(dict.fromkeys(free, row))
        return row

    def _forget(self, sides: tuple[Sequence[_Held], Sequence[_Held]]) -> None:
        """Take what is compared now out of what was left over, and out of what could not be compared."""
        places = tuple({held.place for held in side} for side in sides)
        for left, known in zip(
            (self.tensors.unmatched_golden, self.tensors.unmatched_target), places, strict=True
        ):
            left[:] = [one for one in left if (one.node, one.record.label) not in known]
        self.tensors.pairs[:] = [
            pair
            for pair in self.tensors.pairs
            if pair.incomparable is None
            or (pair.golden_node, pair.golden.label) not in places[0]
            or (pair.target_node, pair.target.label) not in places[1]
        ]


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


def _list_of(path: str, lists: Mapping[str, _List]) -> _List | None:
    """Return the list of that path, or the only one of the same layer."""
    if path in lists:
        return lists[path]
    numbers = re.findall(r"\d+", path)
    alike = [one for other, one in lists.items() if re.findall(r"\d+", other) == numbers]
    return alike[0] if len(alike) == 1 else None


def _candidates(key: _Key, whole: TensorRecord, of_list: _List) -> Iterator[list[_Held]]:
    """Yield what a stack may consist of: weights one by one, or other stacks."""
    name, is_bias = key
    names = [(name,), *parts_of_name(name)]
    names += [(other,) for other in other_spellings(name, "down")]
    for columns in names:
        keys = [(column, is_bias) for column in columns]
        single = [of_list.single[one] for one in keys if one in of_list.single]
        experts = range((whole.shape or (0,))[0])
        if len(single) == len(keys) and all(sorted(some) == list(experts) for some in single):
            parts = [some[number] for some in single for number in experts]
            if _fit([part.record for part in parts], whole, stacked=False):
                yield parts
        stacked = [of_list.stacked[one] for one in keys if one in of_list.stacked]
        if len(stacked) == len(keys) and _fit([part.record for part in stacked], whole, stacked=True):
            yield stacked


def _fit(parts: Sequence[TensorRecord], whole: TensorRecord, *, stacked: bool) -> bool:
    """Tell whether weights may make up a stack: as many values, and one dimension in common."""
    shape = whole.shape or ()
    shapes = [part.shape or () for part in parts]
    if sum(map(prod, shapes)) != prod(shape) or any(part.problem for part in parts):
        return False
    inner = {each[1:] if stacked else each for each in shapes}
    if any(len(each) != len(shape) - 1 for each in inner) or len({each[-1:] for each in inner}) != 1:
        return False
    return len(shape) == 2 or any(size in shape[1:] for size in next(iter(inner)))  # noqa: PLR2004


def _said(parts: Sequence[_Held], whole: TensorRecord) -> Message:
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
    children: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.parent is not None:
            children[node.parent].append(node.name)
    around = {node.parent for node in nodes if node.name in paired and node.parent is not None}
    known = {node.name: node for node in nodes}
    empty = {
        name
        for name in around
        if name in known and not known[name].tensors and all(child in paired for child in children[name])
        if is_one_expert(known[name].path)
    }
    return frozenset(paired | empty)
