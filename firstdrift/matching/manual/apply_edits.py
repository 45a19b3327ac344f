"""Lay the decisions of people over the matches that were found.

    found              match a = y          left
    a ═ x              a ═ y                x
    └ a1 ═ x1          └ a1 ═ y1            └ x1        what is inside, and the backward pass, follow

An edit touches the nodes it names, what follows from them (backward pass, gradients) and, if it says so, what
is inside; everything else stays as it was. What one edit says of a node is not undone by what another merely
implies.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, permutations
from operator import contains
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.groups import grouped, known, positions
from firstdrift.matching.manual.edits import Edit, EditKind
from firstdrift.matching.pairing import Join, Pairing, start_pairing
from firstdrift.matching.plan import Messages, Origin
from firstdrift.matching.tree import FORWARD_PASS, SliceTree, indexes_by_name, pass_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.wording.message import Message

_BY_HAND: Final = (Message.of("matching.reason.by_hand"),)

MatchTrees = Callable[[Pairing], None]
"""The automatic rules: matches what is not matched yet of two trees."""


def apply_edits(work: Pairing, edits: Iterable[Edit], match_trees: MatchTrees) -> Messages:
    """Change what is matched as people said; return a note on each edit that could not be applied."""
    overlay = _Overlay(work, match_trees)
    refused = ((edit, overlay.apply(edit)) for edit in edits)
    return tuple(edit.refused(why) for edit, why in refused if why is not None)


class _Side(Struct):
    """One of the two trees.

    Attributes:
        numbers: index of each node by its name.
        gradients: nodes that hold the gradients of a module, by its path.
        by_hand: nodes whose match was said by hand, or follows from one that was.
        apart: nodes whose matches were taken apart, by the edit that did.
    """

    tree: SliceTree
    numbers: dict[str, int]
    gradients: dict[str, list[int]]
    by_hand: set[int] = field(default_factory=set)
    apart: list[set[int]] = field(default_factory=list)

    def follow(self, index: int) -> set[int]:
        """Return a node with those that follow from it: backward pass and gradients."""
        node = self.tree.nodes[index]
        following = [index]
        if node.direction is Direction.FORWARD:
            following += known([self.tree.backward_of(index)])
        if pass_of(node) == FORWARD_PASS:
            following += self.gradients.get(node.path, ())
        return set(following)

    def below(self, index: int) -> set[int]:
        """Return a node, all that is inside of it, and what follows from these."""
        inside: set[int] = set()
        waiting = [index]
        while waiting:
            for node in self.follow(waiting.pop()) - inside:
                inside.add(node)
                waiting += self.tree.forward[node] + self.tree.backward[node]
        return inside

    def reach(self, indexes: Iterable[int], *, descendants: bool) -> set[int]:
        """Return what an edit changes: the nodes it names, those that follow, and those inside."""
        return set().union(*((self.below if descendants else self.follow)(index) for index in indexes))

    def is_inside(self, inner: int, outer: int) -> bool:
        return outer in self.tree.around(inner)

    def free_by_hand(self, named: set[int]) -> None:
        """Forget what earlier edits said of nodes that are named again."""
        for index in named:
            self.by_hand -= self.follow(index)
        self.apart = [nodes for nodes in self.apart if not nodes & named]


class _Overlay:
    """Applies edits to what is matched."""

    def __init__(self, work: Pairing, match_trees: MatchTrees) -> None:
        self.work = work
        self.match_trees = match_trees
        self.golden, self.target = _side(work.golden), _side(work.target)
        self.sides = self.golden, self.target

    def apply(self, edit: Edit) -> Message | None:
        """Apply an edit; return why not if it cannot be."""
        why = edit.why_absent(self.golden.numbers, self.target.numbers)
        if why is not None:
            return why
        golden = [self.golden.numbers[name] for name in edit.golden]
        target = [self.target.numbers[name] for name in edit.target]
        if edit.kind is EditKind.UNMATCH:
            return self._take_apart(golden, target, descendants=edit.descendants)
        why = self._why_not(golden, target)
        if why is None:
            self._match(golden, target, descendants=edit.descendants)
        return why

    def _why_not(self, golden: list[int], target: list[int]) -> Message | None:
        """Say why nodes cannot be the same."""
        why_unlike = _why_unlike([*self.work.golden.nodes_at(golden), *self.work.target.nodes_at(target)])
        inside = (
            _is_inside(side.tree, inner, outer)
            for side, indexes in zip(self.sides, (golden, target), strict=True)
            for inner, outer in permutations(indexes, 2)
            if side.is_inside(inner, outer)
        )
        return next(chain(why_unlike, inside, self._why_in_itself(target)), None)

    def _why_in_itself(self, target: list[int]) -> Iterator[Message]:
        """Say why nodes cannot become one row of the tree: it would hang below itself, by way of others."""
        firsts = {index: join.target[0] for join in self.work.joins for index in join.target}
        tree = self.work.target
        above = tree.parents[target[0]] if len(target) > 1 else tree.root
        while above != tree.root:
            if above in target:
                yield _is_inside(tree, target[0], above)
                return
            above = tree.parents[firsts.get(above, above)]

    def _match(self, golden: list[int], target: list[int], *, descendants: bool) -> None:
        work, sides = self.work, self.sides
        pairs = work.pairs_of(golden, target)
        self.golden.free_by_hand({*golden, *(pair[0] for pair in pairs)})
        self.target.free_by_hand({*target, *(pair[1] for pair in pairs)})
        reach = [
            side.reach(indexes, descendants=descendants) - side.by_hand.union(*side.apart)
            for side, indexes in zip(sides, (golden, target), strict=True)
        ]
        for pair in pairs:
            work.release(pair[1])
        for pair in work.pairs_of(*reach):
            if not all(map(contains, reach, pair)):  # one of the two is: the pair reaches out
                work.release(pair[1])
        _match_part(work, reach[0], reach[1], (golden, target), self.match_trees)
        for side, indexes in zip(sides, (golden, target), strict=True):
            side.by_hand |= side.reach(indexes, descendants=False)

    def _take_apart(self, golden: list[int], target: list[int], *, descendants: bool) -> Message | None:
        work = self.work
        named = golden or work.partners, target or work.found
        pairs = [pair for pair in work.pairs_of(golden, target) if all(map(contains, named, pair))]
        if not pairs:
            return Message.of("matching.edit.not_matched", nodes=len(golden) + len(target))
        reach: list[set[int]] = []
        for side, matched in zip(self.sides, map(set, zip(*pairs, strict=True)), strict=True):
            side.free_by_hand(matched)
            reach.append(side.reach(matched, descendants=descendants) - side.by_hand)
        apart = [pair for pair in work.pairs_of(*reach) if all(map(contains, reach, pair))]
        for pair in apart:
            work.release(pair[1])
        for side, released in zip(self.sides, zip(*apart, strict=True), strict=False):
            side.apart.append(set(released))
        return None


def _why_unlike(nodes: Sequence[Node]) -> Iterator[Message]:
    """Say which nodes are not of the pass of the first one."""
    names = {"first": nodes[0].name}
    is_backward, of_gradients = pass_of(nodes[0])
    for node in nodes:
        own_pass = pass_of(node)
        if own_pass[0] is not is_backward:
            yield Message.of("matching.edit.other_pass", second=node.name, **names)
        if own_pass[1] is not of_gradients:
            yield Message.of("matching.edit.only_one_of_gradients", second=node.name, **names)


def _is_inside(tree: SliceTree, inner: int, outer: int) -> Message:
    return Message.of("matching.edit.inside", inner=tree.nodes[inner].name, outer=tree.nodes[outer].name)


def _side(tree: SliceTree) -> _Side:
    gradients = grouped(tree.gradients, lambda index: tree.nodes[index].path)
    return _Side(tree, indexes_by_name(tree.nodes), gradients)


def _match_part(
    work: Pairing,
    golden: set[int],
    target: set[int],
    same: tuple[Sequence[int], Sequence[int]],
    match_trees: MatchTrees,
) -> None:
    """Match parts of two trees by themselves, given that some of their nodes are the same by hand.

    What is matched already within the parts stays. Inside of what a person matched, alignment is used even
    where the rules leave it out: that is what the person asked for.
    """
    numbers = sorted(golden), sorted(target)
    here = list(map(positions, numbers))
    rules = replace(work.rules, structure=True, mappings=(), edits=())
    nodes = work.golden.nodes_at(numbers[0]), work.target.nodes_at(numbers[1])
    part = start_pairing(Slice(_PART, tuple(nodes[0])), Slice(_PART, tuple(nodes[1])), rules)
    join = _numbered(Join(tuple(same[0]), tuple(same[1]), *_BY_A_PERSON), *here)
    if len(join.golden) == len(join.target) == 1:
        part.add_sure((join.golden[0], join.target[0]), Origin.MANUAL, _BY_HAND)
    else:
        part.add_join(join)
    _copy_matches(work, part, sorted(target & work.found.keys()), here)
    match_trees(part)
    _copy_matches(part, work, part.found, [dict(enumerate(side)) for side in numbers])


def _copy_matches(
    source: Pairing, to: Pairing, target: Iterable[int], numbers: Sequence[Mapping[int, int]]
) -> None:
    """Enter the matches of some target nodes into another pairing, in which nodes have other numbers."""
    for index in target:
        match = source.found[index]
        if not match.joined:
            golden = numbers[0][match.golden]
            to.found[numbers[1][index]] = replace(match, golden=golden)
            to.partners[golden] = numbers[1][index]
    for join in source.joins:
        if numbers[1].keys() >= set(join.target):
            to.add_join(_numbered(join, *numbers))


_PART: Final = SliceListing(Coordinates(), Path())
_BY_A_PERSON: Final = (Origin.MANUAL, 1.0, _BY_HAND)


def _numbered(join: Join, golden: Mapping[int, int], target: Mapping[int, int]) -> Join:
    """Give the nodes of a join other numbers."""
    return replace(
        join,
        golden=tuple(golden[index] for index in join.golden),
        target=tuple(target[index] for index in join.target),
    )
