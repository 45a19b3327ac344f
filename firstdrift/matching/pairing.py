"""What is matched so far of two slices, while they are being matched."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, product
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.cross_framework.layer_ops import Line
from firstdrift.matching.experts.find_order import Moved
from firstdrift.matching.plan import MatchingRules, Messages, Origin
from firstdrift.matching.ranks.partial_dump import Spread
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.structure.similarity import Evidence
from firstdrift.matching.structure.thresholds import CONFIDENT
from firstdrift.matching.tree import SliceTree, build_tree, do_other_work, is_operator
from firstdrift.model.slice import Slice
from firstdrift.wording.message import Message

Nodes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Golden and target nodes that are the same."""

INSIDE_CORRESPONDS: Final = Message.of("matching.reason.inside_corresponds")

SAME_PLACE: Final = (Message.of("matching.reason.same_place"),)

_EXACT: Final = Origin.EXACT
"""By itself, as it is asked of every node: Python 3.11 looks up slowly what an enum holds."""


class Found(Struct, frozen=True):
    """How a target node was matched.

    Attributes:
        golden: index of the golden node.
        origin: the rule that found it.
        score: how sure it is, 0 to 1.
        doubtful: whether a person has to confirm it.
        reasons: what spoke for it.
        joined: whether it is part of a match of several nodes.
    """

    golden: int
    origin: Origin
    score: float
    doubtful: bool
    reasons: Messages
    joined: bool = False

    @property
    def is_sure_pair(self) -> bool:
        """True if it is a match of two nodes that no person has to confirm."""
        return not (self.doubtful or self.joined)


class Join(Struct, frozen=True):
    """A match of several nodes with the one into which they were fused.

    Attributes:
        golden: indices of the golden nodes, in the order in which they are joined.
        target: indices of the target nodes; one side has one node.
        origin: the rule that found it.
        score: how sure it is, 0 to 1.
        reasons: what spoke for it.
        compiled: whether one side was compiled from the other, so that the sources of its nodes say which
            tensors are the same.
        experts: numbers of the experts of which one side has the operators one by one; as of `Op`.
        has_norm: whether the first of the several is a norm that the one begins with.
    """

    golden: tuple[int, ...]
    target: tuple[int, ...]
    origin: Origin
    score: float
    reasons: Messages
    compiled: bool = False
    experts: tuple[int, ...] = ()
    has_norm: bool = False

    def pairs(self) -> Iterator[Pair]:
        """Return each golden node with each target node."""
        return product(self.golden, self.target)


class SaidView(Struct, frozen=True):
    """How a person said that tensors of two matched nodes are seen as each other.

    Attributes:
        golden: labels of the golden tensors, several where they are added up; likewise target.
        view: what is done to them, as a view mapping says it; nothing where their shapes tell.
    """

    golden: tuple[str, ...]
    target: tuple[str, ...]
    view: tuple[str, ...]


