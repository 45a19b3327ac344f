"""A comparison as data: what `firstdrift compare --json` says, with its state and its slices."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import incomparable_pairs
from firstdrift.catalogue.lookup import record_of
from firstdrift.catalogue.matches.match_sets import laid_over
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.outlines import LISTED
from firstdrift.comparison.report import DumpSummary, all_notes
from firstdrift.exports.report_json import (
    comparison_object,
    coordinates_object,
    counts_object,
    coverage_object,
    finding_object,
    incomparable_object,
)
from firstdrift.verdict.after_ties import FOLLOWS
from firstdrift.verdict.judgement import Counts, Findings, Verdict
from firstdrift.wording.message import Message, joined
from firstdrift_server.parts.summary import JobView, comparison_summary

NOTHING_YET = Findings(summary=Message.of("summary.nothing_yet"))

JSONObject = Mapping[str, Any]
"""A part that the command writes likewise."""


class SliceData(Struct, frozen=True, kw_only=True):
    """A slice: what was counted in it, where errors begin, and the numbers of its logits."""

    step: int | None
    rank: int | None
    ranks: list[int] | UnsetType = UNSET
    token: int | None
    micro_step: int | None
    slice: int
    verdict: Verdict
    counts: Mapping[str, int]
    coverage: JSONObject | None
    rows: int
    logits: JSONObject | None
    logits_error: float | None
    origins: list[JSONObject | None]


class ResultsOf(Struct, frozen=True):
    """The version of a match set whose results a comparison holds, and the comparison it is laid over."""

    id: int
    name: str
    version: int
    comparison: int


class ComparisonData(Struct, frozen=True, kw_only=True):
    """A comparison as `firstdrift compare --json` describes one, with its state and its slices."""

    summary: Message
    golden: JSONObject
    target: JSONObject
    counts: Mapping[str, int]
    first_bad_token: JSONObject | None
    first_bad_node: JSONObject | None
    input_differs: list[JSONObject]
    rank_finding: Message | None
    suspects: list[JSONObject]
    overflow: list[JSONObject]
    unlike: Message | None
    systematic: list[JSONObject]
    coverage: JSONObject | None
    not_judged: JSONObject | None
    ties: Message | None
    seconds: Mapping[str, float]
    id: int
    state: JobState
    job: JobView
    rules: str
    baseline: int | None
    note: str
    created_at: datetime
    finished_at: datetime | None
    thresholds: Mapping[str, float]
    unpaired_slices: Mapping[str, list[JSONObject]]
    notes: list[Message]
    unreadable: int | None
    incomparable: list[JSONObject]
    slices: list[SliceData]
    match_set: ResultsOf | None
    node_notes: list[JSONObject] | UnsetType = UNSET


def comparison_data(session: Session, comparison_id: int) -> ComparisonData:
    """Describe a comparison."""
    comparison = get_comparison(session, comparison_id)
    slices = slice_pairs_of(session, comparison_id)
    left_over = {"golden": comparison.unmatched_golden, "target": comparison.unmatched_target}
    return record_of(
        ComparisonData,
        comparison_summary(session, comparison),
        **comparison_object(
            comparison.golden or _unread(str(comparison.golden_path)),
            comparison.target or _unread(str(comparison.target_path)),
            comparison.counts or sum((pair.judgement.counts for pair in slices), Counts()),
            comparison.findings or NOTHING_YET,
            comparison.seconds or {},
        ),
        thresholds=comparison.options.thresholds.moved(),
        unpaired_slices={side: list(map(coordinates_object, left)) for side, left in left_over.items()},
        notes=notes_of(comparison, slices),
        unreadable=comparison.unreadable,
        incomparable=_incomparable(session, slices),
        slices=list(map(slice_data, slices)),
        match_set=_match_set(session, comparison_id),
        node_notes=UNSET,
    )


def slice_data(pair: SlicePair) -> SliceData:
    """Describe a slice."""
    judged = pair.judgement
    return SliceData(
        **coordinates_object(pair.target),
        slice=pair.position,
        verdict=pair.verdict,
        counts=counts_object(judged.counts),
        coverage=coverage_object(judged.coverage),
        rows=pair.rows,
        logits=finding_object(judged.logits),
        logits_error=judged.logits_error,
        origins=list(map(finding_object, judged.own_origins)),
    )


def notes_of(comparison: Comparison, slices: Sequence[SlicePair]) -> list[Message]:
    """List what is to be known of how a comparison was made."""
    return list(all_notes(comparison.notes, [(pair.target, pair.notes) for pair in slices]))


def _match_set(session: Session, comparison_id: int) -> ResultsOf | None:
    known = laid_over(session, comparison_id)
    if known is None:
        return None
    version = next(one.version for one in known.versions if one.results_id == comparison_id)
    return ResultsOf(known.id, known.name, version, known.comparison_id)


def _unread(path: str) -> DumpSummary:
    return DumpSummary(path=path, format="", slices=0, nodes=0, tensors=0)


def _incomparable(session: Session, slices: Sequence[SlicePair]) -> list[JSONObject]:
    """List the first pairs that could not be compared, and why; what follows from ties is counted beside."""
    found: list[JSONObject] = []
    for slice_pair in slices:
        if slice_pair.judgement.counts.incomparable and len(found) < LISTED:
            left = LISTED - len(found)
            found += [
                incomparable_object(slice_pair.target, pair.plan, joined(*pair.judgement.reasons))
                for pair in incomparable_pairs(session, slice_pair.id, limit=left)
                if all(said.id != FOLLOWS for said in pair.judgement.reasons)
            ]
    return found
