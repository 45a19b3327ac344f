"""Match sets as data: what is decided, what it would change, and mapping files in and out.

What matches and measures is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.matches.match_sets import (
    MatchSet,
    Version,
    create_match_set,
    get_match_set,
    list_match_sets,
    no_match_set,
    options_of,
)
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.exports.mapping_yaml import data_mapping, layer_mapping
from firstdrift.exports.match_set_json import edit_object, match_set_text
from firstdrift.exports.report_json import counts_object, finding_object
from firstdrift.exports.view_mapping import view_mapping
from firstdrift.groups import fields_of
from firstdrift.matching.manual.edits import Edit, MatchSetFile
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.matching.manual.thresholds import LARGEST_FILE
from firstdrift.matching.plan import NodeMatch, SlicePlan
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import comparison_address
from firstdrift_server.parts.sentence import findings_object
from firstdrift_server.parts.summary import comparison_summary
from firstdrift_server.parts.tree_row import how_matched
from firstdrift_server.questions.dumps import said_by_text

if TYPE_CHECKING:
    from firstdrift.catalogue.matches.match_preview import Bench, Benches, State

MOST_MATCHES = 200
"""More added or removed matches than this are counted, but not listed."""

Asked = tuple[int, int | None, int]
"""Comparison, match set (None: the comparison as it was found), and position of the slice."""


class Format(StrEnum):
    """As what a match set is written."""

    JSON = "json"
    LAYER_MAPPING = "layer_mapping"
    DATA_MAPPING = "data_mapping"
    VIEW_MAPPING = "view_mapping"


_MAPPINGS: Final[dict[Format, Callable[[Iterable[SlicePlan]], str]]] = {
    Format.LAYER_MAPPING: layer_mapping,
    Format.DATA_MAPPING: data_mapping,
    Format.VIEW_MAPPING: view_mapping,
}


@dataclass(frozen=True, slots=True)
class Written:
    """A file to be sent."""

    name: str
    text: str
    media_type: str


def set_of(session: Session, comparison: int, match_set: int | None) -> MatchSet:
    """Look up a match set of a comparison; without one, what stands for the comparison as it was found."""
    known = no_match_set(session, comparison) if match_set is None else get_match_set(session, match_set)
    if known.comparison_id != comparison:
        raise NotInCatalogueError(
            Message.of("server.other_match_set", match_set=match_set, comparison=comparison)
        )
    return known


def match_set_view(session: Session, known: MatchSet) -> dict[str, Any]:
    """Describe a match set: the version in force, its edits, its results, and all its versions."""
    chain = {one.version for one in known.chain()}
    return {
        "id": known.id,
        "comparison": known.comparison_id,
        "name": known.name,
        "version": known.version,
        "created_at": known.created_at,
        "undo_to": known.undone,
        "redo_to": known.redone,
        "edits": list(map(edit_object, known.edits())),
        "mappings": [mapping.name for mapping in known.mappings()],
        "results": _results_view(session, known),
        "versions": [_version_view(one, in_force=one.version in chain) for one in known.versions],
    }


def _results_view(session: Session, known: MatchSet) -> dict[str, Any] | None:
    results = known.results()
    if results is None:
        return None
    comparison = get_comparison(session, results)
    bad_node = comparison.findings.first_bad_node if comparison.findings else None
    summary = comparison_summary(session, comparison)
    shown = ("state", "rules", "summary", "tone", "counts", "job", "finished_at")
    return {
        "comparison": results,
        "address": comparison_address(results),
        "first_bad_node": finding_object(bad_node),
    } | fields_of(summary, shown)


def _version_view(one: Version, *, in_force: bool) -> dict[str, Any]:
    return {
        "version": one.version,
        "parent": one.parent,
        "in_force": in_force,
        "says": one.message(),
        "edits": list(map(edit_object, one.edits)),
        "mappings": [mapping.name for mapping in one.mappings],
        "results": one.results_id,
        "made_at": one.made_at,
    }


def check(
    session: Session,
    context: Context,
    match_set: int,
    seen: int,
    edits: tuple[Edit, ...],
    mappings: tuple[MappingFile, ...] = (),
) -> None:
    """Make sure that edits can be applied to the version in force."""
    known = get_match_set(session, match_set)
    # A conflict is told when the change is made, where nobody can be faster any more.
    if known.version == seen:
        check_for(session, context, known, edits, mappings)


def check_for(
    session: Session,
    context: Context,
    known: MatchSet,
    edits: tuple[Edit, ...],
    mappings: tuple[MappingFile, ...] = (),
) -> None:
    """Make sure that edits can be applied to a match set, or to a comparison as it was found."""
    from firstdrift.catalogue.matches.match_preview import check_edits, state_of

    state = state_of(session, known)
    if edits:
        check_edits(session, state, edits, benches_of(session, context, known, mappings))


def effect_view(session: Session, context: Context, asked: Asked, edits: tuple[Edit, ...]) -> dict[str, Any]:
    """Say what edits would change."""
    from firstdrift.catalogue.matches.match_preview import effect
    from firstdrift.comparison.stages import measure_pairs

    known, state, pair = asked_for(session, asked)
    measure = context.in_child(measure_pairs)
    benches = benches_of(session, context, known)
    found = effect(session, state, edits, benches, first=pair.position, measure=measure)
    return {
        "match_set": asked[1],
        "version": known.version,
        "before": {"counts": counts_object(found.before)} | findings_object(found.findings_before),
        "after": {"counts": counts_object(found.after)} | findings_object(found.findings_after),
        "added": list(map(_match_view, found.added[:MOST_MATCHES])),
        "added_total": len(found.added),
        "removed": list(map(_match_view, found.removed[:MOST_MATCHES])),
        "removed_total": len(found.removed),
        "new_pairs": found.new_pairs,
        "unmeasured": found.unmeasured,
        "notes": list(found.notes),
        "slices": found.slices,
        "of_slices": found.of_slices,
    }


def _match_view(match: NodeMatch) -> dict[str, Any]:
    return {"golden": match.golden, "target": match.target} | asdict(how_matched(match))


def suggestions_view(
    session: Session, context: Context, asked: Asked, names: dict[str, str | None]
) -> dict[str, Any]:
    """Rank the partners that a node may have."""
    from firstdrift.catalogue.matches.match_preview import suggest_for

    known, state, pair = asked_for(session, asked)
    found = suggest_for(benches_of(session, context, known)(pair), state, names)
    return {
        "slice": pair.position,
        "suggestions": [
            {
                "golden": list(one.golden),
                "target": list(one.target),
                "score": one.score,
                "reasons": list(one.reasons),
                "doubtful": one.doubtful,
            }
            for one in found
        ],
    }


def matches_in(context: Context, name: str, text: str) -> MatchSetFile:
    """Read a mapping file or a match set."""
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST_FILE:
        raise SettingsError(Message.of("server.large_mapping_file", most=LARGEST_FILE >> 20), path=repr(name))
    try:
        return context.ask(said_by_text, name or "imported", text)
    except ValueError as error:
        raise SettingsError(Message.of("server.is_no_file_name"), path=repr(name)) from error


def as_file(session: Session, known: MatchSet, written: Format, version: int | None) -> Written:
    """Write a version of a match set."""
    from firstdrift.catalogue.matches.match_preview import plans_of

    at = known.version if version is None else version
    name = f"match-set-{known.id}-version-{at}"
    if written is Format.JSON:
        said = MatchSetFile(known.name, known.edits(at), known.mappings(at))
        return Written(f"{name}.json", match_set_text(said), "application/json")
    results = known.results(at)
    if results is None:
        raise SettingsError(Message.of("server.results_gone"), hint=Message.of("server.put_in_force_again"))
    plans = plans_of(session, results)
    text = _MAPPINGS[written](plans)
    return Written(f"{name}-{written.value.replace('_', '-')}.yaml", text, "application/yaml")


def asked_for(session: Session, asked: Asked) -> "tuple[MatchSet, State, SlicePair]":
    """Look up a match set, what it is laid over, and the pair of slices."""
    from firstdrift.catalogue.matches.match_preview import state_of

    comparison, match_set, position = asked
    known = set_of(session, comparison, match_set)
    state = state_of(session, known)
    for pair in state.pairs:
        if pair.position == position:
            return known, state, pair
    raise NotInCatalogueError(
        Message.of("server.comparison_without_slice", comparison=comparison, slice=position)
    )


def benches_of(
    session: Session, context: Context, known: MatchSet, mappings: tuple[MappingFile, ...] = ()
) -> "Benches":
    """Give benches of the slices of a match set; those used a moment ago are kept."""
    from firstdrift.catalogue.matches.match_preview import load_bench
    from firstdrift.parallel.merge_ranks import merge_ranks

    base = get_comparison(session, known.comparison_id)
    matching = options_of(base.options, known).matching
    matching = replace(matching, edits=(), mappings=matching.mappings + mappings)
    options = replace(base.options, matching=matching)
    merge = context.in_child(merge_ranks)

    def bench_of(pair: SlicePair) -> "Bench":
        key = pair.golden_slice_id, pair.target_slice_id, options
        return context.benches.get(key, lambda: load_bench(session, pair, options, merge))

    return bench_of


def begin_set(session: Session, comparison: int, wanted: str) -> int:
    """Begin a match set for whoever matches without having chosen one; return its id."""
    sets = list_match_sets(session, comparison) + list_match_sets(session, comparison, deleted=True)
    taken = {one.name for one in sets}
    name = wanted.strip() or "Match set"
    names = (f"{name} ({number})" if number > 1 else name for number in count(1))
    return create_match_set(session, comparison, next(name for name in names if name not in taken))
