"""One comparison: what it says first, its slices, where errors begin, and what was read."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import has_points, most_amplified
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import incomparable_pairs
from firstdrift.catalogue.dumps.records import changed_since_indexed, get_dump
from firstdrift.catalogue.matches.match_sets import laid_over
from firstdrift.comparison.report import DumpSummary, all_notes
from firstdrift.exports.report_json import (
    INCOMPARABLE_SHOWN,
    comparison_object,
    coordinates_object,
    counts_object,
    coverage_object,
    finding_object,
    incomparable_object,
)
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import Counts, Finding, Findings
from firstdrift.wording.message import Message, joined
from firstdrift_frontend.metric_names import METRICS
from firstdrift_server.comparison.charts import SCALES, scale_of
from firstdrift_server.comparison.heat_map import axes_of, layers_table
from firstdrift_server.comparison.progress import findings_so_far, slices_expected
from firstdrift_server.comparison.strip import Strip, metrics_of, strip_of
from firstdrift_server.context import Context
from firstdrift_server.new.view import new_address
from firstdrift_server.parts.addresses import (
    comparison_address,
    match_address,
    node_address,
    query_of,
    tree_address,
    unmatched_address,
)
from firstdrift_server.parts.command_line import compare_command
from firstdrift_server.parts.sentence import finding_address, linked_summary, position_of
from firstdrift_server.parts.summary import comparison_summary
from firstdrift_server.parts.workers import worker_view
from firstdrift_server.questions.folders import is_inside

NOTHING_YET = Findings(summary=Message.of("summary.nothing_yet"))
AMPLIFIED_SHOWN = 10


class Wanted(Struct, frozen=True):
    """What of a comparison its page is asked to show; None where the page chooses.

    Attributes:
        slice: position of the slice that the lower half is about.
        metric: of the strip of slices and its chart.
        scale: of the chart: "log" or "linear".
        by: what a row of the map of layers stands for: "slice", "token", "step", "rank", "micro_step".
    """

    slice: int | None = None
    metric: str | None = None
    scale: str | None = None
    by: str | None = None

    def address(self, comparison: int, part: str = "", **changes: object) -> str:
        """Return the address of the page as it is shown, with something else chosen."""
        chosen = {name: getattr(self, name) for name in self.__struct_fields__} | changes
        return comparison_address(comparison, **chosen) + (part and f"#{part}")


def comparison_data(session: Session, comparison_id: int) -> dict[str, Any]:
    """Describe a comparison as `firstdrift compare --json` does, with its state and its slices."""
    comparison = get_comparison(session, comparison_id)
    slices = slice_pairs_of(session, comparison_id)
    found = comparison_object(
        comparison.golden or _unread(str(comparison.golden_path)),
        comparison.target or _unread(str(comparison.target_path)),
        comparison.counts or sum((pair.judgement.counts for pair in slices), Counts()),
        comparison.findings or NOTHING_YET,
        comparison.seconds or {},
    )
    summary = comparison_summary(session, comparison)
    about = {
        name: summary[name]
        for name in ("id", "state", "job", "rules", "baseline", "note", "created_at", "finished_at")
    }
    left_over = {"golden": comparison.unmatched_golden, "target": comparison.unmatched_target}
    return (
        found
        | about
        | {
            "thresholds": comparison.options.thresholds.moved(),
            "unpaired_slices": {
                side: list(map(coordinates_object, left)) for side, left in left_over.items()
            },
            "notes": _notes(comparison, slices),
            "unreadable": comparison.unreadable,
            "incomparable": _incomparable(session, slices),
            "slices": [slice_object(pair) for pair in slices],
            "match_set": _match_set(session, comparison_id),
        }
    )


def _match_set(session: Session, comparison_id: int) -> dict[str, Any] | None:
    """Say of which version of which match set a comparison holds the results; None if of none."""
    known = laid_over(session, comparison_id)
    if known is None:
        return None
    version = next(one.version for one in known.versions if one.results_id == comparison_id)
    return {"id": known.id, "name": known.name, "version": version, "comparison": known.comparison_id}


def slice_object(pair: SlicePair) -> dict[str, Any]:
    """Describe a slice: what was counted in it, where errors begin, and the numbers of its logits."""
    return coordinates_object(pair.target) | {
        "slice": pair.position,
        "verdict": str(pair.verdict),
        "counts": counts_object(pair.judgement.counts),
        "coverage": coverage_object(pair.judgement.coverage),
        "rows": pair.rows,
        "logits": finding_object(pair.judgement.logits),
        "logits_error": pair.judgement.logits_error,
        "origins": [finding_object(origin) for origin in pair.judgement.origins],
    }


def comparison_view(session: Session, comparison_id: int, wanted: Wanted) -> dict[str, Any]:
    """Lay a comparison out for its page."""
    comparison = get_comparison(session, comparison_id)
    slices = slice_pairs_of(session, comparison_id)
    findings = findings_so_far(comparison, slices)
    selected = _selected(slices, findings, wanted.slice)
    strip = strip_of(slices, findings, wanted.metric)
    expected = slices_expected(comparison, slices)
    return comparison_summary(session, comparison) | {
        "sentence": linked_summary(comparison.id, findings, slices) if findings else None,
        "findings": comparison.findings,
        "first": _first_places(comparison, slices),
        "suspects": _elsewhere(comparison, slices, selected),
        "dumps": {"golden": _dump(comparison, "golden"), "target": _dump(comparison, "target")},
        "seconds": comparison.seconds,
        "notes": _notes(comparison, slices),
        "unreadable": comparison.unreadable,
        "unpaired": {
            "golden": [left.name() for left in comparison.unmatched_golden],
            "target": [left.name() for left in comparison.unmatched_target],
        },
        "edit": new_address(
            str(comparison.golden_path), str(comparison.target_path), comparison.options, comparison.note
        ),
        "rule_sets": RULES,
        "worker": worker_view(session),
        "command": compare_command(
            str(comparison.golden_path), str(comparison.target_path), comparison.options
        ),
        "slices": len(slices),
        "expected": expected,
        "counts_so_far": counts_object(sum((pair.judgement.counts for pair in slices), Counts())),
        "measured_from": strip.measured_from,
        "strip": _strip_view(comparison.id, strip, wanted, selected),
        "layers": _layers_view(session, comparison, slices, findings, wanted),
        "selected": _slice_view(comparison.id, selected, slices) if selected else None,
        "amplified": _amplified(session, selected) if selected else [],
        "has_points": selected is None or has_points(session, selected.id),
        "drawn": _drawn(comparison, slices, wanted, selected),
    }


def _layers_view(
    session: Session,
    comparison: Comparison,
    slices: Sequence[SlicePair],
    findings: Findings | None,
    wanted: Wanted,
) -> dict[str, Any]:
    """Say how the map of layers may be shown, and give a part of it as a table; None if there is none."""
    axes = axes_of(slices)
    chosen = wanted.by if wanted.by in axes else axes[0]
    return {
        "by": chosen,
        "axes": [
            {"name": axis, "address": wanted.address(comparison.id, "layers", by=axis)} for axis in axes
        ],
        "table": layers_table(session, comparison.id, slices, findings),
    }


def _amplified(session: Session, pair: SlicePair) -> list[dict[str, Any]]:
    """List the nodes of a slice that add the most to the error: what the chart of nodes says, in words."""
    return [
        {"node": node, "address": node_address(pair.comparison_id, pair.position, node.row)}
        for node in most_amplified(session, pair.id, AMPLIFIED_SHOWN)
    ]


def _drawn(
    comparison: Comparison, slices: Sequence[SlicePair], wanted: Wanted, selected: SlicePair | None
) -> dict[str, Any]:
    """Say where the data of the charts are, and by `version` when they have changed."""
    data = f"/api/v1/comparisons/{comparison.id}"
    made = sum(pair.revision for pair in slices)
    return {
        "version": f"{comparison.revision}.{len(slices)}.{made}.{comparison.state}",
        "chart": _address(f"{data}/chart", metric=wanted.metric, scale=wanted.scale),
        "layers": _address(f"{data}/layers", by=wanted.by),
        "scatter": f"{data}/slices/{selected.position}/scatter" if selected else "",
        "nodes": f"/c/{comparison.id}/s/{selected.position}/n/" if selected else "",
    }


def _address(path: str, **parameters: str | None) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{query_of(given)}" if given else path


def changes_view(session: Session, context: Context, comparison_id: int) -> list[dict[str, Any]]:
    """List the dumps of a comparison that are not what was compared any more; looks at all their files."""
    comparison = get_comparison(session, comparison_id)
    dumps = {"golden": comparison.golden_dump_id, "target": comparison.target_dump_id}
    found = []
    for side, dump_id in dumps.items():
        path = getattr(comparison, f"{side}_path")
        if dump_id is not None and is_inside(context.roots, path):
            indexed = get_dump(session, dump_id)
            if changed_since_indexed(indexed):
                gone = not path.exists()
                found.append({"side": side, "is_gone": gone, "compared_at": indexed.indexed_at})
    return found


def _selected(slices: Sequence[SlicePair], findings: Findings | None, wanted: int | None) -> SlicePair | None:
    """Choose the slice that was asked for, else that of the first finding, else the first."""
    first = findings and (findings.first_bad_node or findings.first_bad_token)
    position = wanted if wanted is not None else first and position_of(slices, first.coordinates)
    return next((pair for pair in slices if pair.position == position), slices[0] if slices else None)


def _unread(path: str) -> DumpSummary:
    return DumpSummary(path=path, format="", slices=0, nodes=0, tensors=0)


def _dump(comparison: Comparison, side: str) -> dict[str, Any]:
    summary: DumpSummary | None = getattr(comparison, side)
    return {"path": str(getattr(comparison, f"{side}_path")), "summary": summary}


def _first_places(comparison: Comparison, slices: Sequence[SlicePair]) -> dict[str, Any]:
    findings = comparison.findings or NOTHING_YET
    return {
        "token": findings.first_bad_token and _place(comparison.id, findings.first_bad_token, slices),
        "node": findings.first_bad_node and _place(comparison.id, findings.first_bad_node, slices),
    }


def _notes(comparison: Comparison, slices: Sequence[SlicePair]) -> list[Message]:
    return list(all_notes(comparison.notes, [(pair.target, pair.notes) for pair in slices]))


def _incomparable(session: Session, slices: Sequence[SlicePair]) -> list[dict[str, Any]]:
    """List the first pairs that could not be compared, and why."""
    found: list[dict[str, Any]] = []
    for slice_pair in slices:
        if slice_pair.judgement.counts.incomparable and len(found) < INCOMPARABLE_SHOWN:
            left = INCOMPARABLE_SHOWN - len(found)
            found += [
                incomparable_object(slice_pair.target, pair.plan, joined(*pair.judgement.reasons))
                for pair in incomparable_pairs(session, slice_pair.id, limit=left)
            ]
    return found


def _elsewhere(
    comparison: Comparison, slices: Sequence[SlicePair], selected: SlicePair | None
) -> list[dict[str, Any]]:
    """List the suspects of other slices; those of the selected one are listed with it."""
    suspects = comparison.findings.suspects if comparison.findings else ()
    here = selected.position if selected else None
    return [
        _place(comparison.id, finding, slices)
        for finding in suspects
        if position_of(slices, finding.coordinates) != here
    ]


def _place(comparison: int, finding: Finding, slices: Sequence[SlicePair]) -> dict[str, Any]:
    return {
        "finding": finding,
        "name": finding.module or finding.target or finding.golden,
        "where": finding.coordinates.name(),
        "address": finding_address(comparison, finding, slices),
        "metrics": {name: value for name, value in finding.metrics.items() if value is not None},
    }


def _strip_view(comparison: int, strip: Strip, wanted: Wanted, selected: SlicePair | None) -> dict[str, Any]:
    shown = replace(wanted, slice=selected.position if selected else None, metric=strip.metric)
    return {
        "strip": strip,
        "selected": shown.slice,
        "metric": METRICS[strip.metric] if strip.metric else None,
        "metrics": [
            {
                "name": name,
                "label": METRICS[name].label,
                "meaning": METRICS[name].meaning,
                "address": shown.address(comparison, "slices", metric=name, scale=None),
            }
            for name in strip.metrics
        ],
        "scale": scale_of(strip, wanted.scale),
        "scales": [
            {"name": scale, "address": shown.address(comparison, "slices", scale=scale)} for scale in SCALES
        ],
        "addresses": {
            cell.slice: shown.address(comparison, "slices", slice=cell.slice)
            for line in strip.lines
            for cell in line.cells
        },
    }


def _slice_view(comparison: int, pair: SlicePair, slices: Sequence[SlicePair]) -> dict[str, Any]:
    judged = pair.judgement
    return {
        "position": pair.position,
        "name": pair.target.name(),
        "golden_name": pair.golden.name(),
        "verdict": str(pair.verdict),
        "counts": counts_object(judged.counts),
        "rows": pair.rows,
        "tree": tree_address(comparison, pair.position),
        "filtered": {
            name: f"{tree_address(comparison, pair.position)}?{query_of({'verdict': name})}"
            for name in ("error", "warning", "incomparable", "unmatched")
        },
        "unmatched": unmatched_address(comparison, pair.position),
        "match": match_address(comparison, pair.position),
        "origins": [_place(comparison, origin, slices) for origin in judged.origins],
        "worst": judged.worst and _place(comparison, judged.worst, slices),
        "logits": judged.logits and _place(comparison, judged.logits, slices),
        "logits_recorded": judged.logits_recorded,
        "metrics": metrics_of(pair),
        "tokens": (judged.golden_token, judged.target_token),
        "input_difference": judged.input_difference,
        "overflow": judged.overflow,
    }
