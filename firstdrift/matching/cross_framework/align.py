"""Align two runs of different frameworks, operator by operator.

    golden   norm  q_proj k_proj v_proj                 o_proj       norm  ...
               ║      ╚══════╬══════╝                      ║          ║
    target   Norm        Linear  Split  Rope  Attention  Linear  Add  Norm  ...

Order is kept: first that of layers and what stands between them, then that of the operators of each layer.
What an operator does, in which part of the layer, and how wide its output is decide; values, where they are
recorded, decide between what is equal in all that.
"""

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache, lru_cache, partial
from itertools import chain, islice, product, starmap
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.groups import firsts, seconds
from firstdrift.matching.cross_framework.layer_ops import Layer, Line, Op, first_input
from firstdrift.matching.cross_framework.layer_variants import layer_variants
from firstdrift.matching.cross_framework.thresholds import (
    FOLLOWING,
    JOINED,
    LARGEST_TABLE,
    LARGEST_TABLE_OF_LAYERS,
    MOST_VARIANTS,
    OTHER_BLOCK,
    SAME_BLOCK,
    SAME_NAME,
    SAME_VALUES,
    SAME_WEIGHTS,
    SAME_WIDTH,
)
from firstdrift.matching.cross_framework.weights import have_same_weights, share_of_weights
from firstdrift.matching.fused.fused_experts import ops_of_shared, set_experts_apart, with_experts
from firstdrift.matching.structure.sequence_alignment import (
    Pair,
    best_alignment,
    common_subsequence,
    gaps_between,
)
from firstdrift.matching.structure.similarity import name_similarity
from firstdrift.matching.structure.statistics_similarity import agreement
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.tensor import Role
from firstdrift.operators.fused import are_other_parts
from firstdrift.operators.kinds import CHARACTERISTIC, OpKind

Trees: TypeAlias = tuple[SliceTree, SliceTree]

_WORTH: Final = dict.fromkeys((*CHARACTERISTIC, OpKind.POSITIONS), 1.0) | {
    OpKind.ACTIVATE: 0.8,
    OpKind.GATE: 0.8,
    OpKind.ADD: 0.6,
    OpKind.MULTIPLY: 0.6,
    OpKind.ROUTE: 0.6,
}
"""What it is worth to pair two operators that do the same."""

_LOCAL: Final = frozenset({OpKind.ADD, OpKind.MULTIPLY})
"""What there is so much of that it is paired only inside the same part of a layer."""

_NAMED: Final = frozenset({OpKind.LINEAR, OpKind.NORM})
"""What there are several of in one part of a layer, so that names tell them apart."""

_ANY_SPLIT: Final = frozenset({OpKind.NORM, OpKind.ATTEND, OpKind.ROTATE})
"""What may give its heads as a dimension of their own."""


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
    for pair in pairs:
        left, right = golden.units[pair[0]], target.units[pair[1]]
        if isinstance(left, Layer) and isinstance(right, Layer):
            aligned += [Aligned(*ops, pair in unsure) for ops in align_ops(trees, left.ops, right.ops)]
        aligned.append(Aligned(left, right, pair in unsure))
    return aligned


def _align_units(trees: Trees, golden: Sequence[Op | Layer], target: Sequence[Op | Layer]) -> list[Pair]:
    """Align layers and operators by all that speaks for each pair; very many by kind and width alone."""

    def gain(left: int, right: int) -> float:
        return _unit_gain(trees, golden[left], target[right])

    if len(golden) * len(target) <= LARGEST_TABLE_OF_LAYERS:
        return best_alignment(len(golden), len(target), gain, FOLLOWING)
    left, right = _kinds_and_widths(golden), _kinds_and_widths(target)
    common = common_subsequence(list(left.values()), list(right.values()))
    places = list(left), list(right)
    pairs = [(places[0][first], places[1][second]) for first, second in common]
    return [pair for pair in pairs if gain(*pair) > 0]


