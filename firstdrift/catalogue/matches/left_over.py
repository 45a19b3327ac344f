"""Where so much has no partner that a few matches may help."""

from collections.abc import Sequence
from typing import Final

from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.verdict.coverage import Coverage
from firstdrift.verdict.judgement import Findings, Remedy, SliceJudgement

ONE_IN: Final = 10
"""Matches may help where one node in so many is left over on both sides."""


def least_matched(pairs: Sequence[SlicePair], findings: Findings | None) -> SlicePair | None:
    """Return the pair of slices of which most is left over; None if of none so much is that matches help."""
    many = [pair for pair in pairs if are_many_left_over(pair.judgement, findings)]
    return max(many, key=lambda pair: _left(pair.judgement), default=None)


def are_many_left_over(judged: SliceJudgement, findings: Findings | None = None) -> bool:
    """Tell whether so much of a slice has no partner that matches may help."""
    left, coverage = _left(judged), judged.coverage or Coverage()
    not_judged = findings.not_judged if findings is not None else None
    is_remedy = not_judged is not None and not_judged.remedy is Remedy.MAPPING
    return left > 0 and (is_remedy or left * ONE_IN >= coverage.nodes)


def _left(judged: SliceJudgement) -> int:
    return min(judged.counts.unmatched_golden_nodes, judged.counts.unmatched_target_nodes)
