"""The few matches that would resolve most of what has no partner: found by trying, and nothing is written.

free      Qwen2Model ? TransformerBlock    Qwen2MLP ? Mlp    …
tried     Qwen2Model = TransformerBlock    617 more pairs  ─▶  taken; the others are tried on top of it
"""

import time
from collections.abc import Container, Mapping, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from firstdrift.catalogue.matches.match_preview import Bench
from firstdrift.matching.manual.edits import Edit, match
from firstdrift.matching.match import lay_edits_on
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.structure.suggestions import Suggestion, suggest
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Direction

MOST_MATCHES: Final = 4
"""So few are offered."""

MOST_NODES: Final = 12
"""Partners are sought of so many nodes of each side, those with most inside."""

PARTNERS: Final = 3
"""So many partners of each are tried."""

SECONDS: Final = 4.0
"""After so much time of a processor no further match is tried: others on the machine take nothing away."""

LEAST_PAIRS: Final = 2
LEAST_SHARE: Final = 0.02
"""A match that adds fewer pairs of tensors, or a smaller share of those there are, resolves little."""


class LikelyMatch(Struct, frozen=True):
    """A match that would resolve much.

    Attributes:
        score: how much speaks for it, 0 to 1.
        more_pairs: how many pairs of tensors it adds to those that the matches before it give.
    """

    edit: Edit
    score: float
    more_pairs: int


class _Tried(Struct, frozen=True):
    """A match, and how many pairs it added when it was tried last; before that, as many as it might."""

    suggestion: Suggestion
    more_pairs: int

    @property
    def rank(self) -> tuple[int, float]:
        return self.more_pairs, self.suggestion.score

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.suggestion.golden, *self.suggestion.target)


def likely_matches(bench: Bench, edits: Sequence[Edit], seconds: float = SECONDS) -> tuple[LikelyMatch, ...]:
    """Choose, one after the other, the match that adds the most pairs of tensors to those before it.

    Args:
        bench: the slices, matched by all rules but the edits.
        edits: in force; matches are laid over them.
        seconds: so long matches are tried, in time of a processor.
    """
    until = time.thread_time() + seconds
    work = bench.work.copy()
    lay_edits_on(work, edits)
    pairs = len(bench.plan(edits).pairs)
    waiting = _candidates(work)
    chosen: list[LikelyMatch] = []
    while len(chosen) < MOST_MATCHES:
        best = _best(bench, (*edits, *map(attrgetter("edit"), chosen)), pairs, waiting, until)
        if best is None or best.more_pairs < max(LEAST_PAIRS, LEAST_SHARE * pairs):
            break
        one = best.suggestion
        chosen.append(LikelyMatch(match(one.golden, one.target), one.score, best.more_pairs))
        pairs += best.more_pairs
        waiting = [left for left in waiting if set(best.names).isdisjoint(left.names)]
    return tuple(chosen)


def _best(
    bench: Bench, edits: Sequence[Edit], pairs: int, waiting: list[_Tried], until: float
) -> _Tried | None:
    """Find the match that adds most; those that added less before are not tried again."""
    best: _Tried | None = None
    waiting.sort(key=attrgetter("rank"), reverse=True)
    for at, one in enumerate(waiting):
        if best is not None and one.more_pairs <= best.more_pairs:
            break
        if time.thread_time() > until:
            break
        added = match(one.suggestion.golden, one.suggestion.target)
        plan = bench.plan((*edits, added))
        waiting[at] = _Tried(one.suggestion, len(plan.pairs) - pairs)
        if best is None or waiting[at].rank > best.rank:
            best = waiting[at]
    return best


def _candidates(work: Pairing) -> list[_Tried]:
    """List matches that may resolve much: of the nodes without partner in which most others lie."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], Suggestion] = {}
    free = {
        "golden": _free_inside(work.golden, work.partners),
        "target": _free_inside(work.target, work.found),
    }
    for side, inside in free.items():
        for name in sorted(inside, key=inside.__getitem__, reverse=True)[:MOST_NODES]:
            for one in suggest(work, **{side: name}, most=PARTNERS):
                found.setdefault((one.golden, one.target), one)
    return [_Tried(one, _at_most(one, free)) for one in found.values()]


def _at_most(one: Suggestion, free: Mapping[str, Mapping[str, int]]) -> int:
    """Say how many pairs a match may add, roughly: as many as the side has tensors that has fewer."""
    golden, target = (
        sum(free[side].get(name, 0) for name in getattr(one, side)) for side in ("golden", "target")
    )
    return _PASSES * min(golden, target)


_PASSES: Final = 3
"""Beside what a node of the forward pass holds there are gradients, and gradients of parameters."""


def _free_inside(tree: SliceTree, matched: Container[int]) -> dict[str, int]:
    """Count the tensors of each forward node without partner, with those inside it that have none."""
    free = [at for at in range(len(tree.nodes)) if at not in matched]
    forward = [at for at in free if tree.nodes[at].direction is not Direction.BACKWARD]
    inside = dict.fromkeys(forward, 0)
    for at in forward:
        for above in (at, *tree.around(at)):
            if above in inside:
                inside[above] += len(tree.nodes[at].tensors)
    return {tree.nodes[at].name: count for at, count in inside.items()}
