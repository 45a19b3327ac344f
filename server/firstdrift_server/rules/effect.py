"""What other rules would flag: tried on what was measured, and laid out as before and after.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.exports.report_json import counts_object
from firstdrift.verdict.judgement import Finding, NodeClass, Verdict
from firstdrift.verdict.shown_classes import SHOWN_ALONE
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.sentence import finding_address, findings_object, first_position
from firstdrift_server.rules.judging import judging_object, judging_to_try
from firstdrift_server.validation import read_number

if TYPE_CHECKING:
    from firstdrift.catalogue.comparisons.overview import Tally
    from firstdrift.catalogue.comparisons.rule_preview import Measured, Trial

ALL_SECONDS: Final = 8.0
"""For so long slices are looked at when all of them are asked for."""

_CLASSES: Final = (*NodeClass, *SHOWN_ALONE)
_OF_PAIRS: Final = ("error", "warning", "incomparable", "pass")


class EffectRow(Struct, frozen=True):
    """So many, before and after: in the slice that is looked at first, and in all that were."""

    name: str
    slice: tuple[int, int]
    all: tuple[int, int]


class EffectPlace(Struct, frozen=True):
    """A first bad token or node, as one of the two says it."""

    where: Message
    name: Message | str
    node_class: NodeClass | None
    reason: Message | None
    address: str | None
    rule: str | None = None


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
    look_at_all = sees_others and bool(parameters.get("all"))
    found = try_judging(session, context, comparison, pairs, judging, first, look_at_all=look_at_all)
    before, after = found.of_slice
    return judging_object(judging) | {
        "slice": first,
        "before": _tally_object(found.before) | findings_object(found.findings_before),
        "after": _tally_object(found.after) | findings_object(found.findings_after),
        "of_slice": {"before": _tally_object(before), "after": _tally_object(after)},
        "slices": found.slices,
        "of_slices": found.of_slices,
        "unmeasured": found.missing,
    }


def first_slice(comparison: Comparison, pairs: Sequence[SlicePair], parameters: QueryParams) -> int:
    """Choose the slice that is looked at first: the one asked for, else that of the first finding."""
    wanted = read_number(parameters.get("slice"), "slice")
    positions = [pair.position for pair in pairs]
    if wanted is not None and wanted not in positions:
        raise NotInCatalogueError(
            Message.of("server.comparison_without_slice", comparison=comparison.id, slice=wanted)
        )
    found = first_position(pairs, comparison.findings) if wanted is None else wanted
    return found if found is not None else next(iter(positions), 0)


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
    before, after = found.findings_before, found.findings_after
    rules = {name for tally in (*found.of_slice, found.before, found.after) for name in tally.rules}
    return {
        "slices": found.slices,
        "of_slices": found.of_slices,
        "missing": found.missing,
        "classes": _some(_rows(found, lambda tally: tally.classes, _CLASSES)),
        "verdicts": _some(_rows(found, lambda tally: tally.verdicts, reversed(Verdict))),
        "pairs": _rows(found, lambda tally: counts_object(tally.counts), _OF_PAIRS),
        "rules": _some(_rows(found, lambda tally: tally.rules, sorted(rules - set(_CLASSES)))),
        "flagged": _rows(found, lambda tally: {"flagged": _flagged(tally)}, ("flagged",))[0],
        "places": [
            {
                "what": what,
                "before": _place(comparison, pairs, getattr(before, what)),
                "after": _place(comparison, pairs, getattr(after, what)),
            }
            for what in ("first_bad_token", "first_bad_node")
        ],
        "summaries": (before.summary, after.summary),
    }


def _rows(
    found: "Trial", count: "Callable[[Tally], Mapping[str, int]]", names: Iterable[str]
) -> list[EffectRow]:
    counts = list(map(count, (*found.of_slice, found.before, found.after)))
    numbers = {str(name): [one.get(name, 0) for one in counts] for name in names}
    return [EffectRow(name, (a, b), (c, d)) for name, (a, b, c, d) in numbers.items()]


def _some(rows: Iterable[EffectRow]) -> list[EffectRow]:
    """Leave out rows of nothing but zeros."""
    return [row for row in rows if any(row.slice) or any(row.all)]


def _flagged(tally: "Tally") -> int:
    """Count the nodes that are not as they should be."""
    return sum(tally.verdicts.get(verdict, 0) for verdict in (Verdict.ERROR, Verdict.WARNING))


def _place(comparison: Comparison, pairs: Sequence[SlicePair], finding: Finding | None) -> EffectPlace | None:
    if finding is None:
        return None
    where, reason = finding.coordinates.name(), next(iter(finding.reasons), None)
    address = finding_address(comparison.id, finding, pairs)
    return EffectPlace(where, finding.place, finding.node_class, reason, address, finding.rule)


def _tally_object(tally: "Tally") -> dict[str, Any]:
    return {
        "pairs": counts_object(tally.counts),
        "classes": dict(tally.classes),
        "verdicts": dict(tally.verdicts),
        "rules": dict(tally.rules),
        "flagged": _flagged(tally),
    }
