"""The rules of a comparison: its rule set, thresholds and baseline, and what others would flag instead.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison, judging_of
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.exports.report_json import counts_object, finding_object
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import Findings, NodeClass, Verdict
from firstdrift.verdict.thresholds import ABOUT, DEFAULTS, Thresholds, thresholds_from
from firstdrift.wording.message import Message, verbatim
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import (
    comparison_address,
    match_address,
    rules_address,
    tree_address,
)
from firstdrift_server.parts.baselines import baseline_choices
from firstdrift_server.parts.sentence import finding_address, position_of
from firstdrift_server.parts.summary import comparison_summary
from firstdrift_server.parts.workers import worker_view

if TYPE_CHECKING:
    from firstdrift.catalogue.comparisons.rule_preview import Measured, Tally, Trial

ALL_SECONDS: Final = 8.0
"""For so long slices are looked at when all of them are asked for."""

_LONGEST_NUMBER: Final = 9
_CLASSES: Final = frozenset(map(str, NodeClass))
_DTYPES: Final = tuple(name for name in ABOUT if name.startswith("roundoff_"))
_PARAMETERS: Final = frozenset({"rules", "baseline", "slice", "all", "language"})
_IN_DECADES_OF_THE_REST: Final = frozenset({"msit_cosine", "msprobe_cosine_in"})
_SHARES: Final = frozenset({"msprobe_share_in", "msprobe_share_out"})


def read_judging(given: Mapping[str, str], comparison: Comparison) -> Judging:
    """Read rule set, thresholds and baseline from an address or a form.

    With a rule set they are all there is to it, and what is left out is at its default; without one, they
    change what is in force.

    Raises:
        SettingsError: one of them makes no sense.
    """
    now = judging_of(comparison.options)
    is_whole = bool(given.get("rules"))
    rules = given["rules"] if is_whole else now.rules
    if rules not in RULES:
        raise SettingsError(
            Message.of("server.no_rule_set", name=rules),
            hint=Message.of("server.choose_one_of", names=tuple(RULES)),
        )
    moved = {name: text for name, text in given.items() if name not in _PARAMETERS and text.strip()}
    thresholds = thresholds_from(moved, DEFAULTS if is_whole else now.thresholds)
    kept = None if is_whole or "baseline" in given else now.baseline
    return Judging(rules, thresholds, _number(given.get("baseline") or None, "baseline") or kept)


def judging_to_try(given: Mapping[str, str], comparison: Comparison, *, sees_others: bool) -> Judging:
    """Read rule set, thresholds and baseline that are only looked at, by somebody who may see no others.

    Raises:
        SettingsError: one of them makes no sense, or the baseline is not to be seen.
    """
    judging = read_judging(given, comparison)
    if not sees_others and judging.baseline not in (None, comparison.options.baseline):
        raise SettingsError(
            Message.of("server.no_other_baseline"), hint=Message.of("server.log_in_to_choose")
        )
    return judging


def judging_to_apply(session: Session, comparison_id: int, fields: Mapping[str, str]) -> tuple[Judging, bool]:
    """Read what a form says a comparison is to be judged by, and whether it is not yet.

    Raises:
        NotInCatalogueError: there is no such comparison.
        SettingsError: it makes no sense, or the baseline cannot be used.
    """
    comparison = get_comparison(session, comparison_id)
    judging = read_judging(fields, comparison)
    is_new = judging != judging_of(comparison.options)
    if is_new:
        require_applicable(session, comparison, judging)
    return judging, is_new


def require_applicable(session: Session, comparison: Comparison, judging: Judging) -> None:
    """Make sure that a comparison can be judged so.

    Raises:
        SettingsError: it cannot, and why.
    """
    from firstdrift.catalogue.comparisons.baselines import require_baseline

    if judging.rules not in RULES:
        raise SettingsError(
            Message.of("server.no_rule_set", name=judging.rules),
            hint=Message.of("server.choose_one_of", names=tuple(RULES)),
        )
    if judging.baseline is not None:
        require_baseline(session, comparison, judging.baseline)


def query_of(judging: Judging, **others: object) -> str:
    """Write what is chosen as the part of an address after the question mark."""
    parameters = {"rules": judging.rules} | {
        name: _text(value) for name, value in judging.thresholds.moved().items()
    }
    others = {"baseline": judging.baseline} | others
    return urlencode(parameters | {name: value for name, value in others.items() if value is not None})


def rules_object(session: Session, comparison_id: int) -> dict[str, Any]:
    """Describe by what a comparison is judged, and what may be moved.

    Raises:
        NotInCatalogueError: there is no such comparison.
    """
    comparison = get_comparison(session, comparison_id)
    return judging_object(judging_of(comparison.options)) | {
        "rule_sets": list(RULES),
        "limits": [
            {
                "name": name,
                "rules": about.rules,
                "meaning": about.meaning,
                "default": getattr(DEFAULTS, name),
                "least": about.least,
                "most": about.most,
            }
            for name, about in ABOUT.items()
        ],
    }


def judging_object(judging: Judging) -> dict[str, Any]:
    """Describe by what is judged: all thresholds, and those that are not at their defaults."""
    values = {name: getattr(judging.thresholds, name) for name in ABOUT}
    return {
        "rules": judging.rules,
        "thresholds": values,
        "moved": judging.thresholds.moved(),
        "baseline": judging.baseline,
    }


def preview_object(
    session: Session, context: Context, comparison_id: int, parameters: QueryParams, *, sees_others: bool
) -> dict[str, Any]:
    """Say what a comparison would say under other rules, as data.

    Raises:
        NotInCatalogueError: there is no such comparison or slice.
        SettingsError: the rules make no sense, or nothing has been compared yet.
    """
    comparison = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    judging = judging_to_try(parameters, comparison, sees_others=sees_others)
    first = _first(comparison, pairs, parameters)
    if not pairs:
        raise SettingsError(
            Message.of("server.nothing_compared"), hint=Message.of("server.wait_for_comparison")
        )
    look_at_all = sees_others and _wants_all(parameters)
    found = _try(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
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


def rules_view(
    session: Session, context: Context, comparison_id: int, parameters: QueryParams, *, sees_others: bool
) -> dict[str, Any]:
    """Lay the rules of a comparison out for their page; what makes no sense is said on it.

    Who does not see other comparisons is offered none as a baseline.

    Raises:
        NotInCatalogueError: there is no such comparison or slice.
    """
    from firstdrift.catalogue.comparisons.baselines import require_baseline
    from firstdrift.catalogue.comparisons.rule_preview import as_it_is, dtypes_of

    comparison = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    in_force = judging_of(comparison.options)
    first = _first(comparison, pairs, parameters)
    problem = None
    judging = in_force
    try:
        judging = judging_to_try(parameters, comparison, sees_others=sees_others)
        if judging.baseline is not None and judging != in_force:
            require_baseline(session, comparison, judging.baseline)
    except SettingsError as error:
        problem = {"error": error.message, "hint": error.advice}
        judging = in_force
    is_changed = judging != in_force
    look_at_all = sees_others and _wants_all(parameters)
    found = None
    if pairs and is_changed:
        found = _try(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
    elif pairs:
        found = as_it_is(session, comparison, pairs, first)
    here = next((pair for pair in pairs if pair.position == first), None)
    address = rules_address(comparison_id)
    return comparison_summary(session, comparison) | {
        "address": address,
        "selected": {
            "tree": tree_address(comparison_id, first),
            "match": match_address(comparison_id, first),
        }
        if pairs
        else None,
        "comparison_address": comparison_address(comparison_id),
        "query": query_of(judging, slice=first if len(pairs) > 1 else None),
        "all_query": query_of(judging, slice=first, all=1),
        "judging": judging_object(judging),
        "in_force": judging_object(in_force),
        "moved_texts": {name: _text(value) for name, value in judging.thresholds.moved().items()},
        "is_changed": is_changed,
        "problem": problem,
        "groups": [_group(rules, judging, in_force) for rules in RULES],
        "roundings": [_threshold(name, judging, in_force) for name in _DTYPES],
        "dtypes": _dtypes(judging.thresholds, dtypes_of(session, here) if here is not None else ()),
        "baselines": baseline_choices(session, comparison.golden_path, judging.baseline, but=comparison.id)
        if sees_others
        else _nameless(comparison.options.baseline, judging.baseline),
        "slices": [
            {
                "position": pair.position,
                "name": pair.target.describe(),
                "is_chosen": pair.position == first,
            }
            for pair in pairs
        ],
        "effect": _effect(comparison, pairs, found) if found is not None else None,
        "worker": worker_view(session),
    }


def _number(text: str | None, name: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise SettingsError(Message.of("server.not_a_number", name=name, text=text[:20]))
    return int(text)


def _wants_all(parameters: QueryParams) -> bool:
    return bool(parameters.get("all"))


def _first(comparison: Comparison, pairs: Sequence[SlicePair], parameters: QueryParams) -> int:
    """Choose the slice that is looked at first: the one asked for, else that of the first finding."""
    wanted = _number(parameters.get("slice"), "slice")
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


def _try(
    session: Session,
    context: Context,
    comparison: Comparison,
    pairs: Sequence[SlicePair],
    judging: Judging,
    first: int,
    *,
    look_at_all: bool,
) -> "Trial":
    from firstdrift.catalogue.comparisons.rule_preview import TRIAL_SECONDS, load_measured, try_rules

    def measured_of(pair: SlicePair) -> "Measured":
        return context.measured.get(
            (pair.id, pair.revision), lambda: load_measured(session, pair, comparison.options)
        )

    seconds = ALL_SECONDS if look_at_all else TRIAL_SECONDS
    return try_rules(session, comparison, pairs, judging, measured_of, first=first, seconds=seconds)


# ---- what may be moved


def _group(rules: str, judging: Judging, in_force: Judging) -> dict[str, Any]:
    names = [name for name, about in ABOUT.items() if about.rules == rules and name not in _DTYPES]
    thresholds = [_threshold(name, judging, in_force) for name in names]
    return {
        "rules": rules,
        "is_chosen": judging.rules == rules,
        "thresholds": thresholds,
        "moved": sum(one["is_moved"] for one in thresholds),
    }


def _threshold(name: str, judging: Judging, in_force: Judging) -> dict[str, Any]:
    about, value, default = ABOUT[name], getattr(judging.thresholds, name), getattr(DEFAULTS, name)
    scale = "rest" if name in _IN_DECADES_OF_THE_REST else "share" if name in _SHARES else "decades"
    return {
        "name": name,
        "title": verbatim(about.title) if name in _DTYPES else Message.of(f"threshold.{name}"),
        "meaning": about.meaning,
        "least": about.least,
        "most": about.most,
        "value": value,
        "default": default,
        "in_force": getattr(in_force.thresholds, name),
        "text": _text(value),
        "default_text": _text(default),
        "in_force_text": _text(getattr(in_force.thresholds, name)),
        "is_moved": value != default,
        "scale": scale,
    }


def _text(value: float) -> str:
    """Write a threshold so that reading it gives the same number."""
    return repr(value).removesuffix(".0")


def _dtypes(limits: Thresholds, known: Iterable[str]) -> list[dict[str, Any]]:
    """Say of each dtype what the thresholds come to in it, as errors."""
    here = frozenset(known)
    found = []
    for name in _DTYPES:
        dtype, rounding = ABOUT[name].title, getattr(limits, name)
        drift = min(limits.drift_most, max(limits.drift_least, limits.drift_roundoffs * rounding))
        found.append(
            {
                "dtype": dtype,
                "is_here": dtype in here,
                "rounding": rounding,
                "floor": limits.floor * rounding,
                "peer_floor": limits.peer_floor * rounding,
                "hidden_floor": limits.hidden_floor * rounding,
                "parameter_floor": limits.parameter_floor * rounding,
                "drift": drift,
                "kl": limits.msit_kl_bfloat16 if dtype == "bfloat16" else limits.msit_kl,
            }
        )
    return found


def _nameless(baseline: int | None, chosen: int | None) -> list[dict[str, Any]]:
    """List the baseline in force alone, without what it is."""
    return [] if baseline is None else [{"id": baseline, "name": "", "is_chosen": baseline == chosen}]


def _effect(comparison: Comparison, pairs: Sequence[SlicePair], found: "Trial") -> dict[str, Any]:
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
        "where": finding.coordinates.describe(),
        "name": finding.module or finding.target or finding.golden,
        "node_class": finding.node_class,
        "reason": finding.reasons[0] if finding.reasons else "",
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
