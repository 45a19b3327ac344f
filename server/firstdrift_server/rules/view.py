"""The page of the rules of a comparison: rule set, thresholds, baseline, and what others would flag instead.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import asdict
from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison, judging_of
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.errors import SettingsError
from firstdrift.groups import fields_of
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.movable_thresholds import ABOUT, DEFAULTS, Thresholds
from firstdrift.verdict.rule_book import DOCUMENT, TABLES, title_of
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import (
    comparison_address,
    match_address,
    rules_address,
    tree_address,
)
from firstdrift_server.parts.baselines import BaselineChoice, baseline_choices
from firstdrift_server.parts.summary import comparison_summary, worker_view
from firstdrift_server.rules.effect import effect_view, first_slice, try_judging
from firstdrift_server.rules.judging import judging_object, judging_to_try, number_text, query_of

_OF_ENTRIES: Final = ("name", "why", "place", "thresholds", "node_class")
"""What people read of a rule."""

_DTYPES: Final = {about.dtype: name for name, about in ABOUT.items() if about.dtype}

_IN_DECADES_OF_THE_REST: Final = frozenset({"msit_cosine", "msprobe_cosine_in"})

_FLOORS: Final = ("floor", "peer_floor", "hidden_floor", "parameter_floor")

_SHARES: Final = frozenset({"msprobe_share_in", "msprobe_share_out"})


def rules_view(
    session: Session, context: Context, comparison_id: int, parameters: QueryParams, *, sees_others: bool
) -> dict[str, Any]:
    """Lay the rules of a comparison out for their page; what makes no sense is said on it.

    Who does not see other comparisons is offered none as a baseline.
    """
    from firstdrift.catalogue.comparisons.rule_preview import as_it_is

    comparison = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    in_force = judging_of(comparison.options)
    first = first_slice(comparison, pairs, parameters)
    judging, problem = _tried(session, comparison, parameters, sees_others=sees_others)
    found = None
    if pairs and judging == in_force:
        found = as_it_is(session, comparison, pairs, first)
    elif pairs:
        look_at_all = sees_others and bool(parameters.get("all"))
        found = try_judging(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
    return (
        asdict(comparison_summary(session, comparison))
        | _addresses(comparison_id, judging, first, slices=len(pairs))
        | _thresholds_view(session, judging, in_force, next((p for p in pairs if p.position == first), None))
        | {
            "is_changed": judging != in_force,
            "problem": problem and {"error": problem.message, "hint": problem.advice},
            "baselines": baseline_choices(
                session, comparison.golden_path, judging.baseline, but=comparison.id
            )
            if sees_others
            else _nameless(comparison.options.baseline, judging.baseline),
            "slices": [
                {
                    "position": pair.position,
                    "name": pair.target.name(),
                    "is_chosen": pair.position == first,
                }
                for pair in pairs
            ],
            "effect": effect_view(comparison, pairs, found) if found is not None else None,
            "rule_head": Message.of("rule.table.rule"),
            "tables": [
                {
                    "name": name,
                    "title": title_of(name),
                    "document": DOCUMENT,
                    "entries": [fields_of(rule, _OF_ENTRIES) for rule in rules],
                }
                for name, rules in TABLES.items()
            ],
            "worker": worker_view(session),
        }
    )


def _tried(
    session: Session, comparison: Comparison, parameters: QueryParams, *, sees_others: bool
) -> tuple[Judging, SettingsError | None]:
    """Give what is tried; or what is in force, and why what was asked for makes no sense."""
    from firstdrift.catalogue.comparisons.baselines import require_baseline

    in_force = judging_of(comparison.options)
    try:
        judging = judging_to_try(parameters, comparison, sees_others=sees_others)
        if judging.baseline is not None and judging != in_force:
            require_baseline(session, comparison, judging.baseline)
    except SettingsError as error:
        return in_force, error
    return judging, None


def _addresses(comparison: int, judging: Judging, first: int, *, slices: int) -> dict[str, Any]:
    selected = {"tree": tree_address(comparison, first), "match": match_address(comparison, first)}
    return {
        "address": rules_address(comparison),
        "selected": selected if slices else None,
        "comparison_address": comparison_address(comparison),
        "query": query_of(judging, slice=first if slices > 1 else None),
        "all_query": query_of(judging, slice=first, all=1),
    }


def _thresholds_view(
    session: Session, judging: Judging, in_force: Judging, here: SlicePair | None
) -> dict[str, Any]:
    from firstdrift.catalogue.comparisons.rule_preview import dtypes_of

    return {
        "judging": judging_object(judging),
        "in_force": judging_object(in_force),
        "moved_texts": {name: number_text(value) for name, value in judging.thresholds.moved().items()},
        "groups": [_group(rules, judging, in_force) for rules in RULES],
        "roundings": [_threshold(name, judging, in_force) for name in _DTYPES.values()],
        "dtypes": _dtypes(judging.thresholds, dtypes_of(session, here) if here is not None else ()),
    }


def _group(rules: str, judging: Judging, in_force: Judging) -> dict[str, Any]:
    names = [name for name, about in ABOUT.items() if about.rules == rules and not about.dtype]
    thresholds = [_threshold(name, judging, in_force) for name in names]
    return {
        "rules": rules,
        "is_chosen": judging.rules == rules,
        "thresholds": thresholds,
        "moved": sum(one["is_moved"] for one in thresholds),
    }


def _threshold(name: str, judging: Judging, in_force: Judging) -> dict[str, Any]:
    about, value, default = ABOUT[name], getattr(judging.thresholds, name), getattr(DEFAULTS, name)
    numbers = {"value": value, "default": default, "in_force": getattr(in_force.thresholds, name)}
    scale = "rest" if name in _IN_DECADES_OF_THE_REST else "share" if name in _SHARES else "decades"
    return {
        **fields_of(about, ("title", "meaning", "least", "most")),
        **numbers,
        **{f"{what}_text".removeprefix("value_"): number_text(number) for what, number in numbers.items()},
        "name": name,
        "is_moved": value != default,
        "scale": scale,
    }


def _dtypes(limits: Thresholds, known: Iterable[str]) -> list[dict[str, Any]]:
    """Say of each dtype what the thresholds come to in it, as errors."""
    here = frozenset(known)
    found = []
    for dtype, name in _DTYPES.items():
        rounding = getattr(limits, name)
        drift = min(limits.drift_most, max(limits.drift_least, limits.drift_roundoffs * rounding))
        found.append(
            {
                "dtype": dtype,
                "is_here": dtype in here,
                "rounding": rounding,
                **{floor: getattr(limits, floor) * rounding for floor in _FLOORS},
                "drift": drift,
                "kl": limits.msit_kl_bfloat16 if dtype == "bfloat16" else limits.msit_kl,
            }
        )
    return found


def _nameless(baseline: int | None, chosen: int | None) -> list[BaselineChoice]:
    """List the baseline in force alone, without what it is."""
    return [] if baseline is None else [BaselineChoice(baseline, "", "", is_chosen=baseline == chosen)]
