"""Find modules that were fused into one.

    golden   q_proj ─┐
             k_proj ─┼─ linear_qkv   target
             v_proj ─┘

Names say what may have been fused; shapes, and values where there are any, say whether it was.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, product
from typing import Final

from msgspec import Struct

from firstdrift.matching.fused.joined_tensors import join_records, joined_axis
from firstdrift.matching.fused.thresholds import BY_NAME, FITS, SAME_VALUES
from firstdrift.matching.pairing import Join, Pairing
from firstdrift.matching.plan import Origin
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import known_distances
from firstdrift.matching.tree import SliceTree, is_operator, tensors_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.fused import fusions, parts_of_name
from firstdrift.wording.message import Message

_SHAPES_JOIN: Final = Message.of("matching.reason.shapes_join")
_VALUES_AGREE: Final = Message.of("matching.reason.values_of_whole_agree")
_SAME_OPERATORS: Final = Message.of("matching.reason.same_operators_inside")


def join_siblings(work: Pairing, golden: list[int], target: list[int]) -> None:
    """Match what was fused on one side and not on the other, among siblings that are not matched yet."""
    for parts in _groups(work.golden, work.free_golden(golden)):
        _join_first(
            work, (_Fused(work, parts, whole, parts_are_golden=True) for whole in work.free_target(target))
        )
    for parts in _groups(work.target, work.free_target(target)):
        _join_first(
            work, (_Fused(work, parts, whole, parts_are_golden=False) for whole in work.free_golden(golden))
        )


def _join_first(work: Pairing, candidates: Iterable["_Fused"]) -> None:
    join = next(filter(None, map(_Fused.join, candidates)), None)
    if join is not None:
        work.add_join(join)


def possible_joins(work: Pairing, node: int, *, of_golden: bool) -> Iterator[Join]:
    """Yield what a node may have been fused with, or from, among the nodes that have no partner.

    The modules around them need not correspond.
    """
    golden, target = work.free_golden(range(work.golden.root)), work.free_target(range(work.target.root))
    tree, other = (work.golden, work.target) if of_golden else (work.target, work.golden)
    free, others = (golden, target) if of_golden else (target, golden)
    siblings = [index for index in free if tree.parents[index] == tree.parents[node]]
    groups = (parts for parts in _groups(tree, siblings) if node in parts)
    candidates = [_Fused(work, parts, whole, of_golden) for parts, whole in product(groups, others)]
    candidates += [_Fused(work, parts, node, not of_golden) for parts in parts_of_one(other, others)]
    yield from filter(None, map(_Fused.join, candidates))


def complete_join(work: Pairing, pair: Pair, origin: Origin, reason: Message) -> Join | None:
    """Return the match of a part, its siblings and their whole, where a pair of part and whole was said.

    None where the shapes of the two fit each other, or those of the parts do not join to that of the whole.
    """
    for tree, (part, whole), of_golden in ((work.golden, pair, True), (work.target, pair[::-1], False)):
        siblings = [] if is_operator(tree.nodes[part]) else tree.forward[tree.parents[part]]
        for parts in _groups(tree, siblings):
            fused = _Fused(work, parts, whole, of_golden)
            if part in parts and fused.fits():
                return fused.match(origin, 1.0, reason, fused.name(), _SHAPES_JOIN)
    return None


def join_operators(work: Pairing, join: Join) -> None:
    """Match the operators inside a match of several nodes, where each part runs those of the whole."""
    golden = [work.golden.forward[node] for node in join.golden]
    target = [work.target.forward[node] for node in join.target]
    runs = [[work.golden.nodes[child] for child in children] for children in golden]
    runs += [[work.target.nodes[child] for child in children] for children in target]
    kinds = {tuple(node.type_name for node in run) for run in runs}
    if len(kinds) == 1 and all(map(is_operator, chain.from_iterable(runs))):
        for inside in zip(zip(*golden, strict=True), zip(*target, strict=True), strict=True):
            work.add_join(Join(*inside, join.origin, join.score, (_SAME_OPERATORS,)))


def parts_of_one(tree: SliceTree, nodes: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield groups of modules whose names say that they may be fused, in the order of joining."""
    by_parent: dict[int, list[int]] = {}
    for node in nodes:
        by_parent.setdefault(tree.parents[node], []).append(node)
    for siblings in by_parent.values():
        yield from _groups(tree, siblings)


