"""On which rank an error began: by what ranks hold of merged tensors, and by what they tell each other.

    rank 0   ... all_reduce   its input agrees, its output does not   ◀─┐ explained: it comes from rank 1
    rank 1   ... all_reduce   its input differs                       ──┘

Calls belong together by operator, group and order: the k-th all_reduce of ranks 0 and 1 on either of them.
The k-th message that a rank sends to another is the k-th that this one receives from it, whether each was
called for alone or several at once.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from firstdrift.metrics.measurement import RankError
from firstdrift.model.tensor import TensorRecord
from firstdrift.operators.properties import message_of
from firstdrift.verdict.judgement import Communication, Finding, SliceJudgement

_ALONE: Final = 10.0
"""A rank alone is off if no other is off by a tenth as much."""

_LEAST: Final = 1e-3
"""Errors of shards below this say nothing about where an error began."""

_RANKS: Final = re.compile(r"\[([\d, ]*)\]")


def rank_alone(by_rank: Sequence[RankError]) -> int | None:
    """Return the rank that is off where all others agree, or where there is no other; None otherwise."""
    known = [(each.error, each.rank) for each in by_rank if each.error is not None]
    if len(known) < len(by_rank) or not known:
        return None
    (worst, rank), *others = sorted(known, reverse=True)
    if not worst > _LEAST:
        return None
    return rank if all(error * _ALONE < worst for error, _ in others) else None


def group_of(arguments: Sequence[TensorRecord]) -> tuple[int, ...]:
    """Return the ranks of the process group among some arguments; () if there is none."""
    for record in arguments:
        if record.dtype.endswith("ProcessGroup") and (found := _RANKS.search(record.scalar or "")):
            return tuple(int(rank) for rank in found[1].split(",") if rank.strip())
    return ()


class Explained(NamedTuple):
    """Why what a communication operator gives differs: what another rank gave to it does.

    Attributes:
        coordinates: slice of the rank that it came to.
        node: name of the operator there.
        source: what the other rank gave to it.
    """

    judged: SliceJudgement
    node: str
    source: Finding


def explain(judgements: Sequence[SliceJudgement]) -> list[Explained]:
    """Find the communications of one step whose bad outputs come from other ranks, in their order there."""
    together: defaultdict[Hashable, list[tuple[SliceJudgement, Communication]]] = defaultdict(list)
    for judged in judgements:
        rank = judged.coordinates.rank
        if rank is not None:
            for each in judged.communications:
                together[_key(rank, each)].append((judged, each))
    found: list[Explained] = []
    unexplained: set[tuple[int, str]] = set()
    for calls in together.values():
        sources = [(judged, each.given) for judged, each in calls if each.given is not None]
        for judged, each in calls:
            others = [given for one, given in sources if one is not judged]
            if each.given is None and each.differs:
                if others:
                    found.append(Explained(judged, each.node, others[0]))
                else:
                    unexplained.add((id(judged), each.node))
    # Of several messages of one call each has to be.
    return [each for each in found if (id(each.judged), each.node) not in unexplained]


def _key(rank: int, each: Communication) -> Hashable:
    if each.peer is not None:
        ends = (rank, each.peer) if message_of(each.operator) == "sends" else (each.peer, rank)
        return "one to one", ends, each.number
    return each.operator, each.group, each.number
