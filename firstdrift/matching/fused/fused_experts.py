"""Experts that ran one by one on one side, and together on the other.

    torch   experts.0.gate_proj [3, 64]   experts.0.up_proj [3, 64]   experts.2.gate_proj [5, 64]   ...
    ATB     GroupedMatmulOperation [8, 128]

The rows of all experts that were given some lie one after another, in the order of their numbers; what an
expert computes of one input may lie side by side. That they are the same has to follow from the shapes: the
rows add up to those of the whole, and so do the columns.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import Layer, Op, first_output
from firstdrift.matching.fused.find_fused import parts_of_one
from firstdrift.matching.fused.thresholds import GATE_UP_DOWN, MOST_DIGITS
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.operators.kinds import GATHERED, OpKind
from firstdrift.operators.paths import holds_experts, is_expert_list, is_shared, is_shared_expert

Ways: TypeAlias = list[list[Op]]
"""Ways to see some operators: each by itself, or several as one."""


class _Place(NamedTuple):
    """Where an operator of an expert lies: in which list, in which expert, and what it is there."""

    experts: str
    number: int
    name: Hashable


class _Column(NamedTuple):
    """The same operator of all experts that ran, by their numbers."""

    ops: Mapping[int, Op]
    rows: tuple[int, ...]
    width: int


def has_experts(tree: SliceTree, layer: Layer) -> bool:
    """Tell whether a layer has experts, by what its operators do and where in it they lie."""
    before = len(tree.nodes[layer.node].path)
    return any(
        op.kind is OpKind.GROUPED or holds_experts(tree.nodes[op.node].path, before) for op in layer.ops
    )


class Apart(Struct, frozen=True):
    """Operators of experts that are aligned by themselves.

    Attributes:
        golden: the ways to see the golden ones: where experts are listed, each operator of all of them as
            one, the first two linear ones apart or as one; else what lies between the first and the last
            grouped operator. Likewise target.
        lists: of each list of experts, the nodes of their operators, each with the number of its expert.
        together: the nodes between the first and the last grouped operator, of the other side.
        golden_is_listed: which side lists them.
    """

    golden: Ways
    target: Ways
    lists: tuple[dict[int, int], ...]
    together: frozenset[int]
    golden_is_listed: bool

    def rest(self, ops: Sequence[Op], found: Collection[int], *, golden: bool) -> list[Op]:
        """Return the operators of a layer that are not of experts.

        What looks like the only expert of a list counts as one if some of it was aligned (`found`).
        """
        if golden is not self.golden_is_listed:
            return [op for op in ops if op.node not in self.together]
        gone: set[int] = set()
        for numbers in self.lists:
            if len(set(numbers.values())) > 1 or not numbers.keys().isdisjoint(found):
                gone.update(numbers)
        return [op for op in ops if op.node not in gone]


def set_experts_apart(
    trees: tuple[SliceTree, SliceTree], golden: Sequence[Op], target: Sequence[Op]
) -> Apart | None:
    """Take the operators of experts out of two layers; None unless one lists what the other groups."""
    sides = golden, target
    places = _places(trees[0], golden), _places(trees[1], target)
    if bool(places[0]) is bool(places[1]):
        return None
    listed = 0 if places[0] else 1
    together = _grouped_part(sides[1 - listed])
    if not together:
        return None
    ways = _ways(trees[listed], sides[listed], places[listed])
    lists: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for node, place in places[listed].items():
        lists[place.experts][node] = place.number
    nodes = frozenset(op.node for op in together)
    golden_ways, target_ways = ([together], ways) if listed else (ways, [together])
    return Apart(golden_ways, target_ways, tuple(lists.values()), nodes, golden_is_listed=not listed)


def ops_of_shared(tree: SliceTree, ops: Sequence[Op]) -> list[Op]:
    """Return the operators of a shared expert, as its module is called."""
    return [op for op in ops if is_shared_expert(tree.nodes[op.node].path)]


def with_experts(tree: SliceTree, ops: Sequence[Op]) -> list[Op]:
    """Return operators, those of one expert marked as such; without those of experts that did not run."""
    places = _places(tree, ops)
    ran = {places[op.node][:2] for op in ops if op.node in places and op.shape is not None}
    left_out = {node for node, place in places.items() if ran and place[:2] not in ran}
    return [replace(op, of_expert=True) if op.node in places else op for op in ops if op.node not in left_out]


def _grouped_part(ops: Sequence[Op]) -> list[Op]:
    grouped = [at for at, op in enumerate(ops) if op.kind is OpKind.GROUPED]
    return list(ops[grouped[0] : grouped[-1] + 1]) if grouped else []


def _places(tree: SliceTree, ops: Sequence[Op]) -> dict[int, _Place]:
    """Return where those operators lie that are in an expert, by node."""
    found: dict[int, _Place] = {}
    seen: defaultdict[_Place, int] = defaultdict(int)
    for op in ops:
        module = op.node
        while module != tree.root and is_operator(tree.nodes[module]):
            module = tree.parents[module]
        place = _place(tree.nodes[module].path) if module != tree.root else None
        if place is None:
            continue
        if module != op.node:
            # An operator has no name of its own: it is the first of its type in its module, or the second.
            place = place._replace(name=(place.name, tree.nodes[op.node].type_name))
            seen[place] += 1
            place = place._replace(name=(place.name, seen[place]))
        found[op.node] = place
    return found


def _place(path: str) -> _Place | None:
    """Return where a module lies that is in an expert, by its path; a shared one is none of a list."""
    names = path.split(".")
    for at, (name, number) in enumerate(pairwise(names)):
        if not is_expert_list(name) or not number.isascii() or not number.isdigit():
            continue
        if len(number) > MOST_DIGITS or is_shared(name):
            return None
        return _Place(".".join(names[: at + 1]), int(number), ".".join(names[at + 2 :]))
    return None


def _ways(tree: SliceTree, ops: Sequence[Op], places: Mapping[int, _Place]) -> Ways:
    columns = _columns(tree, ops, places)
    pair = _side_by_side(tree, columns)
    if pair is None:
        return [[_whole([column]) for column in columns]]
    # What may lie side by side does not depend on one another: it stands together, whatever ran between.
    both = [columns[at] for at in pair]
    before = [_whole([column]) for column in columns[: min(pair)]]
    after = [_whole([column]) for at, column in enumerate(columns) if at > min(pair) and at not in pair]
    return [[*before, *map(_whole, ([one] for one in both)), *after], [*before, _whole(both), *after]]


def _columns(tree: SliceTree, ops: Sequence[Op], places: Mapping[int, _Place]) -> list[_Column]:
    """Gather each operator of the experts; one that is not known of all that ran is left out."""
    by_name: defaultdict[tuple[str, Hashable], dict[int, Op]] = defaultdict(dict)
    ran: defaultdict[str, set[int]] = defaultdict(set)
    sizes = {op.node: _rows_and_width(tree, op.node) for op in ops if op.node in places}
    for op in ops:
        place = places.get(op.node)
        if place is None or sizes[op.node] == (0, 0) or op.kind not in GATHERED:
            continue
        by_name[place.experts, place.name][place.number] = op
        if op.kind is OpKind.LINEAR:
            ran[place.experts].add(place.number)
    columns: list[_Column] = []
    for (experts, _), members in by_name.items():
        if members.keys() == ran[experts] and len({op.kind for op in members.values()}) == 1:
            ordered = dict(sorted(members.items()))
            rows, widths = zip(*(sizes[op.node] for op in ordered.values()), strict=True)
            if len(set(widths)) == 1:
                columns.append(_Column(ordered, rows, widths[0]))
    return columns


def _rows_and_width(tree: SliceTree, node: int) -> tuple[int, int]:
    """Return the size of what a node gives as rows; 0 and 0 if it gives none."""
    record = first_output(tree, node)
    if record is None or not record.shape or 0 in record.shape:
        return 0, 0
    return prod(record.shape[:-1]), record.shape[-1]


def _side_by_side(tree: SliceTree, columns: Sequence[_Column]) -> tuple[int, int] | None:
    """Return which two columns may lie side by side, in that order: by name, or as the first of three."""
    firsts = {
        next(iter(column.ops.values())).node: at
        for at, column in enumerate(columns)
        if next(iter(column.ops.values())).kind is OpKind.LINEAR
    }
    named = [nodes for nodes in parts_of_one(tree, firsts) if len(nodes) == 2]  # noqa: PLR2004
    linear = list(firsts.values())
    if named:
        first, second = (firsts[node] for node in named[0])
    elif len(linear) == GATE_UP_DOWN:
        first, second = linear[:2]
    else:
        return None
    one, other = columns[first], columns[second]
    return (first, second) if (one.rows, one.width) == (other.rows, other.width) else None


def _whole(columns: Sequence[_Column]) -> Op:
    """Return the same operators of all experts as one, those of several columns side by side."""
    first = next(iter(columns[0].ops.values()))
    return replace(
        first,
        kind=GATHERED[first.kind],
        shape=(sum(columns[0].rows), sum(column.width for column in columns)),
        parts=tuple(op.node for column in columns for op in column.ops.values()),
        experts=tuple(columns[0].ops),
    )
