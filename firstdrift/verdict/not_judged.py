"""Where nothing was found because too little was looked at, that is said, and what to do.

    nothing found, outputs and half of the nodes compared   ─▶  the runs agree
    nothing found, less compared                            ─▶  not judged: how much was, why not more
    weights differ throughout, less compared                ─▶  that they do; beside that, not judged

Slices that were given other inputs are not looked at: that is said of them, and goes first. What an earlier
version judged, of which it is not known how much was compared, is left as it is.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.verdict.coverage import Coverage, whole_coverage
from firstdrift.verdict.judgement import Counts, Findings, NotJudged, Remedy, SliceJudgement
from firstdrift.verdict.summary import after_systematic
from firstdrift.wording.message import Message

_SAID: Final = frozenset({"summary.no_slices", "summary.no_values", "summary.none_comparable"})
"""Summaries that say already that nothing was compared."""


def with_coverage(found: Findings, judgements: Sequence[SliceJudgement], left_out: int = 0) -> Findings:
    """Say with what was found how much was compared; and where that is too little, nothing but that."""
    known = replace(found, coverage=whole_coverage([judged.coverage for judged in judgements], left_out))
    why = _not_judged(found, judgements)
    if why is None:
        return known
    if found.summary.id in _SAID or found.input_differs:
        return replace(known, not_judged=why)
    said = after_systematic(found.systematic, Message.of("summary.not_judged", why=why.why))
    return replace(known, summary=said, not_judged=why)


def _not_judged(found: Findings, judgements: Sequence[SliceJudgement]) -> NotJudged | None:
    counts = sum((judged.counts for judged in judgements), Counts())
    if _is_anything_found(found) or (counts.error and not found.systematic):
        return None
    given_others = {difference.coordinates for difference in found.input_differs}
    poor = [
        judged
        for judged in judgements
        if judged.coordinates not in given_others
        and judged.coverage is not None
        and not judged.coverage.is_enough
    ]
    if not poor:
        return None
    worst = min(poor, key=_share)
    said = _how_much(worst)
    if len(judgements) > 1:
        said = Message.of("coverage.in_slice", where=worst.coordinates.name(), said=said)
    remedy = _remedy(poor)
    cause = Message.of(f"coverage.cause_{remedy}", tensors=sum(judged.counts.incomparable for judged in poor))
    return NotJudged(Message.of("coverage.said_with_cause", said=said, cause=cause), remedy)


def _is_anything_found(found: Findings) -> bool:
    places = (found.first_bad_token, found.first_bad_node, found.unlike)
    return any(one is not None for one in places) or bool(found.suspects)


def _share(judged: SliceJudgement) -> float:
    coverage = judged.coverage or Coverage()
    return coverage.compared_nodes / coverage.nodes if coverage.nodes else 1.0


def _how_much(judged: SliceJudgement) -> Message:
    coverage = judged.coverage or Coverage()
    lacks = "both" if not (coverage.has_nodes or coverage.has_outputs) else "nodes"
    lacks = "outputs" if coverage.has_nodes else lacks
    nodes, compared = coverage.nodes, coverage.compared_nodes
    if lacks == "nodes" and coverage.backward_nodes and 2 * compared >= nodes:
        lacks, nodes, compared = "backward", coverage.backward_nodes, coverage.compared_backward_nodes
    return Message.of(f"coverage.lacks_{lacks}", nodes=nodes, compared=compared)


def _remedy(poor: Sequence[SliceJudgement]) -> Remedy:
    """Say what helps: whatever hindered most."""
    covered = known(judged.coverage for judged in poor)
    missed = sum(one.nodes - one.compared_nodes for one in covered)
    counts = sum((judged.counts for judged in poor), Counts())
    # Nodes that recorded nothing are left over as well, and no mapping makes them comparable.
    left = min(counts.unmatched_target_nodes, sum(one.target_nodes for one in covered))
    if left and 2 * left >= missed:
        return Remedy.MAPPING
    if counts.incomparable:
        return Remedy.TENSORS
    has_logits = all(
        judged.logits_recorded and one.has_outputs for judged, one in zip(poor, covered, strict=True)
    )
    return Remedy.LEVEL if has_logits else Remedy.DUMP
