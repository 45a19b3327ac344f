"""The matches that would resolve most of what has no partner, and what is found with them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.matches.likely_matches import LikelyMatch, likely_matches
from firstdrift.catalogue.matches.match_preview import Bench, effect
from firstdrift.catalogue.matches.match_sets import MatchSet
from firstdrift.comparison.stages import measure_pairs
from firstdrift.matching.tree import indexes_by_name
from firstdrift.model.node import Node
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.likely.edits import written_edit
from firstdrift_server.likely.entries import LikelyEntry, NodeShown
from firstdrift_server.match.sets import Asked, asked_for, benches_of
from firstdrift_server.parts.addresses import comparison_address, match_address, query_of, with_query
from firstdrift_server.parts.match_sets import set_shown
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary

PREVIEW_SECONDS = 0.5
"""After so long no further slice is looked at to say what is found with a match."""


class LikelyView(Struct, frozen=True, kw_only=True):
    """The matches that would resolve most of a slice.

    Attributes:
        over: the comparison that they are laid over; `set` and `version` of its match set, 0 for a new one.
        unmatched: how many nodes of either side have no partner.
    """

    comparison: ComparisonSummary
    comparison_address: str
    over: int
    set: int
    set_name: str
    version: int
    slice: int
    slice_name: Message
    unmatched: Mapping[str, int]
    matches: tuple[LikelyEntry, ...]
    match: str
    accept: str


def likely_view(session: Session, context: Context, comparison: int, position: int) -> LikelyView:
    """Look for the matches; what was found a moment ago is kept."""
    known = set_shown(session, comparison)
    asked: Asked = known.comparison_id, known.id or None, position
    _, state, pair = asked_for(session, asked)
    counts = (state.judged.get(position) or pair.judgement).counts
    over = match_address(known.comparison_id, position, set=known.id or None)
    key = known.comparison_id, state.base.revision, known.id, known.version, position
    return LikelyView(
        comparison=comparison_summary(session, get_comparison(session, comparison)),
        comparison_address=comparison_address(comparison, slice=position),
        over=known.comparison_id,
        set=known.id,
        set_name=known.name,
        version=known.version,
        slice=position,
        slice_name=pair.target.name(),
        unmatched={"golden": counts.unmatched_golden_nodes, "target": counts.unmatched_target_nodes},
        matches=context.likely.get(key, lambda: _entries(session, context, asked, known)),
        match=over,
        accept=f"/c/{known.comparison_id}/s/{position}/likely",
    )


def _entries(session: Session, context: Context, asked: Asked, known: MatchSet) -> tuple[LikelyEntry, ...]:
    _, state, pair = asked_for(session, asked)
    bench_of = benches_of(session, context, known)
    bench = bench_of(pair)
    found = likely_matches(bench, state.edits)
    measure = context.in_child(measure_pairs)

    def finding_with(matches: Sequence[LikelyMatch]) -> Message | None:
        edits = [one.edit for one in matches]
        tried = effect(
            session, state, edits, bench_of, first=pair.position, seconds=PREVIEW_SECONDS, measure=measure
        )
        before, after = tried.findings_before.summary, tried.findings_after.summary
        return None if before == after else after

    findings = [finding_with(found[: count + 1]) for count in range(len(found))]
    return tuple(
        _entry(bench, asked, one, finding, before)
        for one, finding, before in zip(found, findings, [None, *findings], strict=False)
    )


def _entry(
    bench: Bench, asked: Asked, one: LikelyMatch, finding: Message | None, before: Message | None
) -> LikelyEntry:
    comparison, match_set, position = asked
    names = {"golden": one.edit.golden, "target": one.edit.target}
    picked = [(side, name) for side in names for name in names[side]]
    return LikelyEntry(
        golden=_shown(bench.golden.nodes, one.edit.golden),
        target=_shown(bench.target.nodes, one.edit.target),
        score=one.score,
        more_pairs=one.more_pairs,
        finding=None if finding == before else finding,
        edit=written_edit(one.edit),
        preview=with_query(
            match_address(comparison, position), query_of([*_set(match_set), *picked, ("preview", "1")])
        ),
    )


def _set(match_set: int | None) -> list[tuple[str, object]]:
    return [("set", match_set)] if match_set else []


def _shown(nodes: Sequence[Node], names: Sequence[str]) -> tuple[NodeShown, ...]:
    at = indexes_by_name(nodes)
    return tuple(NodeShown(name, nodes[at[name]].type_name, nodes[at[name]].path) for name in names)
