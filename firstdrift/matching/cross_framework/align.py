"""Align two runs of different frameworks, step by step.

    golden   norm  q_proj k_proj v_proj                 o_proj       norm  ...
               ║      ╚══════╬══════╝                      ║          ║
    target   Norm        Linear  Split  Rope  Attention  Linear  Add  Norm  ...

Order is kept: first that of layers and what stands between them, then that of the steps of each layer.
What a step does, in which part of the layer, and how wide its output is decide; values, where they are
recorded, decide between what is equal in all that.
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, product
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.matching.cross_framework.layer_ops import Layer, Line, Step, first_input, value_key
from firstdrift.matching.fused.find_fused import parts_of_one
from firstdrift.matching.fused.fused_experts import set_experts_apart, steps_of_shared, with_experts
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
"""What it is worth to pair two steps that do the same."""

_SAME_BLOCK: Final = 0.3
_OTHER_BLOCK: Final = 0.2
_SAME_WIDTH: Final = 0.3
_SAME_NAME: Final = 0.1
_SAME_VALUES: Final = 1.0
_JOINED: Final = 0.6
"""What each part of a fused step counts beyond the first."""

_FOLLOWING: Final = 1e-3
_LOCAL: Final = frozenset({Work.ADD, Work.MULTIPLY})
"""What there is so much of that it is paired only inside the same part of a layer."""

_ANY_SPLIT: Final = frozenset({Work.NORM, Work.ATTEND, Work.ROTATE})
"""What may give its heads as a dimension of their own."""

_RUN: Final = (2, 3)
_MOST_VARIANTS: Final = 64
_LARGEST_TABLE: Final = 1_000_000
"""Pairs of units, or of steps, up to which each is weighed."""


class Aligned(Struct, frozen=True):
    """Two steps, or layers, that correspond.

    Attributes:
        golden: the golden one; of several nodes where they were fused in the target. Likewise target.
        doubtful: whether others could stand in its place, and no values tell.
    """

    golden: Step | Layer
    target: Step | Layer
    doubtful: bool = False


def align_lines(trees: Trees, golden: Line, target: Line) -> list[Aligned]:
    """Align layers and what stands between them, then the steps of each pair of layers; in order."""
    pairs = _align_units(trees, golden.units, target.units)
    unsure = _unsure(trees, golden, target, pairs)
    aligned: list[Aligned] = []
    for left, right in pairs:
        one, other = golden.units[left], target.units[right]
        doubtful = (left, right) in unsure
        if isinstance(one, Layer) and isinstance(other, Layer):
            inside = align_steps(trees, one.steps, other.steps)
            aligned += [Aligned(*pair, doubtful) for pair in inside]
        aligned.append(Aligned(one, other, doubtful))
    return aligned


def _align_units(trees: Trees, golden: Sequence[Step | Layer], target: Sequence[Step | Layer]) -> list[Pair]:
    """Align layers and steps by all that speaks for each pair; very many by work and width alone."""

    def gain(left: int, right: int) -> float:
        return _unit_gain(trees, golden[left], target[right])

    if len(golden) * len(target) <= _LARGEST_TABLE:
        return best_alignment(len(golden), len(target), gain, _FOLLOWING)
    sides = (
        [(at, key) for at, unit in enumerate(golden) if (key := _kind(unit)) is not None],
        [(at, key) for at, unit in enumerate(target) if (key := _kind(unit)) is not None],
    )
    common = common_subsequence([key for _, key in sides[0]], [key for _, key in sides[1]])
    pairs = [(sides[0][left][0], sides[1][right][0]) for left, right in common]
    return [pair for pair in pairs if gain(*pair) > 0]


def _kind(unit: Step | Layer) -> Hashable | None:
    """Return what units that correspond have in common; None for one that corresponds to nothing."""
    if isinstance(unit, Layer):
        return "layer", unit.shape and unit.shape[-1]
    return (unit.work, unit.width) if unit.work in _WORTH else None


def align_steps(trees: Trees, golden: Sequence[Step], target: Sequence[Step]) -> list[tuple[Step, Step]]:
    """Align the steps of two layers, those that were fused on one side as one.

    The order is kept, but for experts: a shared one may run before those that are chosen, or after them.
    """
    shared = steps_of_shared(trees[0], golden), steps_of_shared(trees[1], target)
    if all(shared):
        golden, target = _without(golden, shared[0]), _without(target, shared[1])
        return align_steps(trees, golden, target) + _align_in_order(trees, *shared)
    apart = set_experts_apart(trees, golden, target)
    if apart is None:
        return _align_in_order(trees, with_experts(trees[0], golden), with_experts(trees[1], target))
    found = _align_variants(trees, apart.golden, apart.target)
    rest = (
        apart.rest(golden, {node for step, _ in found for node in step.nodes}, golden=True),
        apart.rest(target, {node for _, step in found for node in step.nodes}, golden=False),
    )
    return _align_in_order(trees, *rest) + found


def _without(steps: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    gone = {step.node for step in others}
    return [step for step in steps if step.node not in gone]


def _align_in_order(trees: Trees, golden: Sequence[Step], target: Sequence[Step]) -> list[tuple[Step, Step]]:
    return _align_variants(trees, _variants(trees[0], golden, target), _variants(trees[1], target, golden))


def _align_variants(
    trees: Trees, golden: Sequence[Sequence[Step]], target: Sequence[Sequence[Step]]
) -> list[tuple[Step, Step]]:
    """Align two lists of steps in order, each of which can be seen in several ways."""
    best: list[tuple[Step, Step]] = []
    most = -1.0
    # Each way weighs all pairs: of very long layers fewer are tried.
    largest = max(map(len, golden), default=0) * max(map(len, target), default=0)
    most_tried = max(2, min(_MOST_VARIANTS, _LARGEST_TABLE // max(1, largest)))
    for first, second in islice(product(golden, target), most_tried):
        gains = [[step_gain(trees, one, other) for other in second] for one in first]
        pairs = _best(gains)
        total = sum(gains[left][right] for left, right in pairs)
        if total > most:
            most, best = total, [(first[left], second[right]) for left, right in pairs]
    return best


def _best(gains: list[list[float]]) -> list[Pair]:
    width = len(gains[0]) if gains else 0
    return best_alignment(len(gains), width, lambda left, right: gains[left][right], _FOLLOWING)


def step_gain(trees: Trees, golden: Step, target: Step) -> float:
    """Return what it is worth to pair two steps; 0 if they cannot be the same."""
    worth = _WORTH.get(golden.work, 0.0)
    if golden.work is not target.work or (golden.parts and target.parts) or not worth:
        return 0.0
    worth += _JOINED * (len(golden.nodes) + len(target.nodes) - 2)
    if golden.width is not None and target.width is not None:
        if not _fit(golden, target):
            return 0.0
        is_sure = not golden.other_widths and not target.other_widths
        worth += _SAME_WIDTH if is_sure or golden.width == target.width else 0.0
    elif golden.parts or target.parts:
        return 0.0
    if golden.block and golden.block == target.block:
        worth += _SAME_BLOCK
    elif golden.work in _LOCAL and golden.block != target.block:
        return 0.0
    elif golden.block and target.block:
        worth *= _OTHER_BLOCK
    nodes = _node(trees[0], golden), _node(trees[1], target)
    names = trees[0].relative_name(golden.node), trees[1].relative_name(target.node)
    if golden.work is Work.LINEAR and not golden.parts and not target.parts and are_other_parts(*names):
        return 0.0
    worth += _SAME_NAME * _likeness(*names)
    return worth + _SAME_VALUES * (agreement(*nodes, Role.OUTPUT) or 0.0)


_likeness = lru_cache(maxsize=4096)(name_similarity)


def _fit(golden: Step, target: Step) -> bool:
    of_experts = golden.experts or target.experts or golden.of_expert or target.of_expert
    if golden.work is Work.GROUPED or of_experts:
        return golden.width == target.width and golden.size == target.size
    if golden.may_be_as_wide_as(target):
        return True
    return golden.work in _ANY_SPLIT and golden.may_be_as_large_as(target)


def _node(tree: SliceTree, step: Step) -> Node:
    return tree.nodes[step.node]


def _unit_gain(trees: Trees, golden: Step | Layer, target: Step | Layer) -> float:
    if isinstance(golden, Step) and isinstance(target, Step):
        return step_gain(trees, golden, target)
    if not isinstance(golden, Layer) or not isinstance(target, Layer):
        return 0.0
    worth = 2.0
    if golden.shape and target.shape:
        widths = [{layer.shape[-1], *layer.other_widths} for layer in (golden, target) if layer.shape]
        if widths[0].isdisjoint(widths[1]):
            return 0.0
        worth += _SAME_WIDTH
    if golden.steps and target.steps:
        norms = [sum(step.work is Work.NORM for step in layer.steps) for layer in (golden, target)]
        worth += _SAME_BLOCK * (norms[0] == norms[1])
    nodes = trees[0].nodes[golden.node], trees[1].nodes[target.node]
    return worth + _SAME_VALUES * (agreement(*nodes, Role.OUTPUT) or 0.0)


def _unsure(trees: Trees, golden: Line, target: Line, pairs: list[Pair]) -> set[Pair]:
    """Return the pairs of layers in whose stretch one side has more of them, unless their values agree."""
    steps = [pair for pair in pairs if isinstance(golden.units[pair[0]], Step)]
    unsure: set[Pair] = set()
    for left, right in gaps_between(steps, len(golden.units), len(target.units)):
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
                if (agreement(*nodes, Role.OUTPUT) or 0.0) < _SAME_VALUES / 2:
                    unsure.add(pair)
    return unsure


def _variants(tree: SliceTree, steps: Sequence[Step], others: Sequence[Step]) -> list[list[Step]]:
    """Return the ways to see a layer: with each group of steps apart, each as one step, or some of them.

    Only what is as wide as a step of the other side is seen as one. Steps of one group do not depend on one
    another: they stand together, whatever ran between them, if one or their names say that they may be one.
    """
    widths = {
        width for step in others if step.work is Work.LINEAR for width in (step.width, *step.other_widths)
    }
    groups = list(_groups(tree, steps))
    choices: list[list[tuple[Step, ...]]] = []
    for group in groups:
        ways = [group] + ([group[1:]] if len(group) > 2 else [])  # noqa: PLR2004 (q apart from k and v)
        choices.append([(), *(way for way in ways if sum(step.width or 0 for step in way) in widths)])
    named = set(parts_of_one(tree, [step.node for group in groups for step in group]))
    bound = [
        group
        for group, ways in zip(groups, choices, strict=True)
        if len(ways) > 1 or tuple(step.node for step in group) in named
    ]
    together = _together(steps, bound)
    usual = dict.fromkeys([tuple(ways[0] for ways in choices), tuple(ways[:2][-1] for ways in choices)])
    # Of many groups there are more ways than can be gone through: they are never listed.
    rest = (chosen for chosen in product(*choices) if chosen not in usual)
    return [_seen(together, chosen) for chosen in islice(chain(usual, rest), _MOST_VARIANTS)]


def _together(steps: Sequence[Step], groups: Sequence[tuple[Step, ...]]) -> list[Step]:
    """Return steps with those of each group one after another, at the place of the first."""
    group_of = {step.node: group for group in groups for step in group}
    ordered: dict[int, Step] = {}
    for step in steps:
        members = group_of.get(step.node, (step,))
        ordered.update({member.node: member for member in members if member.node not in ordered})
    return list(ordered.values())


def _seen(steps: Sequence[Step], chosen: Sequence[tuple[Step, ...]]) -> list[Step]:
    """Return a layer with each of the chosen groups as one step, at the place of its first."""
    joined = {group[0].node: _as_one(group) for group in chosen if group}
    gone = {step.node for group in chosen for step in group[1:]}
    return [joined.get(step.node, step) for step in steps if step.node not in gone]


def _as_one(group: tuple[Step, ...]) -> Step:
    first = group[0]
    shape = (*(first.shape or ())[:-1], sum(step.width or 0 for step in group))
    nodes = tuple(step.node for step in group)
    return Step(first.node, Work.LINEAR, first.block, shape, nodes, of_expert=first.of_expert)


def _groups(tree: SliceTree, steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield linear steps that may have been fused: of one input, or of names that belong together."""
    linear = [step for step in steps if step.work is Work.LINEAR and step.width is not None]
    by_node = {step.node: step for step in linear}
    seen: set[int] = set()
    for nodes in parts_of_one(tree, list(by_node)):
        if not seen.intersection(nodes):
            seen.update(nodes)
            yield tuple(by_node[node] for node in nodes)
    by_input: dict[object, list[Step]] = {}
    for step in linear:
        key = value_key(first_input(tree, step.node))
        if key is not None and step.node not in seen:
            by_input.setdefault((key, tree.parents[step.node]), []).append(step)
    seen.update(step.node for group in by_input.values() for step in group)
    yield from (tuple(group) for group in by_input.values() if len(group) > 1)
    yield from _runs([step for step in steps if step.node not in seen])


def _runs(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield two or three linear steps of one part of a layer with nothing characteristic between them."""
    run: list[Step] = []
    for step in (*steps, None):
        if step is not None and step.work is Work.LINEAR and (not run or run[-1].block == step.block):
            run.append(step)
        elif step is None or step.work in CHARACTERISTIC:
            if len(run) in _RUN and all(step.width is not None for step in run):
                yield tuple(run)
            run = [step] if step is not None and step.work is Work.LINEAR else []
