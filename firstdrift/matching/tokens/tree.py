"""All sequences of two runs as one tree: two rows are of one token where they are of one node.

5 ─ 7 ─ 9        golden rows 0, 1, 2; target rows 2, 3, 4
└─ 4             golden row 4 (and 3: the same 5 once more); target row 1

So the token is the same, and every token before it. A run that begins within a sequence, a chunk or a
generated token, goes on with the one sequence that was as long by then, which ends where that run does from
then on; where several were, with the one that goes on so in the other run. Behind a prefix that no run has (a
cache from before), tokens are the same where places and ids are. Where several sequences fit, it is not known
which one it is.

5 ─ 7 ─ 9 ─ 4        a later pass gives the only sequence a 6 in place of the 4: the 4 was a draft
        └─ 6         that was rejected, and is no token of the sequence
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product
from typing import TypeAlias

from firstdrift.matching.tokens.given import Given, Numbers, Run
from firstdrift.matching.tokens.thresholds import ROOT

Nodes: TypeAlias = list[int] | None
"""The node of each token of a run; None if that is not known."""


class _Ends:
    """Where the sequences of one side end that have been given so far."""

    def __init__(self) -> None:
        self._found: defaultdict[tuple[int | None, int | None], Counter[int]] = defaultdict(Counter)
        self._known: defaultdict[int, list[tuple[int, int | None]]] = defaultdict(list)

    def of(self, run: Run) -> Sequence[int]:
        """Return the ends that a run may go on from: of its length by then, of its place in the batch."""
        of_slot = self._found.get((run.start, run.slot))
        return [*(of_slot or self._found.get((run.start, None)) or ())]

    def begin(self, node: int, depth: int, slot: int | None) -> None:
        self._known[node].append((depth, slot))
        self._count(node, depth, slot, 1)

    def go_on(self, node: int, slot: int | None) -> None:
        """Take away the end of a sequence that goes on: the one of its place, if several end there."""
        known = self._known[node]
        if known:
            chosen = max(known, key=lambda one: one[1] == slot)
            known.remove(chosen)
            self._count(node, *chosen, -1)

    def _count(self, node: int, depth: int, slot: int | None, by: int) -> None:
        for key in product({depth, None}, {slot, None}):
            self._found[key][node] += by
            if not self._found[key][node]:
                del self._found[key][node]


class TokenTree:
    """The tree, in which the runs of both sides are placed."""

    def __init__(self) -> None:
        """Begin with the root."""
        self._children: dict[tuple[int, float], int] = {}
        self._before: defaultdict[tuple[int, float], list[int]] = defaultdict(list)
        self._unseen: dict[int, int] = {}
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]

    def place(self, sides: Sequence[Given]) -> list[list[Nodes]]:
        """Return the nodes of the runs of each side: first of those that begin a sequence, on all sides."""
        placed: list[list[Nodes]] = [[None] * len(side.runs) for side in sides]
        for side, found in zip(sides, placed, strict=True):
            for at, run in enumerate(side.runs):
                if run.start == 0:
                    found[at] = self._grown(ROOT, run.ids)
        for side, found in zip(sides, placed, strict=True):
            self._go_on(side.runs, found)
        # What one side has placed last may tell what the other one could not know.
        for side, found in zip(sides, placed, strict=True):
            self._go_on(side.runs, found)
        return placed

    def _go_on(self, runs: Sequence[Run], found: list[Nodes]) -> None:
        """Place the runs that go on with a sequence, in their order."""
        if None not in found:
            return
        ends = _Ends()
        before: list[int] = []
        for _, of_part in groupby(range(len(runs)), lambda at: runs[at].part):
            own = [*of_part]
            for at in own:
                if found[at] is None:
                    origin = self._taken_back(runs[at], runs, found, before, ends)
                    origin = self._origin(runs[at], ends.of(runs[at])) if origin is None else origin
                    found[at] = None if origin is None else self._grown(origin, runs[at].ids)
            placed = [(runs[at].slot, nodes) for at in own if (nodes := found[at])]
            for slot, nodes in placed:
                ends.begin(nodes[-1], self.depths[nodes[-1]], slot)
            for slot, nodes in placed:
                ends.go_on(self.parents[nodes[0]], slot)
            before = own

    def _taken_back(
        self, run: Run, runs: Sequence[Run], found: list[Nodes], before: Sequence[int], ends: _Ends
    ) -> int | None:
        """Return the node that a run goes on from where the pass before had drafts, and forget these."""
        own = _only([at for at in before if runs[at].slot == run.slot and _may_be_drafts(runs[at], run)])
        nodes = None if own is None else found[own]
        if own is None or nodes is None:
            return None
        kept = (run.start or 0) - (self.depths[nodes[0]] - 1)
        if not 0 < kept < len(nodes) or self._children.get((nodes[kept - 1], run.ids[0])) == nodes[kept]:
            return None
        ends.go_on(nodes[-1], run.slot)
        found[own] = nodes[:kept]
        return nodes[kept - 1]

    def _origin(self, run: Run, open_ends: Sequence[int]) -> int | None:
        """Return the node that a run goes on from; None if several may be that one."""
        if run.start is None and not open_ends:
            return ROOT
        everywhere = () if run.start is None else self._before.get((run.start, run.ids[0]), ())
        for candidates in (open_ends, everywhere):
            fitting = [each for each in candidates if self._walked(each, run.ids) is not None]
            if fitting:
                return _only(fitting)
        return _only(open_ends) if open_ends else self._behind_unseen(run.start or ROOT)

    def _behind_unseen(self, depth: int) -> int:
        """Return the node that stands for all prefixes of a length that no run has."""
        if depth not in self._unseen:
            self._unseen[depth] = self._new(-1, depth)
        return self._unseen[depth]

    def _new(self, parent: int, depth: int) -> int:
        self.parents.append(parent)
        self.depths.append(depth)
        return len(self.depths) - 1

    def _grown(self, origin: int, ids: Numbers) -> list[int]:
        nodes: list[int] = []
        for token in ids:
            key = (origin, token)
            if key not in self._children:
                self._children[key] = self._new(origin, self.depths[origin] + 1)
                self._before[self.depths[origin], token].append(origin)
            origin = self._children[key]
            nodes.append(origin)
        return nodes

    def _walked(self, origin: int, ids: Numbers) -> int | None:
        """Return where a run ends that is in the tree already; None if it is not."""
        for token in ids:
            at = self._children.get((origin, token))
            if at is None:
                return None
            origin = at
        return origin

    def last_of(self, nodes: Iterable[int]) -> set[int]:
        """Return the nodes that no other of them follows: where sequences end."""
        nodes = set(nodes)
        return nodes - {self.parents[node] for node in nodes}

    def divided(self, ids: Numbers, ends: set[int]) -> list[int] | None:
        """Return how long the sequences are that tokens consist of, each of which ends at an end; or None."""
        lengths: list[int] = []
        at = 0
        while at < len(ids):
            longest = max(self._ends_on(ids, at, ends), default=0)
            if not longest:
                return None
            lengths.append(longest)
            at += longest
        return lengths

    def _ends_on(self, ids: Numbers, first: int, ends: set[int]) -> Iterator[int]:
        """Yield how long the sequences are that begin at a place and end at an end."""
        node: int | None = ROOT
        for length in range(1, len(ids) - first + 1):
            node = self._children.get((node or ROOT, ids[first + length - 1]))
            if node is None:
                return
            if node in ends:
                yield length


def _may_be_drafts(run: Run, later: Run) -> bool:
    """Tell whether a run goes on with a sequence, and another run begins within it."""
    first, again = run.start or 0, later.start or 0
    return 0 < first < again < first + len(run.ids)


def _only(nodes: Sequence[int]) -> int | None:
    return nodes[0] if len(nodes) == 1 else None
