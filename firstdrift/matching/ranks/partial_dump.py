"""Recognise a dump of one rank without the other ranks, and compare what can be compared of it.

    whole    o_proj input.0 [6, 32]   output.0 [6, 32]
    shard    o_proj input.0 [6, 16]   output.0 [6, 32]
                    a part            as large as the whole, yet made of a part: it may be a part of a sum

Shapes tell: tensors that are parts are smaller than the whole by a whole number along one dimension. Nothing
says which part they are, so that they are left out. What was made of parts and is as large as the whole is
compared as far as it agrees: until an all-reduce it is a part of a sum, and may be anything.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, product, starmap
from math import isfinite, sqrt
from operator import attrgetter
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.cross_framework.layer_ops import Layer, Line, Op, layer_nodes
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.ranks.thresholds import (
    LAYERS_LOOKED_AT,
    LEAST_PARTS,
    LEAST_SPREAD,
    MOST_CANDIDATES,
    MOST_RANKS,
)
from firstdrift.matching.structure.statistics_similarity import bare_shape
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.node import Direction
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, Shards, TensorRecord, is_floating
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

Wide = TypeVar("Wide", Slice, SliceTree)

Align = Callable[[Sequence[Op], Sequence[Op]], list[tuple[Op, Op]]]
"""Aligns the operators of two layers."""

_NUMBER: Final = re.compile(r"\d+")
LINEAR: Final = (OpKind.LINEAR, OpKind.GROUPED)
"""What is computed with weights, of which ranks may have parts."""


class Spread(Struct, frozen=True):
    """One of two dumps is that of one rank of a model.

    Attributes:
        is_target: whether it is the target.
        ranks: over how many ranks the model is spread at least.
    """

    is_target: bool
    ranks: int

    @property
    def side(self) -> Message:
        """Which dump it is, in words."""
        return side_named("target" if self.is_target else "golden")

    def own(self, pair: TensorPair) -> TensorRecord:
        """Return the tensor of a pair that the one rank holds."""
        return pair.target if self.is_target else pair.golden

    def whole(self, pair: TensorPair) -> TensorRecord:
        """Return the tensor of a pair that the other dump has."""
        return pair.golden if self.is_target else pair.target

    def widened(self, *sides: Wide) -> list[Wide]:
        """Let the tensors that the one rank holds be parts: as wide as they are, or so many times wider."""
        own = sides[self.is_target]
        nodes = tuple(
            replace(node, tensors=tuple(_as_part(record, self.ranks) for record in node.tensors))
            for node in own.nodes
        )
        both = list(sides)
        both[self.is_target] = replace(own, nodes=nodes)
        return both


class Part(Struct, frozen=True):
    """How a tensor is smaller than the one of the whole model.

    Attributes:
        of_target: whether the target's is the smaller one.
        times: how many times it is smaller.
        axis: along which dimension, from the last (-1).
        size: of the whole along that dimension.
    """

    of_target: bool
    times: int
    axis: int
    size: int


def part(golden: tuple[int, ...] | None, target: tuple[int, ...] | None) -> Part | None:
    """Say how one of two shapes is a part of the other; None if it is none."""
    if not golden or not target or golden == target:
        return None
    shapes = ((golden, target), (bare_shape(golden), bare_shape(target)))
    return next(filter(None, starmap(_part_along_one_axis, shapes)), None)


def shard(golden: TensorRecord, target: TensorRecord) -> Part | None:
    """Say how one tensor is a tensor-parallel shard of the other; None if it is none."""
    how = part(golden.shape, target.shape)
    is_shard = how is not None and (how.axis == -1 or golden.role is Role.PARAMETER)
    return how if is_shard else None


def _part_along_one_axis(golden: tuple[int, ...], target: tuple[int, ...]) -> Part | None:
    if len(golden) != len(target):
        return None
    sizes = enumerate(zip(golden, target, strict=True), -len(golden))
    differing = [(axis, *pair) for axis, pair in sizes if pair[0] != pair[1]]
    if len(differing) != 1:
        return None
    axis, *of_both = differing[0]
    small, large = sorted(of_both)
    if not small or large % small or large // small > MOST_RANKS:
        return None
    return Part(of_both[1] == small, large // small, axis, large)


# ---- frameworks that call nothing alike: the operators of a layer tell


def spread_of_lines(
    lines: tuple[Line, Line], layers: Iterable[tuple[Op | Layer, Op | Layer]], align: Align
) -> Spread | None:
    """Find out whether one of two runs is that of one rank, by the widths of what its layers do.

    It is, if all linear operators of the layers correspond once each output of that run may be a part, and
    do not otherwise. Of several numbers of ranks the smallest is taken.
    """
    if any(op.other_widths for op in chain(lines[0].ops, lines[1].ops)):
        return None
    looked_at = [
        (golden, target)
        for golden, target in layers
        if isinstance(golden, Layer) and isinstance(target, Layer) and golden.ops and target.ops
    ][:LAYERS_LOOKED_AT]
    candidates = None, *_candidates(looked_at)
    return next(filter(partial(_are_covered, align, looked_at), candidates), None)


def _are_covered(align: Align, layers: Iterable[tuple[Layer, Layer]], spread: Spread | None) -> bool:
    return all(_is_covered(align, *_widened(pair, spread)) for pair in layers)


def _is_covered(align: Align, *layers: Sequence[Op]) -> bool:
    """Tell whether each linear operator of two layers corresponds to one of the other, alone or fused."""
    aligned = align(*layers)
    return all(
        {node for pair in aligned for node in pair[at].nodes}.issuperset(
            op.node for op in layer if op.kind is OpKind.LINEAR
        )
        for at, layer in enumerate(layers)
    )


def _candidates(layers: Iterable[tuple[Layer, Layer]]) -> list[Spread]:
    """Return what the widths of linear operators, alone or a few side by side, leave possible."""
    candidates: set[Spread] = set()
    for pair, is_target in product(layers, (True, False)):
        small, large = _widths(pair[is_target], most=1), _widths(pair[not is_target], most=3)
        ratios = {wide // width for wide in large for width in small if width and wide % width == 0}
        candidates |= {Spread(is_target, ratio) for ratio in ratios if 1 < ratio <= MOST_RANKS}
    return sorted(candidates, key=lambda spread: (spread.ranks, not spread.is_target))[:MOST_CANDIDATES]


def _widths(layer: Layer, *, most: int) -> set[int]:
    """Return how wide the linear operators of a layer are, and up to so many of them side by side."""
    widths = [op.width for op in layer.ops if op.kind is OpKind.LINEAR and op.width is not None]
    return {
        sum(widths[start : start + count])
        for count in range(1, most + 1)
        for start in range(len(widths) - count + 1)
    }


def _widened(layers: tuple[Layer, Layer], spread: Spread | None) -> list[tuple[Op, ...]]:
    """Return the operators of two layers, with outputs of the one rank that may be parts of wider ones."""
    ops = [layer.ops for layer in layers]
    if spread is not None:
        ops[spread.is_target] = tuple(
            op if op.width is None else replace(op, other_widths=(spread.ranks * op.width,))
            for op in ops[spread.is_target]
        )
    return ops


def _as_part(record: TensorRecord, ranks: int) -> TensorRecord:
    if not record.is_tensor or not record.shape or not is_floating(record.dtype):
        return record
    return replace(record, shards=Shards((0,), (record,), of=ranks))


def without_parts(pair: TensorPair) -> TensorPair:
    """Return a pair with its tensors as they are."""
    return replace(
        pair,
        golden=as_recorded(pair.golden),
        target=as_recorded(pair.target),
        golden_parts=tuple(map(as_recorded, pair.golden_parts)),
        target_parts=tuple(map(as_recorded, pair.target_parts)),
    )


def as_recorded(record: TensorRecord) -> TensorRecord:
    """Return a tensor as it was before it was widened."""
    return record if record.shards is None or not record.shards.of else record.shards.records[0]


# ---- one framework: the tensors of matched nodes tell


def spread_of_pairs(pairs: Sequence[TensorPair], trees: tuple[SliceTree, SliceTree]) -> Spread | None:
    """Find out by their shapes whether the tensors of one side are those of one rank.

    They are, if several are parts, all of one side, those of enough linear nodes among them, and what passes
    from layer to layer is as wide as that of the whole model: another model may have that otherwise. Where a
    tool merged the ranks itself, shapes are of one and statistics of all: that is the whole model.
    """
    if all(pair.incomparable is None for pair in pairs):
        return None
    weighed = list(filter(_is_weighed, pairs))
    ways = [shard(pair.golden, pair.target) for pair in weighed]
    parts = list(compress(weighed, ways))
    shards = known(ways)
    if len({how.of_target for how in shards}) != 1 or len(parts) < LEAST_PARTS:
        return None
    widest = max(shards, key=attrgetter("times"))
    spread = Spread(widest.of_target, widest.times)
    is_spread = _are_enough_kinds(parts, trees[0]) and _pass_on_alike(weighed, trees[0])
    return spread if is_spread and not _are_of_all_ranks(parts, spread) else None


def _are_enough_kinds(parts: Iterable[TensorPair], tree: SliceTree) -> bool:
    kinds = _kinds_of_linear(tree)
    spread_kinds = {kinds[pair.golden_node] for pair in parts if pair.golden_node in kinds} - {""}
    return len(spread_kinds) >= LEAST_SPREAD * len(set(kinds.values()))


def _are_of_all_ranks(parts: Iterable[TensorPair], spread: Spread) -> bool:
    """Tell whether the norms of tensors that look like parts are rather those of the whole."""
    from statistics import median  # imported late: few dumps are those of one rank, and it is slow to load

    ratios = [ratio for pair in parts for ratio in _relative_norm(pair, spread)]
    return bool(ratios) and median(ratios) > (1 + 1 / sqrt(spread.ranks)) / 2


def _is_weighed(pair: TensorPair) -> bool:
    """Tell whether the shapes of a pair count: two tensors of fractions that no ranks have shards of."""
    sides = (pair.golden, pair.target)
    return is_floating(pair.golden.dtype) and all(
        side.is_tensor and side.shape and side.shards is None for side in sides
    )


def _pass_on_alike(pairs: Sequence[TensorPair], tree: SliceTree) -> bool:
    """Tell whether what most layers, norms and tables give is as wide; without them, any output."""
    outputs = [pair for pair in pairs if pair.golden.role is Role.OUTPUT]
    residual = _residual_nodes(tree)
    passed_on = [_are_as_wide(pair) for pair in outputs if pair.golden_node in residual]
    return 2 * sum(passed_on) > len(passed_on) if passed_on else any(map(_are_as_wide, outputs))


def _are_as_wide(pair: TensorPair) -> bool:
    return (pair.golden.shape or (0,))[-1] == (pair.target.shape or (0,))[-1] > 1


def _relative_norm(pair: TensorPair, spread: Spread) -> Iterator[float]:
    """Yield how large the norm of a part is against that of the whole, if both were recorded."""
    own, whole = spread.own(pair).statistics, spread.whole(pair).statistics
    if own and whole and own.norm and whole.norm and isfinite(own.norm / whole.norm):
        yield own.norm / whole.norm


def _kinds_of_linear(tree: SliceTree) -> dict[str, str]:
    """Return the linear nodes of the forward pass, each with its path, or that around it, without numbers."""
    kinds: dict[str, str] = {}
    for node, around in zip(tree.nodes, tree.parents, strict=True):
        if node.direction is not Direction.BACKWARD and kind_of(node) in LINEAR:
            path = tree.nodes[around].path if is_operator(node) and around != tree.root else node.path
            kinds[node.name] = _NUMBER.sub("", path) or node.type_name
    return kinds


def _residual_nodes(tree: SliceTree) -> frozenset[str]:
    """Return the nodes that give what is passed from layer to layer: layers, norms and tables."""
    layers = layer_nodes(tree)
    return frozenset(
        node.name
        for at, node in enumerate(tree.nodes)
        if at in layers or kind_of(node) in (OpKind.NORM, OpKind.LOOKUP)
    )
