"""Experts that ran one by one on one side, and together on the other.

    torch   experts.0.gate_proj [3, 64]   experts.0.up_proj [3, 64]   experts.2.gate_proj [5, 64]   ...
    ATB     GroupedMatmulOperation [8, 128]

The rows of all experts that were given some lie one after another, in the order of their numbers; what an
expert computes of one input may lie side by side. That they are the same has to follow from the shapes: the
rows add up to those of the whole, and so do the columns.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import not_in
from firstdrift.matching.cross_framework.layer_ops import Layer, Op, first_output
from firstdrift.matching.fused.find_fused import parts_of_one
from firstdrift.matching.fused.joined_tensors import golden_first
from firstdrift.matching.fused.thresholds import MOST_DIGITS
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

    @property
    def first(self) -> Op:
        return next(iter(self.ops.values()))


def has_experts(tree: SliceTree, layer: Layer) -> bool:
    """Tell whether a layer has experts, by what its operators do and where in it they lie."""
    before = len(tree.nodes[layer.node].path)
    return any(
        op.kind is OpKind.GROUPED or holds_experts(tree.nodes[op.node].path, before) for op in layer.ops
    )


class Apart(Struct, frozen=True):
    """The operators of experts of one of two layers, which are aligned by themselves.

    Attributes:
        ways: the ways to see them: where experts are listed, each operator of all of them as one, the first
            two linear ones apart or as one; else what lies between the first and the last grouped operator.
        nodes: their nodes, those of each list of experts by themselves, and whether it is sure that they are
            experts': what looks like the only expert of a list may be none.
    """

    ways: Ways
    nodes: tuple[tuple[frozenset[int], bool], ...]

    def rest(self, ops: Sequence[Op], aligned: Iterable[Op]) -> list[Op]:
        """Return the operators of a layer that are not of experts; what was aligned shows who is one."""
        found = {node for op in aligned for node in op.nodes}
        gone = (nodes for nodes, is_sure in self.nodes if is_sure or not nodes.isdisjoint(found))
        all_gone = frozenset[int]().union(*gone)
        return [op for op in ops if op.node not in all_gone]


def set_experts_apart(
    trees: tuple[SliceTree, SliceTree], golden: Sequence[Op], target: Sequence[Op]
) -> tuple[Apart, Apart] | None:
    """Take the operators of experts out of two layers; None unless one lists what the other groups."""
    sides = golden, target
    places = _places(trees[0], golden), _places(trees[1], target)
    listed = bool(places[1])
    together = _grouped_part(sides[not listed])
    if bool(places[0]) is listed or not together:
        return None
    lists: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for node, place in places[listed].items():
        lists[place.experts][node] = place.number
    nodes = tuple((frozenset(numbers), len(set(numbers.values())) > 1) for numbers in lists.values())
    one_by_one = Apart(_ways(trees[listed], sides[listed], places[listed]), nodes)
    grouped = Apart([together], ((frozenset(op.node for op in together), True),))
    return golden_first(one_by_one, grouped, own_is_golden=not listed)


def ops_of_shared(tree: SliceTree, ops: Sequence[Op]) -> list[Op]:
    """Return the operators of a shared expert, as its module is called."""
    return [op for op in ops if is_shared_expert(tree.nodes[op.node].path)]


def with_experts(tree: SliceTree, ops: Sequence[Op]) -> list[Op]:
    """Return operators, those of one expert marked as such; without those of experts that did not run."""
    experts = {node: (place.experts, place.number) for node, place in _places(tree, ops).items()}
    ran = {experts.get(op.node) for op in ops if op.shape is not None} - {None} or set(experts.values())
    here = [op for op in ops if experts.get(op.node) in {None, *ran}]
    return [replace(op, of_expert=op.node in experts) for op in here]


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
    both = _side_by_side(tree, columns)
    # What may lie side by side does not depend on one another: it stands together, whatever ran between.
    at = min(map(columns.index, both), default=0)
    before, after = columns[:at], not_in(columns[at:], both)
    apart = list(map(_whole, (*before, *both, *after)))
    return [apart, [*apart[:at], _whole(*both), *apart[at + len(both) :]]] if both else [apart]


def _columns(tree: SliceTree, ops: Sequence[Op], places: Mapping[int, _Place]) -> list[_Column]:
    """Gather each operator of the experts; one that is not known of all that ran is left out."""
    by_name: defaultdict[tuple[str, Hashable], dict[int, Op]] = defaultdict(dict)
    ran: defaultdict[str, set[int]] = defaultdict(set)
    for op in ops:
        place = places.get(op.node)
        if place and op.kind in GATHERED and _rows_and_width(tree, op) != (0, 0):
            by_name[place.experts, place.name][place.number] = op
            if op.kind is OpKind.LINEAR:
                ran[place.experts].add(place.number)
    of_all = (members for (experts, _), members in by_name.items() if members.keys() == ran[experts])
    return list(filter(None, (_column(tree, dict(sorted(members.items()))) for members in of_all)))


def _column(tree: SliceTree, ops: Mapping[int, Op]) -> _Column | None:
    """Return the same operator of all experts, by their numbers; None where it is not as wide, or another."""
    rows, widths = zip(*(_rows_and_width(tree, op) for op in ops.values()), strict=True)
    kinds = {op.kind for op in ops.values()}
    return _Column(ops, rows, widths[0]) if len(kinds) == len(set(widths)) == 1 else None


def _rows_and_width(tree: SliceTree, op: Op) -> tuple[int, int]:
    """Return the size of what an operator gives as rows; 0 and 0 if it gives none."""
    record = first_output(tree, op.node)
    if record is None or not record.shape or 0 in record.shape:
        return 0, 0
    return prod(record.shape[:-1]), record.shape[-1]


def _side_by_side(tree: SliceTree, columns: Sequence[_Column]) -> list[_Column]:
    """Return which two columns may lie side by side, in that order, by their names."""
    linear = {column.first.node: column for column in columns if column.first.kind is OpKind.LINEAR}
    named = (nodes for nodes in parts_of_one(tree, linear) if len(nodes) == 2)  # noqa: PLR2004
    both = [linear[node] for node in next(named, ())]
    return both if len({(column.rows, column.width) for column in both}) == 1 else []


def _whole(*columns: _Column) -> Op:
    """Return the same operators of all experts as one, those of several columns side by side."""
    first = columns[0].first
    return replace(
        first,
        kind=GATHERED[first.kind],
        shape=(sum(columns[0].rows), sum(column.width for column in columns)),
        parts=tuple(op.node for column in columns for op in column.ops.values()),
        experts=tuple(columns[0].ops),
    )