class Pairing(Struct):
    """Two trees and what is matched of them so far.

    Attributes:
        golden: tree of the golden slice.
        target: tree of the target slice.
        rules: which rules may be used.
        evidence: weighs what speaks for a match.
        found: how each matched target node was matched.
        partners: target node of each matched golden node.
        fresh: matches whose children have not been looked at.
        joins: matches of several nodes; their nodes are in `found` and `partners` as well.
        joins_entered: how many of them whose children have been looked at.
        said_tensors: for a match, which golden tensor each target tensor was said to be, by label.
        said_views: for a match, how its tensors were said to be seen.
        lines: the two as lines of operators, if they are of different frameworks.
        spread: which of the two is that of one rank, if the widths of their operators say so.
        are_other: whether the two are of two implementations of one model.
        moved: mixtures of which the target stores the experts in another order, by their paths in it.
    """

    golden: SliceTree
    target: SliceTree
    rules: MatchingRules
    evidence: Evidence
    found: dict[int, Found] = field(default_factory=dict)
    partners: dict[int, int] = field(default_factory=dict)
    fresh: deque[Pair] = field(default_factory=deque)
    joins: list[Join] = field(default_factory=list)
    joins_entered: int = 0
    said_tensors: dict[Pair, dict[str, str]] = field(default_factory=dict)
    said_views: dict[Pair, list[SaidView]] = field(default_factory=dict)
    lines: tuple[Line, Line] | None = None
    spread: Spread | None = None
    are_other: bool = False
    moved: Mapping[str, Moved] = field(default_factory=dict)

    def add(self, pair: Pair, found: Found) -> None:
        """Record a match."""
        self.partners[pair[0]] = pair[1]
        self.found[pair[1]] = found
        self.fresh.append(pair)

    def add_sure(self, pair: Pair, origin: Origin, reasons: Messages, score: float = 1.0) -> None:
        """Record a match that no person has to confirm."""
        self.add(pair, Found(pair[0], origin, score, doubtful=False, reasons=reasons))

    def add_join(self, join: Join) -> None:
        """Record a match of several nodes; one whose nodes are not all free is none."""
        if not all(map(self.is_free, join.pairs())):
            return
        self.joins.append(join)
        self.partners.update(dict.fromkeys(join.golden, join.target[0]))
        found = Found(
            join.golden[0], join.origin, join.score, doubtful=False, reasons=join.reasons, joined=True
        )
        self.found.update(dict.fromkeys(join.target, found))

    def add_same_place(self, pair: Pair) -> None:
        """Record that two nodes have the same name and the same place."""
        golden, target = self.golden.nodes[pair[0]], self.target.nodes[pair[1]]
        reasons = [*SAME_PLACE]
        if golden.type_name and target.type_name and golden.type_name != target.type_name:
            classes = {"golden": golden.type_name, "target": target.type_name}
            reasons.append(Message.of("matching.reason.other_class", **classes))
        if golden.call != target.call:
            calls = {"golden": golden.call, "target": target.call}
            reasons.append(Message.of("matching.reason.other_call", **calls))
        self.add_sure(pair, _EXACT, tuple(reasons))

    def add_weighed(self, pair: Pair, score: float, *more: Message, doubtful: bool = False) -> None:
        """Record a match that was weighed; it is doubtful if its score is low."""
        reasons = (*self.evidence.reasons(*pair), *more)
        self.add(pair, Found(pair[0], Origin.STRUCTURE, score, doubtful or score < CONFIDENT, reasons))

    def follow(self, pair: Pair, leader: int) -> None:
        """Record a match that follows from that of another target node: backward from forward."""
        self.add(pair, replace(self.found[leader], golden=pair[0], reasons=(self.follows(leader),)))

    def follows(self, leader: int) -> Message:
        """Say that a match follows from that of a target node."""
        return Message.of("matching.reason.follows", leader=self.target.nodes[leader].name)

    def pairs(self) -> list[Pair]:
        """Return each matched golden node with each target node it is matched with."""
        return self.pairs_of((), self.found)

    def pairs_of(self, golden: Collection[int], target: Collection[int]) -> list[Pair]:
        """Return the matches that hold any of these nodes, each golden node with each target node."""
        partners = known(map(self.partners.get, golden))
        held = dict.fromkeys((*partners, *filter(self.found.__contains__, target))).keys()
        single = [(self.found[index].golden, index) for index in held if not self.found[index].joined]
        joins = (join for join in self.joins if not held.isdisjoint(join.target))
        return [*single, *chain.from_iterable(map(Join.pairs, joins))]

    def matches(self) -> Iterator[tuple[Nodes, Found]]:
        """Yield golden and target nodes of each match, in the order of its first target node."""
        joins = {join.target[0]: (join.golden, join.target) for join in self.joins}
        for target, found in sorted(self.found.items()):
            if not found.joined:
                yield ((found.golden,), (target,)), found
            elif target in joins:
                yield joins[target], found

    def release(self, target: int) -> None:
        """Undo the match of a target node, with all its nodes; an unmatched node changes nothing."""
        if target not in self.found:
            return
        if not self.found[target].joined:
            del self.partners[self.found.pop(target).golden]
            return
        at = next(at for at, join in enumerate(self.joins) if target in join.target)
        join = self.joins.pop(at)
        self.joins_entered -= at < self.joins_entered
        for index in join.golden:
            del self.partners[index]
        for index in join.target:
            del self.found[index]

    def copy(self) -> "Pairing":
        """Return the same, to be changed without changing this one."""
        return replace(
            self,
            found=dict(self.found),
            partners=dict(self.partners),
            fresh=deque(self.fresh),
            joins=list(self.joins),
        )

    def first_target(self, target: int) -> int | None:
        """Return the first target node of the match that a target node is in; None if it is in none."""
        return self.partners[self.found[target].golden] if target in self.found else None

    def is_free(self, pair: Pair) -> bool:
        """Tell whether neither of two nodes is matched yet, and they may be matched."""
        return pair[0] not in self.partners and pair[1] not in self.found and self.may_be_one(pair)

    def may_be_one(self, pair: Pair) -> bool:
        """Tell whether two nodes may do the same: in another implementation a name does not prove it."""
        return not self.are_other or not do_other_work(self.golden.nodes[pair[0]], self.target.nodes[pair[1]])

    def may_be_weighed(self, pair: Pair) -> bool:
        """Tell whether likeness may match two siblings; other implementations were matched as a whole."""
        if not self.are_other or is_operator(self.golden.nodes[pair[0]]):
            return True
        have_one_name = self.golden.relative_name(pair[0]) == self.target.relative_name(pair[1])
        return have_one_name and self.may_be_one(pair)

    def free_golden(self, siblings: Iterable[int]) -> list[int]:
        """Return the golden nodes that are not matched yet."""
        return [index for index in siblings if index not in self.partners]

    def free_target(self, siblings: Iterable[int]) -> list[int]:
        """Return the target nodes that are not matched yet."""
        return [index for index in siblings if index not in self.found]

    def is_exact(self, target: int) -> bool:
        """Tell whether a target node was matched by its name; the root always is."""
        return target == self.target.root or self.found[target].origin is _EXACT


def start_pairing(golden: Slice, target: Slice, rules: MatchingRules) -> Pairing:
    """Lay out two slices; nothing is matched yet."""
    trees = build_tree(golden), build_tree(target)
    return Pairing(*trees, rules, Evidence(*trees))
