"""What follows where a node chose otherwise by a tie: what the chosen are given holds other rows.

Neither is an error, and the second is bound to be incomparable: so it is said once, and counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from firstdrift.matching.plan import TensorPair
from firstdrift.verdict.classify import Classification
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import PairJudgement, Ties

FOLLOWS = "pair.other_rows_by_tie"
"""What is said of a pair that cannot be compared because of a tie."""


class _Tie(NamedTuple):
    """Where a node chose otherwise: when, and the first and the last row of what depends on it."""

    order: int
    first: int
    last: int


def with_other_rows(evidence: Evidence, classification: Classification) -> frozenset[int]:
    """Return the pairs that hold another number of rows on the two sides because of a tie."""
    ties = list(_ties(evidence, classification))
    if not ties:
        return frozenset()
    numbered = enumerate(evidence.plan.pairs)
    return frozenset(at for at, pair in numbered if _has_other_rows(pair) and _is_after(evidence, ties, at))


def ties_of(evidence: Evidence, classification: Classification, pairs: Sequence[PairJudgement]) -> Ties:
    """Count where nodes chose otherwise, with nothing wrong before, and the pairs that follow from it."""
    places = {(tie.first, tie.last) for tie in _ties(evidence, classification)}
    return Ties(len(places), sum(FOLLOWS in [said.id for said in pair.reasons] for pair in pairs))


def _ties(evidence: Evidence, classification: Classification) -> Iterator[_Tie]:
    for choice in evidence.choices:
        if choice.block >= 0 and _is_healthy(evidence, classification, choice.order):
            yield _Tie(choice.order, choice.block, choice.last)
    for row, said in zip(evidence.rows, classification.rows, strict=True):
        if said.is_tie and row.parent is not None and _is_healthy(evidence, classification, row.order):
            around = evidence.rows[row.parent]
            yield _Tie(row.order, around.index, around.last)


def _is_healthy(evidence: Evidence, classification: Classification, order: int) -> bool:
    """Tell whether no error began before."""
    first = classification.first_origin
    return first is None or order < evidence.in_order[first].order


def _is_after(evidence: Evidence, ties: Iterable[_Tie], pair: int) -> bool:
    row = evidence.row_of(pair)
    return any(tie.first <= row.index <= tie.last and row.order > tie.order for tie in ties)


def _has_other_rows(pair: TensorPair) -> bool:
    """Tell whether two shapes differ in one dimension and in no other."""
    golden, target = pair.golden.shape, pair.target.shape
    if golden is None or target is None or len(golden) != len(target):
        return False
    return sum(one != other for one, other in zip(golden, target, strict=True)) == 1
