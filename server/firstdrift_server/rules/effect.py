"""What other rules would flag: tried on what was measured, and laid out as before and after.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.exports.report_json import counts_object, finding_object
from firstdrift.verdict.judgement import Findings, NodeClass, Verdict
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.sentence import finding_address, position_of
from firstdrift_server.rules.judging import judging_object, judging_to_try
from firstdrift_server.validation import read_number

if TYPE_CHECKING:
    from firstdrift.catalogue.comparisons.rule_preview import Measured, Tally, Trial

ALL_SECONDS: Final = 8.0
"""For so long slices are looked at when all of them are asked for."""

_CLASSES: Final = frozenset(map(str, NodeClass))


def preview_object(
    session: Session, context: Context, comparison_id: int, parameters: QueryParams, *, sees_others: bool
) -> dict[str, Any]:
    """Say what a comparison would say under other rules, as data."""
    comparison = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    judging = judging_to_try(parameters, comparison, sees_others=sees_others)
    first = first_slice(comparison, pairs, parameters)
    if not pairs:
        raise SettingsError(
            Message.of("server.nothing_compared"), hint=Message.of("server.wait_for_comparison")
        )
    look_at_all = sees_others and wants_all(parameters)
    found = try_judging(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
    return judging_object(judging) | {
        "slice": first,
        "before": _tally_object(found.before) | _findings_object(found.findings_before),
        "after": _tally_object(found.after) | _findings_object(found.findings_after),
        "of_slice": {
            "before": _tally_object(found.of_slice[0]),
            "after": _tally_object(found.of_slice[1]),
        },
        "slices": found.slices,
        "of_slices": found.of_slices,
        "unmeasured": found.missing,
    }


def wants_all(parameters: QueryParams) -> bool:
    """Tell whether all slices are to be looked at."""
    return bool(parameters.get("all"))


def first_slice(comparison: Comparison, pairs: Sequence[SlicePair], parameters: QueryParams) -> int:
    """Choose the slice that is looked at first: the one asked for, else that of the first finding."""
    wanted = read_number(parameters.get("slice"), "slice")
    positions = [pair.position for pair in pairs]
    if wanted is not None:
        if wanted not in positions:
            raise NotInCatalogueError(
                Message.of("server.comparison_without_slice", comparison=comparison.id, slice=wanted)
            )
        return wanted
    findings = comparison.findings
    found = (findings.first_bad_node or findings.first_bad_token) if findings is not None else None
    position = position_of(pairs, found.coordinates) if found is not None else None
    return position if position is not None else next(iter(positions), 0)


def try_judging(
    session: Session,
    context: Context,
    comparison: Comparison,
    pairs: Sequence[SlicePair],
    judging: Judging,
    first: int,
    *,
    look_at_all: bool,
) -> "Trial":
    """Judge what was measured anew, slice by slice, as long as there is time."""
    from firstdrift.catalogue.comparisons.rule_preview import TRIAL_SECONDS, load_measured, try_rules

    def measured_of(pair: SlicePair) -> "Measured":
        return context.measured.get(
            (pair.id, pair.revision), lambda: load_measured(session, pair, comparison.options)
        )

    seconds = ALL_SECONDS if look_at_all else TRIAL_SECONDS
    return try_rules(session, comparison, pairs, judging, measured_of, first=first, seconds=seconds)


def effect_view(comparison: Comparison, pairs: Sequence[SlicePair], found: "Trial") -> dict[str, Any]:
    """Lay out what changes: classes, verdicts, pairs, rules, and the first places."""
    return {
        "slices": found.slices,
        "of_slices": found.of_slices,
        "missing": found.missing,
        "classes": _rows(found, "classes", [str(name) for name in NodeClass]),
        "verdicts": _rows(found, "verdicts", [str(name) for name in reversed(Verdict)]),
        "pairs": _pair_rows(found),
        "rules": [row for row in _rows(found, "rules", []) if row["name"] not in _CLASSES],
        "flagged": _rows(found, "flagged", [])[0],
        "places": [
            _place_row(comparison, pairs, what, found.findings_before, found.findings_after)
            for what in ("first_bad_token", "first_bad_node")
        ],
        "summaries": (found.findings_before.summary, found.findings_after.summary),
    }


def _rows(found: "Trial", part: str, order: Sequence[str]) -> list[dict[str, Any]]:
    """Lay counts out as rows: before and after, of the slice that is looked at and of all of them."""
    tallies = (*found.of_slice, found.before, found.after)
    counts = [_flagged(one) if part == "flagged" else getattr(one, part) for one in tallies]
    names = [*order, *sorted({name for one in counts for name in one} - set(order))]
    return [
        {"name": name, "slice": (here[0], here[1]), "all": (here[2], here[3])}
        for name in names
        if any(here := [one.get(name, 0) for one in counts]) or part == "flagged"
    ]


def _flagged(tally: "Tally") -> dict[str, int]:
    """Count the nodes that are not as they should be."""
    return {"flagged": sum(tally.verdicts.get(verdict, 0) for verdict in (Verdict.ERROR, Verdict.WARNING))}


def _pair_rows(found: "Trial") -> list[dict[str, Any]]:
    tallies = (*found.of_slice, found.before, found.after)
    counts = [counts_object(one.counts) for one in tallies]
    return [
        {
            "name": name,
            "slice": (counts[0][name], counts[1][name]),
            "all": (counts[2][name], counts[3][name]),
        }
        for name in ("error", "warning", "incomparable", "pass")
    ]


def _place_row(
    comparison: Comparison, pairs: Sequence[SlicePair], what: str, before: Findings, after: Findings
) -> dict[str, Any]:
    return {
        "what": what,
        "before": _place(comparison, pairs, what, before),
        "after": _place(comparison, pairs, what, after),
    }


def _place(
    comparison: Comparison, pairs: Sequence[SlicePair], what: str, findings: Findings
) -> dict[str, Any] | None:
    finding = getattr(findings, what)
    if finding is None:
        return None
    return {
        "where": finding.coordinates.name(),
        "name": finding.module or finding.target or finding.golden,
        "node_class": finding.node_class,
        "reason": finding.reasons[0] if finding.reasons else None,
        "address": finding_address(comparison.id, finding, pairs),
    }


def _tally_object(tally: "Tally") -> dict[str, Any]:
    return {
        "pairs": counts_object(tally.counts),
        "classes": dict(tally.classes),
        "verdicts": dict(tally.verdicts),
        "rules": dict(tally.rules),
        "flagged": _flagged(tally)["flagged"],
    }


def _findings_object(findings: Findings) -> dict[str, Any]:
    return {
        "summary": findings.summary,
        "first_bad_token": finding_object(findings.first_bad_token),
        "first_bad_node": finding_object(findings.first_bad_node),
    }