def _kinds_and_widths(units: Sequence[Op | Layer]) -> dict[int, Hashable]:
    """Return what units that correspond have in common, by place; without what corresponds to nothing."""
    return {
        at: ("layer", unit.shape and unit.shape[-1]) if isinstance(unit, Layer) else (unit.kind, unit.width)
        for at, unit in enumerate(units)
        if isinstance(unit, Layer) or unit.kind in _WORTH
    }


def _unsure(trees: Trees, golden: Line, target: Line, pairs: list[Pair]) -> set[Pair]:
    """Return the pairs of layers in whose stretch one side has more of them, unless their values agree."""
    ops = [pair for pair in pairs if isinstance(golden.units[pair[0]], Op)]
    stretches = gaps_between(ops, len(golden.units), len(target.units))
    uneven = [left for left, right in stretches if _layers(golden, left) != _layers(target, right)]
    open_places = set(chain.from_iterable(uneven))
    return {
        (left, right)
        for left, right in pairs
        if left in open_places
        and _value_gain(trees, golden.units[left], target.units[right]) < SAME_VALUES / 2
    }


def _layers(line: Line, places: range) -> int:
    return sum(isinstance(line.units[at], Layer) for at in places)


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
    experts = _align_variants(trees, apart[0].ways, apart[1].ways)
    rest = (
        apart[0].rest(golden, firsts(experts)),
        apart[1].rest(target, seconds(experts)),
    )
    return _align_in_order(trees, *rest) + experts


def _without(ops: Sequence[Op], others: Sequence[Op]) -> list[Op]:
    gone = {op.node for op in others}
    return [op for op in ops if op.node not in gone]


def _align_in_order(trees: Trees, golden: Sequence[Op], target: Sequence[Op]) -> list[tuple[Op, Op]]:
    variants = layer_variants(trees[0], golden, target), layer_variants(trees[1], target, golden)
    return _align_variants(trees, *variants)


