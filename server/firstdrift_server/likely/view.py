"""The matches that would resolve most of what has no partner, and what is found with them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.dumps.records import get_slice
from firstdrift.dumps.storage.fingerprints import digest_of
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.likely.edits import written_edit
from firstdrift_server.likely.entries import LikelyEntry
from firstdrift_server.match.sets import Asked, asked_for
from firstdrift_server.parts.addresses import comparison_address, match_address, query_of, with_query
from firstdrift_server.parts.match_sets import set_shown
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary
from firstdrift_server.questions.likely import Likely, likely_in


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


def likely_view(context: Context, comparison: int, position: int) -> LikelyView:
    """Look for the matches; what was found a moment ago is kept as long as the files stay as they were."""
    with context.reading() as session:
        asked, version, view, folders = _about(session, comparison, position)
    # Whoever waits for a child holds no connection to the database.
    key = (*asked, *version, context.ask(digest_of, folders))
    found = context.likely.get(key, lambda: context.try_out(likely_in, context.settings.database, asked))
    return replace(view, matches=tuple(_entry(asked, one) for one in found))


def _about(
    session: Session, comparison: int, position: int
) -> tuple[Asked, tuple[int, int], LikelyView, tuple[Path, ...]]:
    """Say what is looked for and of which version, what the page says besides, and where the files lie."""
    known = set_shown(session, comparison)
    asked: Asked = known.comparison_id, known.id or None, position
    _, state, pair = asked_for(session, asked)
    counts = (state.judged.get(position) or pair.judgement).counts
    view = LikelyView(
        comparison=comparison_summary(session, get_comparison(session, comparison)),
        comparison_address=comparison_address(comparison, slice=position),
        over=known.comparison_id,
        set=known.id,
        set_name=known.name,
        version=known.version,
        slice=position,
        slice_name=pair.target.name(),
        unmatched={"golden": counts.unmatched_golden_nodes, "target": counts.unmatched_target_nodes},
        matches=(),
        match=match_address(known.comparison_id, position, set=known.id or None),
        accept=f"/c/{known.comparison_id}/s/{position}/likely",
    )
    return asked, (state.base.revision, known.version), view, tuple(_folders(session, pair))


def _folders(session: Session, pair: SlicePair) -> Iterator[Path]:
    """Give the folders that the slices of a pair lie in; of merged ones, those of their ranks."""
    for number in (pair.golden_slice_id, pair.target_slice_id):
        known = get_slice(session, number)
        parts = (known.listing,) if known.merged is None else known.merged.parts
        yield from (part.directory for part in parts)


def _entry(asked: Asked, one: Likely) -> LikelyEntry:
    comparison, match_set, position = asked
    names = {"golden": one.edit.golden, "target": one.edit.target}
    picked = [(side, name) for side in names for name in names[side]]
    return LikelyEntry(
        golden=one.golden,
        target=one.target,
        score=one.score,
        more_pairs=one.more_pairs,
        finding=one.finding,
        edit=written_edit(one.edit),
        preview=with_query(
            match_address(comparison, position), query_of([*_set(match_set), *picked, ("preview", "1")])
        ),
    )


def _set(match_set: int | None) -> list[tuple[str, object]]:
    return [("set", match_set)] if match_set else []
