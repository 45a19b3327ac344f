"""Recognise a dump of one rank without the other ranks, and compare what can be compared of it.

    whole    o_proj input.0 [6, 32]   output.0 [6, 32]
    shard    o_proj input.0 [6, 16]   output.0 [6, 32]
                    a part            as large as the whole, yet made of a part: it may be a part of a sum

Shapes tell: tensors that are parts are smaller than the whole by a whole number along one dimension. Nothing
says which part they are, so that they are left out. What was made of parts and is as large as the whole is
compared as far as it agrees: until an all-reduce it is a part of a sum, and may be anything.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import isfinite, prod, sqrt
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import Layer, Line, Op, first_input, layer_nodes
from firstdrift.matching.plan import NodeMatch, TensorPair
from firstdrift.matching.ranks.thresholds import (
    LAYERS_LOOKED_AT,
    LEAST_PARTS,
    LEAST_SPREAD,
    MOST_CANDIDATES,
    MOST_DIGITS,
    MOST_RANKS,
)
from firstdrift.matching.structure.statistics_similarity import bare_shape
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, Sharding, Shards, TensorRecord, is_floating, is_part_of_rank
from firstdrift.operators.kinds import Work
from firstdrift.operators.recognise import work_of
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape, side_named

Align = Callable[[Sequence[Op], Sequence[Op]], list[tuple[Op, Op]]]
"""Aligns the operators of two layers."""


_NUMBER: Final = re.compile(r"\d+")

_DIVIDED: Final = Message.of("matching.incomparable.divided_among_ranks")


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
    for first, second in ((golden, target), (bare_shape(golden), bare_shape(target))):
        if len(first) != len(second):
            continue
        others = [at for at, sizes in enumerate(zip(first, second, strict=True)) if sizes[0] != sizes[1]]
        if len(others) != 1:
            continue
        one, other = first[others[0]], second[others[0]]
        small, large = sorted((one, other))
        if small and large % small == 0 and large // small <= MOST_RANKS:
            return Part(other == small, large // small, others[0] - len(first), large)
    return None


# ---- frameworks that call nothing alike: the operators of a layer tell


def spread_of_lines(
    lines: tuple[Line, Line], layers: Iterable[tuple[Op | Layer, Op | Layer]], align: Align
) -> Spread | None:
    """Find out whether one of two runs is that of one rank, by the widths of what its layers do.

    It is, if all linear operators of the layers correspond once each output of that run may be a part, and
    do not otherwise. Of several numbers of ranks the smallest is taken.

    Args:
        lines: the two runs.
        layers: what corresponds as it is.
        align: aligns the operators of two layers.
    """
    looked_at = [
        (one, other)
        for one, other in layers
        if isinstance(one, Layer) and isinstance(other, Layer) and one.ops and other.ops
    ][:LAYERS_LOOKED_AT]
    if any(op.other_widths for line in lines for op in line.ops) or not looked_at:
        return None
    if all(_is_covered(align, *(layer.ops for layer in pair)) for pair in looked_at):
        return None
    for spread in _candidates(looked_at):
        ops = [[layer.ops for layer in pair] for pair in looked_at]
        for both in ops:
            both[spread.is_target] = tuple(_widened(op, spread.ranks) for op in both[spread.is_target])
        if all(_is_covered(align, *both) for both in ops):
            return spread
    return None


def _is_covered(align: Align, *layers: Sequence[Op]) -> bool:
    """Tell whether each linear operator of two layers corresponds to one of the other, alone or fused."""
    aligned = align(*layers)
    return all(
        {node for pair in aligned for node in pair[at].nodes}.issuperset(
            op.node for op in layer if op.work is Work.LINEAR
        )
        for at, layer in enumerate(layers)
    )


def _candidates(layers: Iterable[tuple[Layer, Layer]]) -> list[Spread]:
    """Return what the widths of linear operators, alone or a few side by side, leave possible."""
    found: set[Spread] = set()
    for pair in layers:
        alone, joined = zip(*map(_widths, pair), strict=True)
        for is_target in (True, False):
            small, large = alone[is_target], alone[not is_target] | joined[not is_target]
            ratios = {wide // width for wide in large for width in small if width and wide % width == 0}
            found |= {Spread(is_target, ratio) for ratio in ratios if 1 < ratio <= MOST_RANKS}
    ordered = sorted(found, key=lambda spread: (spread.ranks, not spread.is_target))
    return ordered[:MOST_CANDIDATES]


def _widths(layer: Layer) -> tuple[set[int], set[int]]:
    widths = [op.width for op in layer.ops if op.work is Work.LINEAR and op.width is not None]
    pairs = {one + other for one, other in pairwise(widths)}
    triples = {sum(three) for three in zip(widths, widths[1:], widths[2:], strict=False)}
    return set(widths), pairs | triples


def _widened(op: Op, ranks: int) -> Op:
    return op if op.width is None else replace(op, other_widths=(ranks * op.width,))


def widen(tree: SliceTree, ranks: int) -> SliceTree:
    """Let the tensors of a run be parts: as wide as they are, or so many times wider."""
    return replace(tree, nodes=tuple(_with_parts(node, ranks) for node in tree.nodes), known_contents={})


def widen_slice(dumped: Slice, ranks: int) -> Slice:
    """Likewise, of a slice."""
    return replace(dumped, nodes=tuple(_with_parts(node, ranks) for node in dumped.nodes))


def _with_parts(node: Node, ranks: int) -> Node:
    tensors = (
        replace(record, shards=Shards((0,), (record,), of=ranks))
        if record.is_tensor and record.shape and is_floating(record.dtype)
        else record
        for record in node.tensors
    )
    return replace(node, tensors=tuple(tensors))


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


# ---- what of a plan can be compared


def spread_of_pairs(pairs: Sequence[TensorPair], trees: tuple[SliceTree, SliceTree]) -> Spread | None:
    """Find out by their shapes whether the tensors of one side are those of one rank.

    They are, if several are parts, all of one side, those of enough linear nodes among them, and what passes
    from layer to layer is as wide as that of the whole model: another model may have that otherwise. Where a
    tool merged the ranks itself, shapes are of one and statistics of all: that is the whole model.
    """
    if all(pair.incomparable is None for pair in pairs):
        return None
    found: Counter[Spread] = Counter()
    passed_on: Counter[bool] = Counter()
    layers = _residual_nodes(trees[0])
    kinds = _kinds_of_linear(trees[0])
    spread_kinds: set[str] = set()
    sizes: list[float] = []
    is_whole = False
    for pair in pairs:
        golden, target = pair.golden, pair.target
        if not golden.is_tensor or not target.is_tensor or not golden.shape or not target.shape:
            continue
        if golden.shards is not None or target.shards is not None or not is_floating(golden.dtype):
            continue
        known = part(golden.shape, target.shape)
        if known is not None and (known.axis == -1 or golden.role is Role.PARAMETER):
            found[Spread(known.of_target, known.times)] += 1
            spread_kinds.add(kinds.get(pair.golden_node, ""))
            sizes += _relative_norm(pair, known)
        if golden.role is Role.OUTPUT:
            is_wide = golden.shape[-1] == target.shape[-1] > 1
            is_whole = is_whole or is_wide
            if pair.golden_node in layers:
                passed_on[is_wide] += 1
    sides = {spread.is_target for spread in found}
    is_other = passed_on[False] >= passed_on[True] if passed_on else not is_whole
    if len(sides) != 1 or is_other or sum(found.values()) < LEAST_PARTS:
        return None
    if len(spread_kinds - {""}) < LEAST_SPREAD * len(set(kinds.values())):
        return None
    spread = max(found, key=lambda spread: spread.ranks)
    norm_of_part = 1 / sqrt(spread.ranks)
    if sizes and median(sizes) > (1 + norm_of_part) / 2:
        return None
    return spread


def _relative_norm(pair: TensorPair, known: Part) -> Iterator[float]:
    """Yield how large the norm of a part is against that of the whole, if both were recorded."""
    norms = [side.statistics.norm if side.statistics else None for side in (pair.golden, pair.target)]
    own, whole = norms[known.of_target], norms[not known.of_target]
    if own and whole and isfinite(own / whole):
        yield own / whole


def _kinds_of_linear(tree: SliceTree) -> dict[str, str]:
    """Return the linear nodes of the forward pass, each with its path, or that around it, without numbers."""
    found: dict[str, str] = {}
    for at, node in enumerate(tree.nodes):
        if node.direction is not Direction.BACKWARD and work_of(node) in (Work.LINEAR, Work.GROUPED):
            around = tree.parents[at]
            path = tree.nodes[around].path if is_operator(node) and around != tree.root else node.path
            found[node.name] = _NUMBER.sub("", path) or node.type_name
    return found


def _residual_nodes(tree: SliceTree) -> frozenset[str]:
    """Return the nodes that give what is passed from layer to layer: layers, norms and tables."""
    layers = layer_nodes(tree)
    return frozenset(
        node.name
        for at, node in enumerate(tree.nodes)
        if at in layers or work_of(node) in (Work.NORM, Work.LOOKUP)
    )


def settle_lone_rank(
    pairs: Sequence[TensorPair],
    matches: Sequence[NodeMatch],
    trees: tuple[SliceTree, SliceTree],
    spread: Spread,
    rank: int,
) -> list[TensorPair]:
    """Say of each pair of a plan whether it can be compared, where one dump is that of one rank.

    Args:
        pairs: what is to be compared.
        matches: the matches that they belong to.
        trees: of golden and target.
        spread: which dump is that of one rank.
        rank: which rank that is.
    """
    addends = _Addends(pairs, matches, trees, spread)
    return [_settle(pair, spread, rank, may_be_addend=addends.has(pair)) for pair in pairs]


def _settle(pair: TensorPair, spread: Spread, rank: int, *, may_be_addend: bool) -> TensorPair:
    own, other = (pair.target, pair.golden) if spread.is_target else (pair.golden, pair.target)
    if not own.is_tensor or not other.is_tensor:
        is_dealt_out = _is_dealt_out(own.scalar, other.scalar, spread.ranks)
        return replace(pair, incomparable=_DIVIDED, transform=()) if is_dealt_out else pair
    if own.shards is not None:
        return pair
    if (said := _say_part(pair, spread)) is not None:
        shards = Shards((rank,), (own,), sharding=Sharding.CONCATENATED, only=rank, of=spread.ranks)
        return replace(_with_own(pair, replace(own, shards=shards), spread), incomparable=said, transform=())
    if pair.incomparable is not None or pair.joining is not None or not may_be_addend:
        return pair
    if not is_floating(own.dtype):
        return pair
    shards = Shards((rank,), (own,), sharding=Sharding.BY_VALUES, only=rank, of=spread.ranks)
    return _with_own(pair, replace(own, shards=shards), spread)


def _is_dealt_out(own: str | None, whole: str | None, ranks: int) -> bool:
    """Tell whether an argument is a number that is dealt out to the ranks: of heads, of columns."""
    if own is None or whole is None or not own.isdecimal() or not whole.isdecimal():
        return False
    return len(whole) <= MOST_DIGITS and int(own) > 0 and int(whole) == ranks * int(own)


def _say_part(pair: TensorPair, spread: Spread) -> Message | None:
    """Say that the one rank has a part of a tensor; None if it has not."""
    shapes = pair.golden.shape, pair.target.shape
    if shapes[0] is None or shapes[1] is None:
        return None
    said = {"side": spread.side, "golden": shape(shapes[0]), "target": shape(shapes[1])}
    known = part(*shapes)
    if known is not None and known.of_target is spread.is_target:
        return Message.of("matching.incomparable.one_of_parts", **said, parts=known.times)
    sizes = prod(shapes[0]), prod(shapes[1])
    if pair.incomparable is None and sizes[spread.is_target] < sizes[not spread.is_target]:
        return Message.of("matching.incomparable.part_only", **said)
    return None


def _with_own(pair: TensorPair, own: TensorRecord, spread: Spread) -> TensorPair:
    return replace(pair, target=own) if spread.is_target else replace(pair, golden=own)


class _Addends:
    """Knows the tensors that may be parts of a sum: as large as the whole, yet made of parts."""

    def __init__(
        self,
        pairs: Sequence[TensorPair],
        matches: Sequence[NodeMatch],
        trees: tuple[SliceTree, SliceTree],
        spread: Spread,
    ) -> None:
        self._spread = spread
        self._trees = trees
        self._tree = trees[spread.is_target]
        self._numbers = [{node.name: at for at, node in enumerate(tree.nodes)} for tree in trees]
        self._layers = layer_nodes(self._tree)
        self._paths = self._by_rows(pairs)
        self._giving: set[str] = set()
        self._given_on: set[str] = set()
        for match in matches:
            if len(match.golden) == len(match.target) == 1 and not match.doubtful:
                indices = self._numbers[0][match.golden[0]], self._numbers[1][match.target[0]]
                if self._adds_up(*indices):
                    self._mark(indices[spread.is_target])

    def has(self, pair: TensorPair) -> bool:
        """Tell whether what the one rank holds of a pair may be a part of a sum."""
        own = pair.target if self._spread.is_target else pair.golden
        name = self._name(pair)
        match own.role:
            case Role.GRADIENT:
                return self._path(name) in self._paths
            case Role.OUTPUT:
                return name in self._giving
            case Role.INPUT:
                return name in self._given_on
            case _:
                return False

    def _name(self, pair: TensorPair) -> str:
        return pair.target_node if self._spread.is_target else pair.golden_node

    def _path(self, name: str) -> str:
        return self._tree.nodes[self._numbers[self._spread.is_target][name]].path

    def _by_rows(self, pairs: Sequence[TensorPair]) -> frozenset[str]:
        """Return the modules that ran on a part of the rows: gradients of their parameters are addends."""
        known = ((pair, part(pair.golden.shape, pair.target.shape)) for pair in pairs)
        return frozenset(
            self._path(self._name(pair))
            for pair, how in known
            if how is not None and how.axis != -1 and pair.target.role in (Role.INPUT, Role.OUTPUT)
        )

    def _adds_up(self, golden: int, target: int) -> bool:
        """Tell whether a node was given parts: what it gives as a whole may be a part of a sum."""
        given = self._given(golden, target)
        if not given:
            own = (golden, target)[self._spread.is_target]
            work, around = work_of(self._tree.nodes[own]), self._around(own)
            in_layer = bool(around) and around[-1] in self._layers
            return work is Work.LOOKUP or (in_layer and work in (Work.LINEAR, Work.GROUPED))
        width = _width(self._tree.nodes[(golden, target)[self._spread.is_target]])
        return any(
            known is not None and known.of_target is self._spread.is_target
            for record, other in given
            if (known := part(record.shape, other.shape)) is not None
            and (record.role is Role.INPUT or known.axis == -1 or known.size != width)
        )

    def _given(self, golden: int, target: int) -> list[tuple[TensorRecord, TensorRecord]]:
        """Return what both nodes were given, and their parameters."""
        nodes = self._trees[0].nodes[golden], self._trees[1].nodes[target]
        known = {record.label: record for record in nodes[0].tensors if record.is_tensor}
        given = [
            (known[record.label], record)
            for record in nodes[1].tensors
            if record.role in (Role.INPUT, Role.PARAMETER)
            and record.is_tensor
            and is_floating(record.dtype)
            and record.label in known
        ]
        firsts = first_input(self._trees[0], golden), first_input(self._trees[1], target)
        if not any(record.role is Role.INPUT for record, _ in given) and firsts[0] and firsts[1]:
            given.append((firsts[0], firsts[1]))
        return given

    def _mark(self, index: int) -> None:
        """Mark a node that adds up, what is inside it, and what follows in its part of the layer.

        That ends with the next communication. Where there is none, the modules around it, up to the layer,
        may hand its addend on.
        """
        nodes = self._tree.nodes
        self._giving.update(nodes[below].name for below in _below(self._tree, index))
        around = self._around(index)
        if around and around[-1] in self._layers:
            block = around[-2] if len(around) > 1 else None
            following = (
                sorted(one for one in _below(self._tree, block) if one > index) if block is not None else []
            )
        else:
            block, following = None, list(range(index + 1, len(nodes)))
        end = next((one for one in following if is_communication(nodes[one].type_name)), None)
        if end is None and block is None:
            return
        reached = [one for one in following if end is None or one < end]
        self._giving.update(nodes[one].name for one in reached)
        self._given_on.update(nodes[one].name for one in reached if one not in around)

    def _around(self, index: int) -> list[int]:
        """Return the modules around a node, the innermost first, up to its layer if it is in one."""
        around: list[int] = []
        while (index := self._tree.parents[index]) != self._tree.root:
            around.append(index)
            if index in self._layers:
                break
        return around


def _below(tree: SliceTree, index: int) -> Iterator[int]:
    """Yield a node and those inside it."""
    waiting = [index]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += tree.forward[node]
        waiting += tree.backward[node]


def _width(node: Node) -> int | None:
    outputs = (record.shape for record in node.tensors if record.role is Role.OUTPUT and record.is_tensor)
    return next((shape[-1] for shape in outputs if shape), None)


def say_lone_rank(spread: Spread, pairs: Sequence[TensorPair]) -> Message:
    """Say that a dump is that of one rank, and what follows from that."""
    left = sum(is_part_of_rank(pair.target if spread.is_target else pair.golden) for pair in pairs)
    return Message.of("matching.note.one_rank_alone", side=spread.side, ranks=spread.ranks, parts=left)
