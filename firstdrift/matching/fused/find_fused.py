"""Find modules that were fused into one.

    golden   q_proj ─┐
             k_proj ─┼─ linear_qkv   target
             v_proj ─┘

Names say what may have been fused; shapes, and values where there are any, say whether it was.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, product
from math import inf
from typing import Final

from msgspec import Struct

from firstdrift.groups import known
from firstdrift.matching.fused.joined_tensors import golden_first, join_records, joined_axis
from firstdrift.matching.fused.thresholds import BY_NAME, BY_WIDTH, FITS, SAME_VALUES
from firstdrift.matching.pairing import Join, Pairing
from firstdrift.matching.plan import Origin
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.statistics_similarity import known_distances
from firstdrift.matching.tree import SliceTree, is_operator, tensors_of
from firstdrift.model.node import Direction
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.fused import fusions, parts_of_name
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of
from firstdrift.wording.message import Message

_SHAPES_JOIN: Final = Message.of("matching.reason.shapes_join")
_VALUES_AGREE: Final = Message.of("matching.reason.values_of_whole_agree")
_SAME_OPERATORS: Final = Message.of("matching.reason.same_operators_inside")

_TOLD: Final = {
    (True, True, True): (1.0, (_SHAPES_JOIN, _VALUES_AGREE)),
    (False, True, True): (FITS, (_SHAPES_JOIN, _VALUES_AGREE)),
    (True, True, False): (FITS, (_SHAPES_JOIN,)),
    (True, None, False): (BY_NAME, ()),
}
"""How sure it is, and why, that parts were fused: by whether names, shapes (if known) and values say so."""


def join_siblings(work: Pairing, golden: list[int], target: list[int]) -> None:
    """Match what was fused on one side and not on the other, among siblings that are not matched yet."""
    sides = (work.golden, partial(work.free_golden, golden)), (work.target, partial(work.free_target, target))
    for (tree, own), (_, others), of_golden in ((*sides, True), (*sides[::-1], False)):
        for parts in _groups(tree, own()):
            joins = (_Fused(work, parts, whole, of_golden).join() for whole in others())
            if (join := next(filter(None, joins), None)) is not None:
                work.add_join(join)


def possible_joins(work: Pairing, node: int, *, of_golden: bool) -> Iterator[Join]:
    """Yield what a node may have been fused with, or from, among the nodes that have no partner.

    The modules around them need not correspond.
    """
    golden = work.golden, work.free_golden(range(work.golden.root))
    target = work.target, work.free_target(range(work.target.root))
    (tree, free), (other, others) = golden_first(golden, target, own_is_golden=of_golden)
    siblings = [index for index in free if tree.parents[index] == tree.parents[node]]
    groups = (parts for parts in _groups(tree, siblings) if node in parts)
    candidates = [_Fused(work, parts, whole, of_golden) for parts, whole in product(groups, others)]
    candidates += [_Fused(work, parts, node, not of_golden) for parts in parts_of_one(other, others)]
    yield from filter(None, map(_Fused.may_join, candidates))


def complete_join(work: Pairing, pair: Pair, origin: Origin, reason: Message) -> Join | None:
    """Return the match of a part, its siblings and their whole, where a pair of part and whole was said.

    None where the shapes of the two fit each other, or those of the parts do not join to that of the whole.
    """
    for tree, (part, whole), of_golden in ((work.golden, pair, True), (work.target, pair[::-1], False)):
        is_backward = tree.nodes[part].direction is Direction.BACKWARD
        beside = (tree.backward if is_backward else tree.forward)[tree.parents[part]]
        for parts in _groups(tree, beside):
            fused = _Fused(work, parts, whole, of_golden)
            if part in parts and fused.fits():
                return fused.match(origin, 1.0, reason, fused.name(), _SHAPES_JOIN)
    return None


def join_operators(work: Pairing, join: Join) -> None:
    """Match the operators inside a match of several nodes, where each part runs those of the whole."""
    sides = (work.golden, join.golden), (work.target, join.target)
    runs = [[tree.forward[node] for node in nodes] for tree, nodes in sides]
    kinds = {_operators(tree, run) for (tree, _), side in zip(sides, runs, strict=True) for run in side}
    if len(kinds) == 1 and None not in kinds:
        golden, target = (zip(*side, strict=True) for side in runs)
        for inside in zip(golden, target, strict=True):
            work.add_join(Join(*inside, join.origin, join.score, (_SAME_OPERATORS,)))


def _operators(tree: SliceTree, nodes: Iterable[int]) -> tuple[str, ...] | None:
    """Return which operators some nodes are; None if one is a module."""
    run = [tree.nodes[node] for node in nodes]
    return tuple(node.type_name for node in run) if all(map(is_operator, run)) else None


def parts_of_one(tree: SliceTree, nodes: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield groups of modules whose names say that they may be fused, in the order of joining."""
    by_parent: dict[int, list[int]] = {}
    for node in nodes:
        by_parent.setdefault(tree.parents[node], []).append(node)
    for siblings in by_parent.values():
        yield from _groups(tree, siblings)