def _align_variants(
    trees: Trees, golden: Sequence[Sequence[Op]], target: Sequence[Sequence[Op]]
) -> list[tuple[Op, Op]]:
    """Align two lists of operators in order, each of which can be seen in several ways; the best counts."""
    # Each way weighs all pairs: of very long layers fewer are tried.
    largest = max(map(len, golden), default=0) * max(map(len, target), default=0)
    most_tried = max(2, min(MOST_VARIANTS, LARGEST_TABLE // max(1, largest)))
    # Most operators stand in all ways: each two are weighed once.
    gain = cache(partial(op_gain, trees))
    tried = [_align_variant(gain, *ways) for ways in islice(product(golden, target), most_tried)]
    return max(tried, key=lambda alignment: alignment[0], default=(0.0, []))[1]


def _align_variant(
    gain: Callable[[Op, Op], float], golden: Sequence[Op], target: Sequence[Op]
) -> tuple[float, list[tuple[Op, Op]]]:
    gains = [[gain(one, other) for other in target] for one in golden]
    pairs = best_alignment(len(golden), len(target), lambda left, right: gains[left][right], FOLLOWING)
    total = sum(gains[left][right] for left, right in pairs)
    return total, [(golden[left], target[right]) for left, right in pairs]


# ---- what it is worth to pair two


def _unit_gain(trees: Trees, golden: Op | Layer, target: Op | Layer) -> float:
    if isinstance(golden, Op) and isinstance(target, Op):
        return op_gain(trees, golden, target)
    if isinstance(golden, Layer) and isinstance(target, Layer):
        return _layer_gain(trees, golden, target)
    return 0.0


def _layer_gain(trees: Trees, golden: Layer, target: Layer) -> float:
    worth = 2.0
    if golden.shape and target.shape:
        if golden.possible_widths.isdisjoint(target.possible_widths):
            return 0.0
        worth += SAME_WIDTH
    if golden.ops and target.ops:
        worth += SAME_BLOCK * (golden.norms == target.norms)
    return worth + _value_gain(trees, golden, target)


def op_gain(trees: Trees, golden: Op, target: Op) -> float:
    """Return what it is worth to pair two operators; 0 if they cannot be the same."""
    if golden.kind is not target.kind or golden.kind not in _WORTH:  # most pairs end here
        return 0.0
    if not _may_correspond(trees, golden, target):
        return 0.0
    worth = _WORTH[golden.kind] + JOINED * (len(golden.nodes) + len(target.nodes) - 2)
    if None not in (golden.width, target.width):
        is_sure = not (golden.other_widths or target.other_widths)
        worth += SAME_WIDTH * (is_sure or golden.width == target.width)
    if "" not in (golden.block, target.block):
        worth = worth + SAME_BLOCK if golden.block == target.block else worth * OTHER_BLOCK
    worth += SAME_NAME * _name_likeness(*_names(trees, golden, target))
    return worth + _value_gain(trees, golden, target)


def _may_correspond(trees: Trees, golden: Op, target: Op) -> bool:
    """Tell whether two operators of one kind may be the same: block, widths and names tell."""
    fused = [op for op in (golden, target) if op.parts]
    are_known = None not in (golden.width, target.width)
    return (
        len(fused) <= 1
        and (golden.kind not in _LOCAL or golden.block == target.block)
        and (_fit(golden, target) if are_known else not fused)
        and _may_be_called_so(trees, golden, target)
        and _multiply_alike(trees, golden, target)
    )


def _multiply_alike(trees: Trees, golden: Op, target: Op) -> bool:
    """Tell whether two linear operators give as many elements for each that they take."""
    if golden.kind is not OpKind.LINEAR or golden.is_of_experts or target.is_of_experts:
        return True
    shares = _share_given(trees[0], golden), _share_given(trees[1], target)
    return None in shares or shares[0] == shares[1]


def _share_given(tree: SliceTree, op: Op) -> Fraction | None:
    taken = first_input(tree, op.node)
    if is_operator(tree.nodes[op.node]) or taken is None or not taken.shape or not prod(taken.shape):
        return None
    return Fraction(op.size, prod(taken.shape)) if op.size and not (taken.shards or op.other_widths) else None


def _may_be_called_so(trees: Trees, golden: Op, target: Op) -> bool:
    """Tell whether no names say that two operators are other parts of one thing, as query and key."""
    if golden.kind not in _NAMED:
        return True
    names = [
        list(map(tree.relative_name, op.nodes)) for tree, op in zip(trees, (golden, target), strict=True)
    ]
    return not any(starmap(are_other_parts, product(*names)))


def _fit(golden: Op, target: Op) -> bool:
    if golden.is_of_experts or target.is_of_experts:
        return (golden.width, golden.size) == (target.width, target.size)
    if not golden.possible_widths.isdisjoint(target.possible_widths):
        return True
    return golden.kind in _ANY_SPLIT and not golden.possible_sizes.isdisjoint(target.possible_sizes)


_name_likeness = lru_cache(maxsize=4096)(name_similarity)


def _names(trees: Trees, golden: Op, target: Op) -> tuple[str, str]:
    return trees[0].relative_name(golden.node), trees[1].relative_name(target.node)


def _value_gain(trees: Trees, golden: Op | Layer, target: Op | Layer) -> float:
    """Return what values are worth: those of weights, which no input changes, and those of outputs."""
    nodes = trees[0].nodes[golden.node], trees[1].nodes[target.node]
    return SAME_VALUES * (agreement(*nodes, Role.OUTPUT) or 0.0) + _weight_gain(trees, golden, target)


def _weight_gain(trees: Trees, golden: Op | Layer, target: Op | Layer) -> float:
    if isinstance(golden, Op) and isinstance(target, Op):
        return SAME_WEIGHTS * have_same_weights(trees, golden.nodes, target.nodes)
    if isinstance(golden, Layer) and isinstance(target, Layer):
        return SAME_WEIGHTS * share_of_weights(trees, golden.node, target.node)
    return 0.0
