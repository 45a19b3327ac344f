"""One comparison: what it says first, its slices, where errors begin, and what was read."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import has_points, most_amplified
from firstdrift.catalogue.comparisons.kept import kinds_of
from firstdrift.catalogue.comparisons.overview import AmplifiedNode
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import pairs_of_row
from firstdrift.catalogue.dumps.following import let_follow
from firstdrift.catalogue.dumps.records import changed_since, get_dump
from firstdrift.catalogue.matches.left_over import least_matched
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.report import DumpSummary
from firstdrift.exports.report_json import counts_object
from firstdrift.groups import known
from firstdrift.model.slice import only_on_one_side
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import Counts, Finding, Findings, InputDifference
from firstdrift.wording.message import Message
from firstdrift_frontend.metric_names import METRICS, Metric
from firstdrift_server.comparison.charts import SCALES, scale_of
from firstdrift_server.comparison.data import NOTHING_YET, notes_of
from firstdrift_server.comparison.depth import Depth, depth_of
from firstdrift_server.comparison.evidence import Evidence, evidence_of
from firstdrift_server.comparison.heat_map import LayersTable, axes_of, layers_table
from firstdrift_server.comparison.progress import findings_so_far, slices_expected
from firstdrift_server.comparison.strip import Strip, metrics_of, strip_of
from firstdrift_server.context import Context
from firstdrift_server.new.view import new_address
from firstdrift_server.notes.view import noted_nodes
from firstdrift_server.parts.addresses import (
    address,
    comparison_address,
    graph_address,
    likely_address,
    match_address,
    node_address,
    tree_address,
    unmatched_address,
)
from firstdrift_server.parts.command_line import compare_command
from firstdrift_server.parts.growth import Growing, growing, set_followed
from firstdrift_server.parts.match_sets import MatchSetView, ResultsView, match_set_of, results_over
from firstdrift_server.parts.measured_from import measured_from
from firstdrift_server.parts.sentence import (
    Linked,
    finding_address,
    first_position,
    linked_summary,
    position_of,
)
from firstdrift_server.parts.summary import ComparisonSummary, WorkerView, comparison_summary, worker_view
from firstdrift_server.questions.folders import is_inside


class Wanted(Struct, frozen=True):
    """What of a comparison its page is asked to show; None where the page chooses.

    Attributes:
        slice: position of the slice that the lower half is about.
        metric: of the strip of slices and its chart.
        scale: of the chart: "log" or "linear".
        by: what a row of the map of layers stands for: "slice", "token", "step", "rank", "micro_step".
        was: the rule set before this one, for which there is a way back until somebody puts it away.
    """

    slice: int | None = None
    metric: str | None = None
    scale: str | None = None
    by: str | None = None
    was: str | None = None

    def address(self, comparison: int, part: str = "", **changes: object) -> str:
        """Return the address of the page as it is shown, with something else chosen."""
        chosen = asdict(self) | changes
        return comparison_address(comparison, **chosen) + (part and f"#{part}")


class Place(Struct, frozen=True):
    """A finding, and where it is seen; without an address, its slice is not (or no longer) there."""

    finding: Finding
    name: str
    where: Message
    address: str | None


class Change(Struct, frozen=True):
    """A side that is not what was compared any more."""

    side: str
    is_gone: bool
    compared_at: datetime


class Link(Struct, frozen=True):
    """Something that can be chosen, and the address that chooses it."""

    name: str
    address: str


class MetricLink(Struct, frozen=True):
    """A metric that can be chosen for the strip of slices."""

    name: str
    metric: Metric
    address: str


class StripView(Struct, frozen=True, kw_only=True):
    """The slices under a metric.

    Attributes:
        selected: position of the slice that the lower half is about.
        addresses: those that choose a slice, by its position.
    """

    strip: Strip
    selected: int | None
    metric: Metric | None
    metrics: list[MetricLink]
    scale: str | None
    scales: list[Link]
    addresses: Mapping[int, str]


class LayersView(Struct, frozen=True):
    """How the map of layers may be shown, and a part of it as a table; None if there are no layers."""

    by: str
    axes: list[Link]
    table: LayersTable | None


class SliceView(Struct, frozen=True, kw_only=True):
    """The slice that the lower half is about.

    Attributes:
        filtered: addresses of its tree, by the verdict that is let through.
        metrics: of its logits, or of its last output where none were recorded.
        tokens: the next token of golden and target.
        positions: of how many the logits tell the next token; None where that is not known.
        throughout: the faults that differ throughout the slice.
    """

    position: int
    name: Message
    golden_name: Message
    verdict: str
    counts: Mapping[str, int]
    rows: int
    tree: str
    graph: str
    filtered: Mapping[str, str]
    unmatched: str
    match: str
    origins: list[Place]
    worst: Place | None
    logits: Place | None
    logits_recorded: bool
    metrics: Mapping[str, float | int | None]
    tokens: tuple[int | None, int | None]
    positions: int | None
    input_difference: InputDifference | None
    throughout: list[Message]


class Amplified(Struct, frozen=True):
    """A node that adds to the error, and where it is seen.

    Attributes:
        measured_from: what its errors come from: statistics give lower bounds.
    """

    node: AmplifiedNode
    address: str
    measured_from: str


class Drawn(Struct, frozen=True):
    """Where the data of the charts are; `version` is another when they have changed."""

    version: str
    chart: str
    layers: str
    scatter: str
    nodes: str


class DumpView(Struct, frozen=True):
    """A dump of the comparison, and what was read of it; None until that is known."""

    path: str
    summary: DumpSummary | None


class ComparisonView(ComparisonSummary, frozen=True, kw_only=True):
    """A comparison, laid out for its page.

    Attributes:
        sentence: what it says first, or what can be said so far.
        evidence: what the first bad node shows in one look; None if there is none.
        suspects: those of other slices than the one that is selected.
        unpaired: which slices one dump alone has.
        edit: address of the form for a new comparison, filled in as for this one.
        slices: so many have been compared, of as many as are `expected`.
        depth: the errors of the selected slice against depth; None if it has too few layers.
        has_points: whether a chart of nodes has anything to show.
        match_set: whose results these are; None of a comparison that somebody asked for.
        sets: match sets that are laid over it.
        likely: address of the matches that would resolve most; None where little is left over.
        was: the rule set before this one, if it was changed just now; `without_was` forgets it.
        changes: dumps that have changed since; None if nobody asked.
        growing: dumps that are still being written.
    """

    sentence: Linked | None
    findings: Findings | None
    first_token: Place | None
    first_node: Place | None
    evidence: Evidence | None
    suspects: list[Place]
    dumps: Mapping[str, DumpView]
    seconds: Mapping[str, float] | None
    notes: list[Message]
    unreadable: int | None
    unpaired: tuple[Message, ...]
    edit: str
    rule_sets: tuple[str, ...]
    was: str | None
    without_was: str
    worker: WorkerView
    command: str
    slices: int
    expected: int
    counts_so_far: Mapping[str, int]
    measured_from: str
    strip: StripView
    layers: LayersView
    selected: SliceView | None
    depth: Depth | None
    amplified: list[Amplified]
    has_points: bool
    drawn: Drawn
    noted: list[dict[str, Any]]
    match_set: MatchSetView | None
    sets: list[ResultsView]
    likely: str | None
    changes: list[Change] | None
    growing: list[Growing]


def comparison_view(
    session: Session, comparison_id: int, wanted: Wanted, changes: list[Change] | None = None
) -> ComparisonView:
    """Lay a comparison out for its page."""
    comparison = get_comparison(session, comparison_id)
    slices = slice_pairs_of(session, comparison_id)
    findings = findings_so_far(comparison, slices)
    selected = _selected(slices, findings, wanted.slice)
    strip = strip_of(slices, findings, wanted.metric)
    said = comparison.findings or NOTHING_YET
    paths = str(comparison.golden_path), str(comparison.target_path)
    return ComparisonView(
        **asdict(comparison_summary(session, comparison)),
        sentence=linked_summary(comparison.id, findings, slices) if findings else None,
        findings=comparison.findings,
        first_token=_place(comparison.id, said.first_bad_token, slices),
        first_node=_place(comparison.id, said.first_bad_node, slices),
        evidence=evidence_of(session, comparison, slices),
        suspects=_elsewhere(comparison.id, said, slices, selected),
        dumps={
            "golden": DumpView(paths[0], comparison.golden),
            "target": DumpView(paths[1], comparison.target),
        },
        seconds=comparison.seconds,
        notes=notes_of(comparison, slices),
        unreadable=comparison.unreadable,
        unpaired=only_on_one_side(comparison.unmatched_golden, comparison.unmatched_target),
        edit=new_address(*paths, comparison.options, comparison.note),
        rule_sets=RULES,
        was=wanted.was if wanted.was != comparison.options.rules else None,
        without_was=wanted.address(comparison.id, was=None),
        worker=worker_view(session),
        command=compare_command(*paths, comparison.options),
        slices=len(slices),
        expected=slices_expected(comparison, slices),
        counts_so_far=counts_object(sum((pair.judgement.counts for pair in slices), Counts())),
        measured_from=strip.measured_from,
        strip=_strip_view(comparison.id, strip, wanted, selected),
        layers=_layers_view(session, comparison.id, slices, findings, wanted),
        selected=_slice_view(session, comparison.id, selected, slices) if selected else None,
        depth=depth_of(session, selected) if selected else None,
        amplified=_amplified(session, selected) if selected else [],
        has_points=selected is None or has_points(session, selected.id),
        drawn=_drawn(comparison, slices, wanted, selected),
        noted=noted_nodes(session, comparison_id),
        match_set=(match_set := match_set_of(session, comparison_id)),
        sets=results_over(session, comparison_id),
        likely=_likely(comparison, slices, match_set),
        changes=changes,
        growing=_growing(session, comparison),
    )


def _growing(session: Session, comparison: Comparison) -> list[Growing]:
    sides = {"golden": comparison.golden_dump_id, "target": comparison.target_dump_id}
    return known(growing(session, dump, side) for side, dump in sides.items())


def follow_dumps(session: Session, comparison_id: int, stops: bool) -> None:
    """Look at the dumps of a comparison that are still being written again by itself, or no more."""
    paths = [Path(one.path) for one in _growing(session, get_comparison(session, comparison_id))]
    set_followed(session, paths, stops=stops)
    let_follow(session, comparison_id, () if stops else paths)


def _likely(
    comparison: Comparison, slices: Sequence[SlicePair], match_set: MatchSetView | None
) -> str | None:
    """Give the address of the matches that would resolve most, where much is left over."""
    is_old = match_set is not None and not match_set.is_in_force
    if comparison.state is not JobState.DONE or is_old:
        return None
    pair = least_matched(slices, comparison.findings)
    return None if pair is None else likely_address(comparison.id, pair.position)


def _layers_view(
    session: Session,
    comparison: int,
    slices: Sequence[SlicePair],
    findings: Findings | None,
    wanted: Wanted,
) -> LayersView:
    axes = axes_of(slices)
    links = [Link(axis, wanted.address(comparison, "layers", by=axis)) for axis in axes]
    chosen = wanted.by if wanted.by in axes else axes[0]
    return LayersView(chosen, links, layers_table(session, comparison, slices, findings))


def _amplified(session: Session, pair: SlicePair) -> list[Amplified]:
    """List the nodes of a slice that add the most to the error: what the chart of nodes says, in words."""
    return [
        Amplified(
            node,
            node_address(pair.comparison_id, pair.position, node.row),
            measured_from(kinds_of(node.kinds or 0)),
        )
        for node in most_amplified(session, pair.id)
    ]


def _drawn(
    comparison: Comparison, slices: Sequence[SlicePair], wanted: Wanted, selected: SlicePair | None
) -> Drawn:
    data, made = f"/api/v1/comparisons/{comparison.id}", sum(pair.revision for pair in slices)
    chart = {"metric": wanted.metric, "scale": wanted.scale}
    return Drawn(
        version=f"{comparison.revision}.{len(slices)}.{made}.{comparison.state}",
        chart=address(f"{data}/chart", **chart),
        layers=address(f"{data}/layers", by=wanted.by),
        scatter=f"{data}/slices/{selected.position}/scatter" if selected else "",
        nodes=f"/c/{comparison.id}/s/{selected.position}/n/" if selected else "",
    )


def changes_view(session: Session, context: Context, comparison_id: int) -> list[Change]:
    """List the dumps of a comparison that are not what was compared any more; looks at all their files."""
    comparison = get_comparison(session, comparison_id)
    sides = (
        ("golden", comparison.golden_path, comparison.golden_dump_id, comparison.golden_files),
        ("target", comparison.target_path, comparison.target_dump_id, comparison.target_files),
    )
    found = []
    for side, path, dump_id, files in sides:
        if dump_id is not None and is_inside(context.roots, path):
            indexed = get_dump(session, dump_id)
            if changed_since(path, files or indexed.fingerprint):
                then = (files and comparison.finished_at) or indexed.indexed_at
                found.append(Change(side, is_gone=not path.exists(), compared_at=then))
    return found


def _selected(slices: Sequence[SlicePair], findings: Findings | None, wanted: int | None) -> SlicePair | None:
    """Choose the slice that was asked for, else that of the first finding, else the first."""
    position = wanted if wanted is not None else first_position(slices, findings)
    return next((pair for pair in slices if pair.position == position), slices[0] if slices else None)


def _elsewhere(
    comparison: int, findings: Findings, slices: Sequence[SlicePair], selected: SlicePair | None
) -> list[Place]:
    """List the suspects of other slices; those of the selected one are listed with it."""
    here = selected.position if selected else None
    return _places(
        comparison,
        [one for one in findings.suspects if position_of(slices, one.coordinates) != here],
        slices,
    )


def _places(comparison: int, findings: Sequence[Finding], slices: Sequence[SlicePair]) -> list[Place]:
    return known(_place(comparison, one, slices) for one in findings)


def _place(comparison: int, finding: Finding | None, slices: Sequence[SlicePair]) -> Place | None:
    if finding is None:
        return None
    where, seen = finding.coordinates.name(), finding_address(comparison, finding, slices)
    return Place(finding, finding.name, where, seen)


def _strip_view(comparison: int, strip: Strip, wanted: Wanted, selected: SlicePair | None) -> StripView:
    shown = replace(wanted, slice=selected.position if selected else None, metric=strip.metric)
    return StripView(
        strip=strip,
        selected=shown.slice,
        metric=METRICS[strip.metric] if strip.metric else None,
        metrics=[
            MetricLink(name, METRICS[name], shown.address(comparison, "slices", metric=name, scale=None))
            for name in strip.metrics
        ],
        scale=scale_of(strip, wanted.scale),
        scales=[Link(scale, shown.address(comparison, "slices", scale=scale)) for scale in SCALES],
        addresses={
            cell.slice: shown.address(comparison, "selected", slice=cell.slice)
            for line in strip.lines
            for cell in line.cells
        },
    )


def _positions_of(session: Session, pair: SlicePair) -> int | None:
    """Count the positions of the logits of a slice, if their pair says which of them agree."""
    judged = pair.judgement
    if judged.logits is None or "top1_agreement" not in judged.logits.metrics:
        return None
    of_row = pairs_of_row(session, pair.id, judged.logits.row)
    shapes = (one.plan.golden.shape for one in of_row if one.index == judged.logits_pair)
    return next((math.prod(shape[:-1]) for shape in shapes if shape), None)


def _slice_view(session: Session, comparison: int, pair: SlicePair, slices: Sequence[SlicePair]) -> SliceView:
    judged = pair.judgement
    return SliceView(
        position=pair.position,
        name=pair.target.name(),
        golden_name=pair.golden.name(),
        verdict=pair.verdict,
        counts=counts_object(judged.counts),
        throughout=[one.reason for one in judged.systematic if one.is_fault],
        rows=pair.rows,
        tree=tree_address(comparison, pair.position),
        graph=graph_address(comparison, pair.position),
        filtered={
            name: tree_address(comparison, pair.position, verdict=name)
            for name in ("error", "warning", "incomparable", "unmatched")
        },
        unmatched=unmatched_address(comparison, pair.position),
        match=match_address(comparison, pair.position),
        origins=_places(comparison, judged.own_origins, slices),
        worst=_place(comparison, judged.worst, slices),
        logits=_place(comparison, judged.logits, slices),
        logits_recorded=judged.logits_recorded,
        metrics=metrics_of(pair),
        tokens=(judged.golden_token, judged.target_token),
        positions=_positions_of(session, pair),
        input_difference=judged.input_difference,
    )