def _groups(tree: SliceTree, siblings: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield what may be the parts of something fused: modules of one call whose names belong together."""
    calls: defaultdict[tuple[int, Direction], dict[str, int]] = defaultdict(dict)
    for index in tree.modules(siblings):
        node = tree.nodes[index]
        calls[node.call, node.direction].setdefault(tree.relative_name(index).lower(), index)
    for names in chain.from_iterable(fusion.parts for fusion in fusions()):
        of_all = (call for call in calls.values() if call.keys() >= set(names))
        yield from (tuple(map(call.__getitem__, names)) for call in of_all)


class _Fused(Struct, frozen=True):
    """Siblings of one tree, and a node of the other into which they may have been fused."""

    work: Pairing
    parts: tuple[int, ...]
    whole: int
    parts_are_golden: bool

    @property
    def _trees(self) -> tuple[SliceTree, SliceTree]:
        """The tree of the parts, and that of the whole."""
        return golden_first(self.work.golden, self.work.target, own_is_golden=self.parts_are_golden)

    def match(self, origin: Origin, score: float, *reasons: Message) -> Join:
        """Return the match of the parts with the whole."""
        sides = golden_first(self.parts, (self.whole,), own_is_golden=self.parts_are_golden)
        return Join(*sides, origin, score, reasons)

    def join(self) -> Join | None:
        """Return the match if parts were fused into a whole: by name and shape, or by shape and value."""
        of_parts, of_whole = self._trees
        node, first = of_whole.nodes[self.whole], of_parts.nodes[self.parts[0]]
        if is_operator(node) or (node.direction, node.call) != (first.direction, first.call):
            return None
        fits = self.fits()
        told = _TOLD.get((self._is_named(), fits, bool(fits) and self._values_agree()))
        return told and self.match(Origin.STRUCTURE, told[0], self.name(), *told[1])

    def may_join(self) -> Join | None:
        """Return the match if parts may have been fused into a whole: as `join` says, or by width."""
        of_parts, of_whole = self._trees
        nodes = of_whole.nodes[self.whole], *map(of_parts.nodes.__getitem__, self.parts)
        are_linear = all(kind_of(node) is OpKind.LINEAR for node in nodes)
        is_one_pass = nodes[0].direction is nodes[1].direction
        found = self.join()
        if found is not None or not (are_linear and is_one_pass and self.fits()) or self._are_apart():
            return found
        return self.match(Origin.STRUCTURE, BY_WIDTH, self.name(), _SHAPES_JOIN)

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
        joined = [axis is not None or _adds_up(parts, whole) for parts, whole, axis in self._joined()]
        return all(joined) if joined else None

    def _are_apart(self) -> bool:
        """Tell whether recorded values say that the parts do not make up the whole."""
        return max(self._distances(), default=0.0) > SAME_VALUES

    def _values_agree(self) -> bool:
        return max(self._distances(), default=inf) <= SAME_VALUES

    def _distances(self) -> list[float]:
        wholes = [(join_records(parts, axis or 0), whole) for parts, whole, axis in self._joined()]
        return known_distances(*zip(*wholes, strict=True)) if wholes else []

    def _joined(self) -> Iterator[tuple[list[TensorRecord], TensorRecord, int | None]]:
        """Yield the first output and the weight of each part, those of the whole, and how they are joined."""
        of_parts, of_whole = self._trees
        nodes = of_whole.nodes[self.whole], *map(of_parts.nodes.__getitem__, self.parts)
        result = Role.INPUT if nodes[0].direction is Direction.BACKWARD else Role.OUTPUT
        for role in (result, Role.PARAMETER):
            firsts = (next((each for each in tensors_of(node, role) if each.shape), None) for node in nodes)
            found = [record for record in known(firsts) if 0 not in (record.shape or ())]
            if len(found) == len(nodes):
                whole, *parts = found
                yield parts, whole, joined_axis(parts, whole)


def _adds_up(parts: Sequence[TensorRecord], whole: TensorRecord) -> bool:
    """Tell whether parts are together as wide as the whole, whichever rows these have and in what order."""
    return sum(part.shape[-1] for part in parts if part.shape) == (whole.shape or (0,))[-1]
