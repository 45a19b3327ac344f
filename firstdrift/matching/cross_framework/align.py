"""Align two runs of different frameworks, operator by operator.

    golden   norm  q_proj k_proj v_proj                 o_proj       norm  ...
               ║      ╚══════╬══════╝                      ║          ║
    target   Norm        Linear  Split  Rope  Attention  Linear  Add  Norm  ...

Order is kept: first that of layers and what stands between them, then that of the operators of each layer.
What an operator does, in which part of the layer, and how wide its output is decide; values, where they are
recorded, decide between what is equal in all that.
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, product
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.matching.cross_framework.layer_ops import Layer, Line, Op, first_input, value_key
from firstdrift.matching.cross_framework.thresholds import (
    FOLLOWING,
    JOINED,
    LARGEST_TABLE,
    MOST_VARIANTS,
    OTHER_BLOCK,
    SAME_BLOCK,
    SAME_NAME,
    SAME_VALUES,
    SAME_WIDTH,
)
from firstdrift.matching.fused.find_fused import parts_of_one
from firstdrift.matching.fused.fused_experts import ops_of_shared, set_experts_apart, with_experts
from firstdrift.matching.structure.sequence_alignment import (
    Pair,
    best_alignment,
    common_subsequence,
    gaps_between,
)
from firstdrift.matching.structure.similarity import name_similarity
from firstdrift.matching.structure.statistics_similarity import agreement
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role
from firstdrift.operators.fused import are_other_parts
from firstdrift.operators.kinds import CHARACTERISTIC, Work

Trees: TypeAlias = tuple[SliceTree, SliceTree]

_WORTH: Final = {
    Work.LOOKUP: 1.0,
    Work.POSITIONS: 1.0,
    Work.NORM: 1.0,
    Work.LINEAR: 1.0,
    Work.GROUPED: 1.0,
    Work.ROTATE: 1.0,
    Work.ATTEND: 1.0,
    Work.CONVOLVE: 1.0,
    Work.ACTIVATE: 0.8,
    Work.GATE: 0.8,
    Work.ADD: 0.6,
    Work.MULTIPLY: 0.6,
    Work.ROUTE: 0.6,
}
"""What it is worth to pair two operators that do the same."""


_LOCAL: Final = frozenset({Work.ADD, Work.MULTIPLY})
"""What there is so much of that it is paired only inside the same part of a layer."""

_ANY_SPLIT: Final = frozenset({Work.NORM, Work.ATTEND, Work.ROTATE})
"""What may give its heads as a dimension of their own."""

_RUN: Final = (2, 3)


class Aligned(Struct, frozen=True):
    """Two operators, or layers, that correspond.

    Attributes:
        golden: the golden one; of several nodes where they were fused in the target. Likewise target.
        doubtful: whether others could stand in its place, and no values tell.
    """

    golden: Op | Layer
    target: Op | Layer
    doubtful: bool = False


def align_lines(trees: Trees, golden: Line, target: Line) -> list[Aligned]:
    """Align layers and what stands between them, then the operators of each pair of layers; in order."""
    pairs = _align_units(trees, golden.units, target.units)
    unsure = _unsure(trees, golden, target, pairs)
    aligned: list[Aligned] = []
    for left, right in pairs:
        one, other = golden.units[left], target.units[right]
        doubtful = (left, right) in unsure
        if isinstance(one, Layer) and isinstance(other, Layer):
            inside = align_ops(trees, one.ops, other.ops)
            aligned += [Aligned(*pair, doubtful) for pair in inside]
        aligned.append(Aligned(one, other, doubtful))
    return aligned


def _align_units(trees: Trees, golden: Sequence[Op | Layer], target: Sequence[Op | Layer]) -> list[Pair]:
    """Align layers and operators by all that speaks for each pair; very many by work and width alone."""

    def gain(left: int, right: int) -> float:
        return _unit_gain(trees, golden[left], target[right])

    if len(golden) * len(target) <= LARGEST_TABLE:
        return best_alignment(len(golden), len(target), gain, FOLLOWING)
    sides = (
        [(at, key) for at, unit in enumerate(golden) if (key := _kind(unit)) is not None],
        [(at, key) for at, unit in enumerate(target) if (key := _kind(unit)) is not None],
    )
    common = common_subsequence([key for _, key in sides[0]], [key for _, key in sides[1]])
    pairs = [(sides[0][left][0], sides[1][right][0]) for left, right in common]
    return [pair for pair in pairs if gain(*pair) > 0]


def _kind(unit: Op | Layer) -> Hashable | None:
    """Return what units that correspond have in common; None for one that corresponds to nothing."""
    if isinstance(unit, Layer):
        return "layer", unit.shape and unit.shape[-1]
    return (unit.work, unit.width) if unit.work in _WORTH else None


def align_ops(trees: Trees, golden: Sequence[Op], target: Sequence[Op]) -> list[tuple[Op, Op]]:
    """Align the operators of two layers, those that were fused on one side as one.

    The order is kept, but for experts: a shared one may run before those that are chosen, or after them.
    """
    shared = ops_of_shared(trees[0], golden), ops_of_shared(trees[1], target)
    if all(shared):
        golden, target = _without(golden, shared[0]), _without(target, shared[1])
        return align_ops(trees, golden, target) + _align_in_order(trees, *shared)
    apart = set_experts_apart(trees, golden, target)
    if apart is None:
        return _align_in_order(trees, with_experts(trees[0], golden), with_experts(trees[1], target))
    found = _align_variants(trees, apart.golden, apart.target)
    rest = (
        apart.rest(golden, {node for op, _ in found for node in op.nodes}, golden=True),
        apart.rest(target, {node for _, op in found for node in op.nodes}, golden=False),
    )
    return _align_in_order(trees, *rest) + found


def _without(ops: Sequence[Op], others: Sequence[Op]) -> list[Op]:
    gone = {op.node for op in others}
    return [op for op in ops if op.node not in gone]


def _align_in_order(trees: Trees, golden: Sequence[Op], target: Sequence[Op]) -> list[tuple[Op, Op]]:
    return _align_variants(trees, _variants(trees[0], golden, target), _variants(trees[1], target, golden))


def _align_variants(
    trees: Trees, golden: Sequence[Sequence[Op]], target: Sequence[Sequence[Op]]
) -> list[tuple[Op, Op]]:
    """Align two lists of operators in order, each of which can be seen in several ways."""
    best: list[tuple[Op, Op]] = []
    most = -1.0
    # Each way weighs all pairs: of very long layers fewer are tried.
    largest = max(map(len, golden), default=0) * max(map(len, target), default=0)
    most_tried = max(2, min(MOST_VARIANTS, LARGEST_TABLE // max(1, largest)))
    for first, second in islice(product(golden, target), most_tried):
        gains = [[op_gain(trees, one, other) for other in second] for one in first]
        pairs = _best(gains)
        total = sum(gains[left][right] for left, right in pairs)
        if total > most:
            most, best = total, [(first[left], second[right]) for left, right in pairs]
    return best


def _best(gains: list[list[float]]) -> list[Pair]:
    width = len(gains[0]) if gains else 0
    return best_alignment(len(gains), width, lambda left, right: gains[left][right], FOLLOWING)


def op_gain(trees: Trees, golden: Op, target: Op) -> float:
    """Return what it is worth to pair two operators; 0 if they cannot be the same."""
    worth = _WORTH.get(golden.work, 0.0)
    if golden.work is not target.work or (golden.parts and target.parts) or not worth:
        return 0.0
    worth += JOINED * (len(golden.nodes) + len(target.nodes) - 2)
    if golden.width is not None and target.width is not None:
        if not _fit(golden, target):
            return 0.0
        is_sure = not golden.other_widths and not target.other_widths
        worth += SAME_WIDTH if is_sure or golden.width == target.width else 0.0
    elif golden.parts or target.parts:
        return 0.0
    if golden.block and golden.block == target.block:
        worth += SAME_BLOCK
    elif golden.work in _LOCAL and golden.block != target.block:
        return 0.0
    elif golden.block and target.block:
        worth *= OTHER_BLOCK
    nodes = _node(trees[0], golden), _node(trees[1], target)
    names = trees[0].relative_name(golden.node), trees[1].relative_name(target.node)
    if golden.work is Work.LINEAR and not golden.parts and not target.parts and are_other_parts(*names):
        return 0.0
    worth += SAME_NAME * _likeness(*names)
    return worth + SAME_VALUES * (agreement(*nodes, Role.OUTPUT) or 0.0)


_likeness = lru_cache(maxsize=4096)(name_similarity)


def _fit(golden: Op, target: Op) -> bool:
    of_experts = golden.experts or target.experts or golden.of_expert or target.of_expert
    if golden.work is Work.GROUPED or of_experts:
        return golden.width == target.width and golden.size == target.size
    if golden.may_be_as_wide_as(target):
        return True
    return golden.work in _ANY_SPLIT and golden.may_be_as_large_as(target)


def _node(tree: SliceTree, op: Op) -> Node:
    return tree.nodes[op.node]


def _unit_gain(trees: Trees, golden: Op | Layer, target: Op | Layer) -> float:
    if isinstance(golden, Op) and isinstance(target, Op):
        return op_gain(trees, golden, target)
    if not isinstance(golden, Layer) or not isinstance(target, Layer):
        return 0.0
    worth = 2.0
    if golden.shape and target.shape:
        widths = [{layer.shape[-1], *layer.other_widths} for layer in (golden, target) if layer.shape]
        if widths[0].isdisjoint(widths[1]):
            return 0.0
        worth += SAME_WIDTH
    if golden.ops and target.ops:
        norms = [sum(op.work is Work.NORM for op in layer.ops) for layer in (golden, target)]
        worth += SAME_BLOCK * (norms[0] == norms[1])
    nodes = trees[0].nodes[golden.node], trees[1].nodes[target.node]
    return worth + SAME_VALUES * (agreement(*nodes, Role.OUTPUT) or 0.0)


def _unsure(trees: Trees, golden: Line, target: Line, pairs: list[Pair]) -> set[Pair]:
    """Return the pairs of layers in whose stretch one side has more of them, unless their values agree."""
    ops = [pair for pair in pairs if isinstance(golden.units[pair[0]], Op)]
    unsure: set[Pair] = set()
    for left, right in gaps_between(ops, len(golden.units), len(target.units)):
        counts = (
            sum(isinstance(golden.units[at], Layer) for at in left),
            sum(isinstance(target.units[at], Layer) for at in right),
        )
        if counts[0] == counts[1]:
            continue
        for pair in pairs:
            if pair[0] in left and isinstance(golden.units[pair[0]], Layer):
                nodes = (
                    trees[0].nodes[golden.units[pair[0]].node],
                    trees[1].nodes[target.units[pair[1]].node],
                )
                if (agreement(*nodes, Role.OUTPUT) or 0.0) < SAME_VALUES / 2:
                    unsure.add(pair)
    return unsure


def _variants(tree: SliceTree, ops: Sequence[Op], others: Sequence[Op]) -> list[list[Op]]:
    """Return the ways to see a layer: with each group of operators apart, as one operator, or partly so.

    Only what is as wide as an operator of the other side is seen as one. Operators of one group do not
    depend on one another: they stand together, whatever ran between them, if they or their names say that
    they may be one.
    """
    widths = {width for op in others if op.work is Work.LINEAR for width in (op.width, *op.other_widths)}
    groups = list(_groups(tree, ops))
    choices: list[list[tuple[Op, ...]]] = []
    for group in groups:
        ways = [group] + ([group[1:]] if len(group) > 2 else [])  # noqa: PLR2004 (q apart from k and v)
        choices.append([(), *(way for way in ways if sum(op.width or 0 for op in way) in widths)])
    named = set(parts_of_one(tree, [op.node for group in groups for op in group]))
    bound = [
        group
        for group, ways in zip(groups, choices, strict=True)
        if len(ways) > 1 or tuple(op.node for op in group) in named
    ]
    together = _together(ops, bound)
    usual = dict.fromkeys([tuple(ways[0] for ways in choices), tuple(ways[:2][-1] for ways in choices)])
    # Of many groups there are more ways than can be gone through: they are never listed.
    rest = (chosen for chosen in product(*choices) if chosen not in usual)
    return [_seen(together, chosen) for chosen in islice(chain(usual, rest), MOST_VARIANTS)]


def _together(ops: Sequence[Op], groups: Sequence[tuple[Op, ...]]) -> list[Op]:
    """Return operators with those of each group one after another, at the place of the first."""
    group_of = {op.node: group for group in groups for op in group}
    ordered: dict[int, Op] = {}
    for op in ops:
        members = group_of.get(op.node, (op,))
        ordered.update({member.node: member for member in members if member.node not in ordered})
    return list(ordered.values())


def _seen(ops: Sequence[Op], chosen: Sequence[tuple[Op, ...]]) -> list[Op]:
    """Return a layer with each of the chosen groups as one operator, at the place of its first."""
    joined = {group[0].node: _as_one(group) for group in chosen if group}
    gone = {op.node for group in chosen for op in group[1:]}
    return [joined.get(op.node, op) for op in ops if op.node not in gone]


def _as_one(group: tuple[Op, ...]) -> Op:
    first = group[0]
    shape = (*(first.shape or ())[:-1], sum(op.width or 0 for op in group))
    nodes = tuple(op.node for op in group)
    return Op(first.node, Work.LINEAR, first.block, shape, nodes, of_expert=first.of_expert)


def _groups(tree: SliceTree, ops: Sequence[Op]) -> Iterator[tuple[Op, ...]]:
    """Yield linear operators that may have been fused: of one input, or of names that belong together."""
    linear = [op for op in ops if op.work is Work.LINEAR and op.width is not None]
    by_node = {op.node: op for op in linear}
    seen: set[int] = set()
    for nodes in parts_of_one(tree, list(by_node)):
        if not seen.intersection(nodes):
            seen.update(nodes)
            yield tuple(by_node[node] for node in nodes)
    by_input: dict[object, list[Op]] = {}
    for op in linear:
        key = value_key(first_input(tree, op.node))
        if key is not None and op.node not in seen:
            by_input.setdefault((key, tree.parents[op.node]), []).append(op)
    seen.update(op.node for group in by_input.values() for op in group)
    yield from (tuple(group) for group in by_input.values() if len(group) > 1)
    yield from _runs([op for op in ops if op.node not in seen])


def _runs(ops: Sequence[Op]) -> Iterator[tuple[Op, ...]]:
    """Yield two or three linear operators of one part of a layer with nothing characteristic between them."""
    run: list[Op] = []
    for op in (*ops, None):
        if op is not None and op.work is Work.LINEAR and (not run or run[-1].block == op.block):
            run.append(op)
        elif op is None or op.work in CHARACTERISTIC:
            if len(run) in _RUN and all(op.width is not None for op in run):
                yield tuple(run)
            run = [op] if op is not None and op.work is Work.LINEAR else []
