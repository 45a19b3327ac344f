"""The page of the rules of a comparison: rule set, thresholds, baseline, and what others would flag instead.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison, judging_of
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.lookup import record_of
from firstdrift.errors import SettingsError
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import NodeClass
from firstdrift.verdict.movable_thresholds import ABOUT, DEFAULTS, Thresholds
from firstdrift.verdict.rule_book import DOCUMENT, TABLES, title_of
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import (
    comparison_address,
    graph_address,
    match_address,
    rules_address,
    tree_address,
)
from firstdrift_server.parts.baselines import BaselineChoice, baseline_choices
from firstdrift_server.parts.refusal import Refusal, refusal
from firstdrift_server.parts.summary import ComparisonSummary, WorkerView, comparison_summary, worker_view
from firstdrift_server.rules.effect import effect_view, first_slice, try_judging
from firstdrift_server.rules.judging import judging_object, judging_to_try, number_text, query_of
from firstdrift_server.rules.pictures import MAIN, Picture, pictures_of

_DTYPES: Final = {about.dtype: name for name, about in ABOUT.items() if about.dtype}

_IN_DECADES_OF_THE_REST: Final = frozenset({"msit_cosine", "msprobe_cosine_in"})

_SHARES: Final = frozenset({"msprobe_share_in", "msprobe_share_out"})


class ThresholdView(Struct, frozen=True, kw_only=True):
    """A threshold: what it is, what may be chosen, its values and how these are written.

    Attributes:
        scale: how a slider runs over its values: in "decades", in those of the "rest" to 1, or as a "share".
    """

    title: Message
    meaning: Message
    least: float
    most: float
    value: float
    default: float
    in_force: float
    text: str
    default_text: str
    in_force_text: str
    name: str
    is_moved: bool
    scale: str

    @property
    def is_main(self) -> bool:
        """Whether it is one of those that matter most; all are of a rule set without such."""
        return self.name in MAIN or not self.rules_have_main

    @property
    def rules_have_main(self) -> bool:
        """Whether its rule set has thresholds that matter most."""
        return ABOUT[self.name].rules == "firstdrift"


class RuleSetView(Struct, frozen=True):
    """A rule set with its thresholds, and how many of these are moved."""

    rules: str
    is_chosen: bool
    thresholds: list[ThresholdView]
    moved: int


class LimitsOfDtype(Struct, frozen=True, kw_only=True):
    """What the thresholds come to in a dtype, as errors; whether anything in the slice has it."""

    dtype: str
    is_here: bool
    rounding: float
    floor: float
    peer_floor: float
    hidden_floor: float
    parameter_floor: float
    drift: float
    kl: float


class SliceChoice(Struct, frozen=True):
    """A slice whose nodes can be looked at first."""

    position: int
    name: Message
    is_chosen: bool


class RuleOfTable(Struct, frozen=True):
    """What people read of a rule."""

    name: str
    why: Message
    place: str
    thresholds: tuple[str, ...]
    node_class: NodeClass | None


class TableOfRules(Struct, frozen=True):
    """A table by which nodes are judged, in the order in which it is asked."""

    name: str
    title: Message
    document: str
    entries: list[RuleOfTable]


class RulesView(ComparisonSummary, frozen=True, kw_only=True):
    """The rules of a comparison, for their page; what makes no sense is said on it.

    Attributes:
        selected: addresses of the tree and of the match page of the slice that is looked at first.
        query: what is tried, as the part of an address; `all_query` of all slices.
        judging: what is tried; `in_force` what the comparison is judged by.
        roundings: the thresholds that say how coarse a dtype is.
        effect: what changes, as far as it was looked at.
        pictures: where the nodes of the slice lie, by the threshold that they are held against.
    """

    selected: Mapping[str, str] | None
    comparison_address: str
    query: str
    all_query: str
    judging: Mapping[str, Any]
    in_force: Mapping[str, Any]
    moved_texts: Mapping[str, str]
    groups: list[RuleSetView]
    roundings: list[ThresholdView]
    dtypes: list[LimitsOfDtype]
    is_changed: bool
    problem: Refusal | None
    baselines: list[BaselineChoice]
    slices: list[SliceChoice]
    effect: Mapping[str, Any] | None
    pictures: Mapping[str, Picture]
    rule_head: Message
    tables: list[TableOfRules]
    worker: WorkerView


def rules_view(
    session: Session, context: Context, comparison_id: int, parameters: QueryParams, *, sees_others: bool
) -> RulesView:
    """Lay the rules of a comparison out.

    Who does not see other comparisons is offered none as a baseline.
    """
    comparison = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    in_force, baseline = judging_of(comparison.options), comparison.options.baseline
    first = first_slice(comparison, pairs, parameters)
    judging, problem = _tried(session, comparison, parameters, sees_others=sees_others)
    look_at_all = sees_others and bool(parameters.get("all"))
    found = _effect(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
    here = next((pair for pair in pairs if pair.position == first), None)
    dtypes = _dtypes_in(session, here)
    addresses = {"tree": tree_address, "graph": graph_address, "match": match_address}
    selected = {name: address(comparison_id, first) for name, address in addresses.items()}
    return record_of(
        RulesView,
        comparison_summary(session, comparison),
        address=rules_address(comparison_id),
        selected=selected if pairs else None,
        comparison_address=comparison_address(comparison_id),
        query=query_of(judging, slice=first if len(pairs) > 1 else None),
        all_query=query_of(judging, slice=first, all=1),
        judging=judging_object(judging),
        in_force=judging_object(in_force),
        moved_texts={name: number_text(value) for name, value in judging.thresholds.moved().items()},
        groups=[_group(rules, judging, in_force) for rules in RULES],
        roundings=[_threshold(name, judging, in_force) for name in _DTYPES.values()],
        dtypes=_dtypes(judging.thresholds, dtypes),
        is_changed=judging != in_force,
        problem=problem and refusal(problem),
        baselines=baseline_choices(session, comparison.golden_path, judging.baseline, but=comparison.id)
        if sees_others
        else _nameless(baseline, judging.baseline),
        slices=[SliceChoice(pair.position, pair.target.name(), pair.position == first) for pair in pairs],
        effect=found,
        pictures=pictures_of(session, context, here, judging.thresholds, dtypes),
        rule_head=Message.of("rule.table.rule"),
        tables=[
            TableOfRules(name, title_of(name), DOCUMENT, [record_of(RuleOfTable, rule) for rule in rules])
            for name, rules in TABLES.items()
        ],
        worker=worker_view(session),
    )


def _effect(
    session: Session,
    context: Context,
    comparison: Comparison,
    pairs: Sequence[SlicePair],
    judging: Judging,
    first: int,
    *,
    look_at_all: bool,
) -> dict[str, Any] | None:
    """Say what other rules would change, or what those in force say; None of a comparison without slices."""
    from firstdrift.catalogue.comparisons.rule_preview import as_it_is

    if not pairs:
        return None
    if judging == judging_of(comparison.options):
        return effect_view(comparison, pairs, as_it_is(session, comparison, pairs, first))
    found = try_judging(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
    return effect_view(comparison, pairs, found)


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


def _dtypes_in(session: Session, here: SlicePair | None) -> frozenset[str]:
    """List the dtypes of the slice that is looked at first."""
    from firstdrift.catalogue.comparisons.rule_preview import dtypes_of

    return frozenset() if here is None else frozenset(dtypes_of(session, here))


def _group(rules: str, judging: Judging, in_force: Judging) -> RuleSetView:
    names = [name for name, about in ABOUT.items() if about.rules == rules and not about.dtype]
    thresholds = [_threshold(name, judging, in_force) for name in names]
    return RuleSetView(rules, judging.rules == rules, thresholds, sum(one.is_moved for one in thresholds))


def _threshold(name: str, judging: Judging, in_force: Judging) -> ThresholdView:
    value, default = getattr(judging.thresholds, name), getattr(DEFAULTS, name)
    now = getattr(in_force.thresholds, name)
    return record_of(
        ThresholdView,
        ABOUT[name],
        value=value,
        default=default,
        in_force=now,
        text=number_text(value),
        default_text=number_text(default),
        in_force_text=number_text(now),
        name=name,
        is_moved=value != default,
        scale="rest" if name in _IN_DECADES_OF_THE_REST else "share" if name in _SHARES else "decades",
    )


def _dtypes(limits: Thresholds, known: Iterable[str]) -> list[LimitsOfDtype]:
    here = frozenset(known)
    found = []
    for dtype, name in _DTYPES.items():
        rounding = getattr(limits, name)
        found.append(
            LimitsOfDtype(
                dtype=dtype,
                is_here=dtype in here,
                rounding=rounding,
                floor=limits.floor * rounding,
                peer_floor=limits.peer_floor * rounding,
                hidden_floor=limits.hidden_floor * rounding,
                parameter_floor=limits.parameter_floor * rounding,
                drift=min(limits.drift_most, max(limits.drift_least, limits.drift_roundoffs * rounding)),
                kl=limits.msit_kl_bfloat16 if dtype == "bfloat16" else limits.msit_kl,
            )
        )
    return found


def _nameless(baseline: int | None, chosen: int | None) -> list[BaselineChoice]:
    """List the baseline in force alone, without what it is."""
    return [] if baseline is None else [BaselineChoice(baseline, "", "", is_chosen=baseline == chosen)]
