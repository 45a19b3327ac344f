"""What workers put into the catalogue: measurements as they come, and slices when they are judged.

Everything here can be repeated after a crash: of measurements of one pair the last holds, and a judged
slice takes the place of what was there of it, whole or not at all. What comes for a comparison that is being
made again is refused (`JobLostError`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, delete, insert, literal, select, update
from sqlalchemy.orm import Session

from firstdrift.catalogue.bulk import insert_in_batches, insert_many
from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.kept import (
    pair_blocks,
    row_blocks,
    with_bad_pair,
    with_bad_row,
    with_places,
)
from firstdrift.catalogue.comparisons.measurements import (
    KEY_BYTES,
    add_measurements,
    add_packed_measurements,
    last_block,
    load_measurements,
    pair_keys,
    places_of,
)
from firstdrift.catalogue.comparisons.overview import overview_of, pack_overview
from firstdrift.catalogue.comparisons.packed_slices import PackedSlice
from firstdrift.catalogue.comparisons.planned import version_of_plans
from firstdrift.catalogue.comparisons.trained import with_trained, without_trained
from firstdrift.catalogue.comparisons.tree import all_kept_pairs, all_kept_rows
from firstdrift.catalogue.tables import (
    ComparisonEntry,
    OverviewEntry,
    PairBlockEntry,
    PlanEntry,
    RowBlockEntry,
    SliceEntry,
    SlicePairEntry,
)
from firstdrift.comparison.report import DumpSummary
from firstdrift.comparison.session import without_details
from firstdrift.errors import JobLostError
from firstdrift.matching.plan import Messages, SlicePairing
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Dump
from firstdrift.verdict.judgement import Counts, Finding, Findings, SliceJudgement, Verdict
from firstdrift.wording.message import Message

_AT_ONCE = 10_000

__all__ = ["add_measurements", "add_packed_measurements", "last_block", "load_measurements", "pair_keys"]


class SlicePlace(Struct, frozen=True):
    """Where the results of a slice pair belong.

    Attributes:
        golden: id of the indexed golden slice; likewise target.
    """

    comparison_id: int
    revision: int
    position: int
    golden: int
    target: int


class Compared(Struct, frozen=True):
    """What is compared, golden before target.

    Attributes:
        dumps: ids of the indexed dumps.
        files: their fingerprints.
        slice_ids: ids of the golden and the target slice of each pair.
    """

    dumps: tuple[int, int]
    files: tuple[str, str]
    slice_ids: Sequence[tuple[int, int]]


class SavedSlice(Struct, frozen=True):
    """What is needed of a slice pair to conclude.

    Attributes:
        judgement: what is said of it, without rows and pairs.
        unreadable: how many pairs could not be compared because a file is damaged or missing.
        seconds: time spent on it by stage.
    """

    judgement: SliceJudgement
    unreadable: int
    seconds: Mapping[str, float]


class Answer(Struct, frozen=True):
    """The answer to a comparison; fields as those of a `Comparison`."""

    findings: Findings
    counts: Counts
    golden_summary: DumpSummary
    target_summary: DumpSummary
    unmatched_golden: tuple[Coordinates, ...]
    unmatched_target: tuple[Coordinates, ...]
    unreadable: int
    seconds: dict[str, float]


def start_results(
    session: Session,
    comparison_id: int,
    compared: Compared,
    pairing: SlicePairing,
    damaged: frozenset[int] = frozenset(),
) -> None:
    """Record which indexed dumps are compared, and which of their slices are left over.

    Results of other slices go, as do those of slices after the first one that is new: what is said of a slice
    may depend on those before it. Pairs that are `damaged`, as they were before, are not new: by position.
    """
    entry = session.get_one(ComparisonEntry, comparison_id)
    stale = _stale(session, entry, compared.slice_ids, damaged)
    for start in range(0, len(stale), _AT_ONCE):
        some = SlicePairEntry.id.in_(stale[start : start + _AT_ONCE])
        session.execute(delete(SlicePairEntry).where(some))
    entry.golden_id, entry.target_id = compared.dumps
    entry.golden_files, entry.target_files = compared.files
    entry.unmatched_golden = pairing.unmatched_golden
    entry.unmatched_target = pairing.unmatched_target
    entry.notes = pairing.notes


def _stale(
    session: Session, entry: ComparisonEntry, slice_ids: Sequence[tuple[int, int]], damaged: frozenset[int]
) -> list[int]:
    """List the slice pairs of a comparison that are none any more, or may be judged otherwise by now."""
    pair = SlicePairEntry
    columns = pair.id, pair.position, pair.golden_id, pair.target_id, pair.revision, pair.complete
    found = session.execute(select(*columns).where(pair.comparison_id == entry.id)).all()
    wanted = dict(enumerate(slice_ids))
    fitting = [one for one in found if one.complete and wanted.get(one.position) == one[2:4]]
    there = {one.position for one in fitting if one.revision == entry.revision}
    never_judged = damaged.difference(one.position for one in found)
    first_new = min(wanted.keys() - there - never_judged, default=len(wanted))
    kept = {one.id for one in fitting if one.revision != entry.revision or one.position < first_new}
    return [one.id for one in found if one.id not in kept]


def saved_slice(session: Session, place: SlicePlace) -> SavedSlice | None:
    """Give what was kept of a slice pair for this revision of the comparison; None if nothing was.

    What only other slices showed of it is none: with more of them it may be otherwise.
    """
    columns = SlicePairEntry.judgement, SlicePairEntry.trained
    saved = select(*columns, SlicePairEntry.unreadable, SlicePairEntry.seconds).where(
        SlicePairEntry.comparison_id == place.comparison_id,
        SlicePairEntry.position == place.position,
        SlicePairEntry.revision == place.revision,
        SlicePairEntry.golden_id == place.golden,
        SlicePairEntry.target_id == place.target,
        SlicePairEntry.complete,
        ~SlicePairEntry.settled,
    )
    found = session.execute(saved).one_or_none()
    if found is None:
        return None
    judgement, trained, unreadable, seconds = found
    return SavedSlice(with_trained(judgement, trained), unreadable, seconds)


def origins_known(session: Session, golden: int, target: int) -> list[Finding]:
    """List where errors begin in a pair of slices, as comparisons of the two said, under whatever rules."""
    here = (SlicePairEntry.golden_id == golden, SlicePairEntry.target_id == target)
    judged: Sequence[SliceJudgement] = session.scalars(select(SlicePairEntry.judgement).where(*here)).all()
    return [origin for one in judged for origin in one.origins]


def save_slice(
    writing: Callable[[], AbstractContextManager[Session]],
    place: SlicePlace,
    said: SliceJudgement,
    packed: PackedSlice,
    seconds: Mapping[str, float],
) -> SavedSlice:
    """Keep all that is known of a slice pair, of which the measurements must be there already.

    Rows and pairs come in several transactions; the last one shows them in place of the old ones.
    """
    entry = _slice_pair_entry(place, said, packed, seconds)
    with writing() as session:
        _require_revision(session, place.comparison_id, place.revision)
        session.add(entry)
        session.flush()
        measured = places_of(session, place.golden, place.target)
    places = list(map(measured.__getitem__, packed.pair_keys()))
    pairs = with_places(packed.pairs.columns(), places)
    insert_in_batches(writing, RowBlockEntry, packed.rows.columns(), slice_pair_id=entry.id)
    insert_in_batches(writing, PairBlockEntry, pairs, slice_pair_id=entry.id)
    with writing() as session:
        _require_revision(session, place.comparison_id, place.revision)
        session.add(OverviewEntry(slice_pair_id=entry.id, content=packed.overview))
        if packed.rest is not None:
            session.add(PlanEntry(slice_pair_id=entry.id, version=version_of_plans(), content=packed.rest))
        session.execute(delete(SlicePairEntry).where(*_others(place), SlicePairEntry.id != entry.id))
        session.execute(update(SlicePairEntry).where(SlicePairEntry.id == entry.id).values(complete=True))
    return SavedSlice(said, packed.unreadable, seconds)


def copy_slice(
    writing: Callable[[], AbstractContextManager[Session]],
    place: SlicePlace,
    source: int,
    notes: Messages,
) -> SavedSlice | None:
    """Keep for one comparison what was found of a slice pair in another, with further remarks.

    Return None if that is no longer there, because the other is being made again.
    """
    with writing() as session:
        _require_revision(session, place.comparison_id, place.revision)
        known = session.get(SlicePairEntry, source)
        if known is None:
            return None
        own = {
            "comparison_id": place.comparison_id,
            "position": place.position,
            "revision": place.revision,
            "notes": known.notes + notes,
            "seconds": {},
            "complete": True,
        }
        session.execute(delete(SlicePairEntry).where(*_others(place)))
        columns = [column.key for column in SlicePairEntry.__table__.columns if column.key != "id"]
        entry = SlicePairEntry(**{name: own.get(name, getattr(known, name)) for name in columns})
        session.add(entry)
        session.flush()
        for table in (RowBlockEntry, PairBlockEntry, OverviewEntry, PlanEntry):
            names = [column for column in table.__table__.columns if column.key != "slice_pair_id"]
            found = select(literal(entry.id), *names).where(table.slice_pair_id == source)
            session.execute(
                insert(table).from_select(["slice_pair_id", *(column.key for column in names)], found)
            )
        return SavedSlice(with_trained(known.judgement, known.trained), known.unreadable, {})


def _others(place: SlicePlace) -> tuple[ColumnElement[bool], ...]:
    return (
        SlicePairEntry.comparison_id == place.comparison_id,
        SlicePairEntry.position == place.position,
    )


def save_bad_output(
    session: Session, comparison_id: int, revision: int, position: int, judgement: SliceJudgement
) -> None:
    """Keep that the logits of a slice are bad, which only other slices show: in its pair, row and tree."""
    _require_revision(session, comparison_id, revision)
    here = (SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.position == position)
    which = (*here, SlicePairEntry.revision == revision, SlicePairEntry.complete)
    entry = session.scalars(select(SlicePairEntry).where(*which)).one()
    said, trained = without_trained(without_details(judgement))
    entry.judgement, entry.verdict, entry.settled = said, Verdict.ERROR, True
    if trained is not None:
        entry.trained = trained
    if judgement.logits is None:
        return
    rows = with_bad_row(list(all_kept_rows(session, entry.id)), judgement.logits, judgement.logits_pair)
    pairs = with_bad_pair(list(all_kept_pairs(session, entry.id)), judgement.logits, judgement.logits_pair)
    overview = overview_of(judgement, rows, ((pair.row, pair.judgement) for pair in pairs))
    for table, blocks in ((RowBlockEntry, row_blocks(rows)), (PairBlockEntry, pair_blocks(pairs))):
        session.execute(delete(table).where(table.slice_pair_id == entry.id))
        insert_many(session, table, blocks, slice_pair_id=entry.id)
    of_pair = OverviewEntry.slice_pair_id == entry.id
    session.execute(update(OverviewEntry).where(of_pair).values(content=pack_overview(overview)))


def save_findings(session: Session, comparison_id: int, revision: int, answer: Answer) -> None:
    """Keep the answer to a comparison, and drop what is left of the answer before it."""
    _require_revision(session, comparison_id, revision)
    older = (SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.revision != revision)
    session.execute(delete(SlicePairEntry).where(*older))
    finished = update(ComparisonEntry).where(ComparisonEntry.id == comparison_id)
    session.execute(finished.values(**asdict(answer), finished_at=Now()))


def summary(session: Session, dump: Dump, slice_ids: Sequence[int]) -> DumpSummary:
    """Sum up what was read of a dump: of these slices, in this order."""
    entries = session.scalars(select(SliceEntry).where(SliceEntry.id.in_(slice_ids)))
    found = {entry.id: entry for entry in entries}
    read = [found[slice_id] for slice_id in slice_ids]
    origins = [RECORDED_ORDER, *filter(None, map(attrgetter("order_origin"), read))]
    return DumpSummary(
        path=str(dump.path),
        format=dump.format,
        slices=len(dump.slices),
        nodes=sum(filter(None, map(attrgetter("nodes"), read))),
        tensors=sum(filter(None, map(attrgetter("tensors"), read))),
        problems=tuple(dict.fromkeys(chain(dump.problems, *map(attrgetter("problems"), read)))),
        order_origin=origins[-1].message,
        compared=sum(entry.parts for entry in found.values() if entry.nodes is not None),
        unfinished=dump.unfinished,
    )


def _slice_pair_entry(
    place: SlicePlace, said: SliceJudgement, packed: PackedSlice, seconds: Mapping[str, float]
) -> SlicePairEntry:
    judgement, trained = without_trained(said)
    return SlicePairEntry(
        comparison_id=place.comparison_id,
        position=place.position,
        golden_id=place.golden,
        target_id=place.target,
        revision=place.revision,
        verdict=packed.verdict,
        judgement=judgement,
        trained=trained,
        unmatched_golden=packed.unmatched_golden,
        unmatched_target=packed.unmatched_target,
        notes=packed.notes,
        unreadable=packed.unreadable,
        rows=packed.row_count,
        pairs=len(packed.keys) // KEY_BYTES,
        seconds=dict(seconds),
    )


def _require_revision(session: Session, comparison_id: int, revision: int) -> None:
    if session.get_one(ComparisonEntry, comparison_id).revision != revision:
        raise JobLostError(Message.of("catalogue.job.made_again"))