def _groups(tree: SliceTree, siblings: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield what may be the parts of something fused: modules of one call whose names belong together."""
    calls: defaultdict[str, dict[tuple[int, Direction], int]] = defaultdict(dict)
    for index in tree.modules(siblings):
        node = tree.nodes[index]
        calls[tree.relative_name(index).lower()].setdefault((node.call, node.direction), index)
    for names in chain.from_iterable(fusion.parts for fusion in fusions()):
        for call in calls.get(names[0], ()):
            parts = tuple(calls[name].get(call, -1) for name in names if name in calls)
            if len(parts) == len(names) and -1 not in parts:
                yield parts


class _Fused(Struct, frozen=True):
    """Siblings of one tree, and a node of the other into which they may have been fused."""

    work: Pairing
    parts: tuple[int, ...]
    whole: int
    parts_are_golden: bool

    @property
    def _trees(self) -> tuple[SliceTree, SliceTree]:
        """The tree of the parts, and that of the whole."""
        trees = self.work.golden, self.work.target
        return trees if self.parts_are_golden else trees[::-1]

    def match(self, origin: Origin, score: float, *reasons: Message) -> Join:
        """Return the match of the parts with the whole."""
        whole = (self.whole,)
        golden, target = (self.parts, whole) if self.parts_are_golden else (whole, self.parts)
        return Join(golden, target, origin, score, reasons)

    def join(self) -> Join | None:
        """Return the match if parts were fused into a whole: by name and shape, or by shape and value."""
        of_parts, of_whole = self._trees
        node, first = of_whole.nodes[self.whole], of_parts.nodes[self.parts[0]]
        if is_operator(node) or (node.direction, node.call) != (first.direction, first.call):
            return None
        fits, is_named = self.fits(), self._is_named()
        if fits and self._values_agree():
            score = 1.0 if is_named else FITS
            return self.match(Origin.STRUCTURE, score, self.name(), _SHAPES_JOIN, _VALUES_AGREE)
        if not is_named or fits is False:
            return None
        if fits is None:
            return self.match(Origin.STRUCTURE, BY_NAME, self.name())
        return self.match(Origin.STRUCTURE, FITS, self.name(), _SHAPES_JOIN)

    def _is_named(self) -> bool:
        """Tell whether the names of all are those of parts and whole of one fusion."""
        of_parts, of_whole = self._trees
        names = {of_parts.relative_name(part).lower() for part in self.parts}
        ways = parts_of_name(of_whole.relative_name(self.whole).lower())
        return names in map(set, ways)

    def name(self) -> Message:
        """Say what was fused into what."""
        of_parts, of_whole = self._trees
        names = tuple(map(of_parts.relative_name, self.parts))
        return Message.of("matching.reason.fused", whole=of_whole.relative_name(self.whole), parts=names)

    def fits(self) -> bool | None:
        """Tell whether outputs or parameters of the parts join to those of the whole; None if unknown."""
        axes = [axis for _, _, axis in self._joined()]
        return all(axis is not None for axis in axes) if axes else None

    def _values_agree(self) -> bool:
        wholes = [(join_records(parts, axis or 0), whole) for parts, whole, axis in self._joined()]
        distances = known_distances(*zip(*wholes, strict=True))
        return bool(distances) and max(distances) <= SAME_VALUES

    def _joined(self) -> Iterator[tuple[list[TensorRecord], TensorRecord, int | None]]:
        """Yield the first output and the weight of each part, those of the whole, and how they are joined."""
        of_parts, of_whole = self._trees
        whole = of_whole.nodes[self.whole]
        result = Role.INPUT if whole.direction is Direction.BACKWARD else Role.OUTPUT
        for role in (result, Role.PARAMETER):
            record = _first(whole, role)
            records = [_first(of_parts.nodes[part], role) for part in self.parts]
            parts = [part for part in records if part is not None]
            if record is not None and len(parts) == len(records):
                yield parts, record, joined_axis([part.shape for part in parts], record.shape)


def _first(node: Node, role: Role) -> TensorRecord | None:
    return next((tensor for tensor in tensors_of(node, role) if tensor.shape), None)
