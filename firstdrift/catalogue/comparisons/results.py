"""What workers put into the catalogue: measurements as they come, and slices when they are judged.

Everything here can be repeated after a crash: a measurement that is there already is replaced by the same,
and a judged slice takes the place of what was there of it, whole or not at all. What comes for a comparison
that is being made again is refused (`JobLostError`).
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, delete, insert, literal, or_, select, true, update
from sqlalchemy.orm import Session

from firstdrift.catalogue.bulk import columns_of, insert_in_batches, insert_many
from firstdrift.catalogue.codec import to_text
from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.tables import (
    BAD,
    BELOW,
    ComparisonEntry,
    MeasurementEntry,
    PairEntry,
    PlanEntry,
    RowEntry,
    SliceEntry,
    SlicePairEntry,
)
from firstdrift.comparison.report import DumpSummary, SliceResult
from firstdrift.comparison.session import Planned, without_details
from firstdrift.comparison.stages import count_unreadable
from firstdrift.errors import JobLostError
from firstdrift.groups import firsts
from firstdrift.matching.plan import Messages, SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Dump, Slice
from firstdrift.verdict.judgement import (
    ORIGINS,
    Counts,
    Finding,
    Findings,
    NodeClass,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.tree import TreeRow, layer_rows
from firstdrift.wording.message import Message

MEASUREMENTS_VERSION = 14
"""Counts up when measuring gives other numbers than before, so that old ones are not taken for new."""


_QUICKLY = 1
"""Level of compression: higher ones save a tenth and take longer."""

_NOWHERE = Path()


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


def pair_keys(pairs: Sequence[TensorPair]) -> list[bytes]:
    """Digest of each pair, which tensors of two given slices it compares, and how."""
    seen: Counter[bytes] = Counter()
    keys = []
    for pair in pairs:
        parts = (
            str(MEASUREMENTS_VERSION),
            pair.golden_node,
            pair.golden.label,
            pair.target_node,
            pair.target.label,
            to_text(pair.transform) if pair.transform else "",
            "" if pair.incomparable is None else to_text(pair.incomparable),
            to_text((pair.golden_parts, pair.target_parts, *pair.witnesses)) if pair.joining else "",
            *(("by statistics",) if pair.by_statistics else ()),
        )
        key = _digest("\0".join(parts).encode(errors="surrogatepass"))
        seen[key] += 1
        keys.append(key if seen[key] == 1 else _digest(key + str(seen[key]).encode()))
    return keys


def add_measurements(
    session: Session, golden: int, target: int, measured: Mapping[bytes, Measurement]
) -> None:
    """Keep measurements of pairs of two indexed slices, by pair key; those that are there are replaced."""
    insert_many(
        session,
        MeasurementEntry,
        {"key": list(measured), "measurement": list(measured.values())},
        on_conflict="ON CONFLICT (golden_id, target_id, key) DO UPDATE"
        " SET measurement = excluded.measurement",
        golden_id=golden,
        target_id=target,
    )


def load_measurements(session: Session, golden: int, target: int) -> dict[bytes, Measurement]:
    """Give what has been measured of two indexed slices, by pair key."""
    return _by_key(session, golden, target, MeasurementEntry.__table__.c.measurement)


def _by_key(session: Session, golden: int, target: int, column: ColumnElement[Any]) -> dict[bytes, Any]:
    columns = MeasurementEntry.__table__.c
    here = (columns.golden_id == golden, columns.target_id == target)
    return dict(session.execute(select(columns.key, column).where(*here)).all())


def load_planned(session: Session, slice_pair: int) -> tuple[Planned, tuple[Measurement, ...]] | None:
    """Give what was judged of a slice pair: its plan, its tree and the measurement of each pair.

    None if this version has not kept it; another one may have matched otherwise.
    """
    plans = select(PlanEntry.content)
    here = (PlanEntry.slice_pair_id == slice_pair, PlanEntry.version == _version())
    packed = session.scalar(plans.where(*here))
    planned = unpack(packed) if packed is not None else None
    if planned is None:
        return None
    measured = (
        select(MeasurementEntry.measurement)
        .join(PairEntry, PairEntry.measurement_id == MeasurementEntry.id)
        .where(PairEntry.slice_pair_id == slice_pair)
        .order_by(PairEntry.index)
    )
    return planned, tuple(session.scalars(measured))


def _version() -> str:
    return f"{version('firstdrift')}, measurements {MEASUREMENTS_VERSION}"


def start_results(
    session: Session, comparison_id: int, golden: int, target: int, pairing: SlicePairing
) -> None:
    """Record which indexed dumps are compared, and which of their slices are left over.

    Results that belong to the dumps as they were before, or to slices no longer compared, go.
    """
    entry = session.get_one(ComparisonEntry, comparison_id)
    same_dumps = (entry.golden_id, entry.target_id) == (golden, target)
    no_longer = SlicePairEntry.position >= len(pairing.pairs)
    stale = or_(~SlicePairEntry.complete, no_longer) if same_dumps else true()
    session.execute(delete(SlicePairEntry).where(SlicePairEntry.comparison_id == comparison_id, stale))
    entry.golden_id, entry.target_id = golden, target
    entry.unmatched_golden = pairing.unmatched_golden
    entry.unmatched_target = pairing.unmatched_target
    entry.notes = pairing.notes


def saved_slice(session: Session, place: SlicePlace) -> SavedSlice | None:
    """Give what was kept of a slice pair for this revision of the comparison; None if nothing was."""
    saved = select(SlicePairEntry.judgement, SlicePairEntry.unreadable, SlicePairEntry.seconds).where(
        SlicePairEntry.comparison_id == place.comparison_id,
        SlicePairEntry.position == place.position,
        SlicePairEntry.revision == place.revision,
        SlicePairEntry.golden_id == place.golden,
        SlicePairEntry.target_id == place.target,
        SlicePairEntry.complete,
    )
    found = session.execute(saved).one_or_none()
    return None if found is None else SavedSlice(*found)


def origins_known(session: Session, golden: int, target: int) -> list[Finding]:
    """List where errors begin in a pair of slices, as comparisons of the two said, under whatever rules."""
    here = (SlicePairEntry.golden_id == golden, SlicePairEntry.target_id == target)
    judged: Sequence[SliceJudgement] = session.scalars(select(SlicePairEntry.judgement).where(*here)).all()
    return [origin for one in judged for origin in one.origins]


def save_slice(
    writing: Callable[[], AbstractContextManager[Session]],
    place: SlicePlace,
    result: SliceResult,
    slices: tuple[Slice, Slice],
    seconds: Mapping[str, float],
) -> None:
    """Keep all that is known of a slice pair, of which the measurements must be there already.

    Rows and pairs come in several transactions; the last one shows them in place of the old ones.
    """
    entry = _slice_pair_entry(place, result, seconds)
    with writing() as session:
        _require_revision(session, place.comparison_id, place.revision)
        session.add(entry)
        session.flush()
        measurement_ids = _by_key(session, place.golden, place.target, MeasurementEntry.__table__.c.id)
    pairs = _pair_columns(result, measurement_ids) | _place_columns(result.plan, slices)
    packed = pack(Planned(result.plan, result.rows))
    insert_in_batches(writing, RowEntry, _row_columns(result, slices), slice_pair_id=entry.id)
    insert_in_batches(writing, PairEntry, pairs, slice_pair_id=entry.id)
    with writing() as session:
        _require_revision(session, place.comparison_id, place.revision)
        if packed is not None:
            session.add(PlanEntry(slice_pair_id=entry.id, version=_version(), content=packed))
        session.execute(delete(SlicePairEntry).where(*_others(place), SlicePairEntry.id != entry.id))
        session.execute(update(SlicePairEntry).where(SlicePairEntry.id == entry.id).values(complete=True))


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
        for table in (RowEntry, PairEntry, PlanEntry):
            names = [column for column in table.__table__.columns if column.key != "slice_pair_id"]
            found = select(literal(entry.id), *names).where(table.slice_pair_id == source)
            session.execute(
                insert(table).from_select(["slice_pair_id", *(column.key for column in names)], found)
            )
        return SavedSlice(known.judgement, known.unreadable, {})


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
    entry.judgement, entry.verdict = without_details(judgement), Verdict.ERROR
    bad = judgement.logits
    if bad is None:
        return
    of_pair = (PairEntry.slice_pair_id == entry.id, PairEntry.index == judgement.logits_pair)
    session.execute(update(PairEntry).where(*of_pair).values(verdict=Verdict.ERROR, reasons=bad.reasons))
    in_slice = RowEntry.slice_pair_id == entry.id
    of_row = (in_slice, RowEntry.index == bad.row)
    before = session.scalars(select(RowEntry.verdict).where(*of_row)).one()
    said = {"verdict": Verdict.ERROR, "reasons": bad.reasons, "worst_pair": judgement.logits_pair}
    session.execute(update(RowEntry).where(*of_row).values(**said, is_bad=True))
    if before is Verdict.ERROR:
        return
    above = (in_slice, RowEntry.index < bad.row, RowEntry.last >= bad.row)
    moved: dict[str, Any] = {"errors_below": RowEntry.errors_below + 1, "worst_below": Verdict.ERROR}
    if before in (Verdict.WARNING, Verdict.INCOMPARABLE):
        moved[BELOW[before]] = getattr(RowEntry, BELOW[before]) - 1
    session.execute(update(RowEntry).where(*above).values(**moved))


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
    )


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _slice_pair_entry(place: SlicePlace, result: SliceResult, seconds: Mapping[str, float]) -> SlicePairEntry:
    matched = (row for row in result.judgement.rows if row.node_class is not NodeClass.UNMATCHED)
    worst = max((row.verdict for row in matched), key=attrgetter("severity"), default=Verdict.PASS)
    return SlicePairEntry(
        comparison_id=place.comparison_id,
        position=place.position,
        golden_id=place.golden,
        target_id=place.target,
        revision=place.revision,
        verdict=worst if result.plan.pairs else Verdict.INCOMPARABLE,
        judgement=without_details(result.judgement),
        unmatched_golden=result.plan.unmatched_golden_tensors,
        unmatched_target=result.plan.unmatched_target_tensors,
        notes=result.plan.notes,
        unreadable=count_unreadable(result),
        rows=len(result.rows),
        pairs=len(result.plan.pairs),
        seconds=dict(seconds),
    )


def _require_revision(session: Session, comparison_id: int, revision: int) -> None:
    if session.get_one(ComparisonEntry, comparison_id).revision != revision:
        raise JobLostError(Message.of("catalogue.job.made_again"))


def _row_columns(result: SliceResult, slices: tuple[Slice, Slice]) -> dict[str, list[Any]]:
    rows, judged = result.rows, result.judgement.rows
    said = ("verdict", "node_class", "reasons", "worst_pair", "rule")
    errors = ("input_error", "parameter_error", "output_error", "amplification")
    layers = layer_rows(rows)
    return {
        **columns_of(rows, *TreeRow.__struct_fields__),
        **_match_columns(result),
        **columns_of(judged, *said, *errors),
        **{column: [getattr(row.below, name) for row in judged] for name, column in BELOW.items()},
        "is_bad": [row.verdict in BAD for row in judged],
        "is_origin": [row.node_class in ORIGINS for row in judged],
        "is_layer": [row.index in layers for row in rows],
        "search": _searched(rows, slices),
    }


def _match_columns(result: SliceResult) -> dict[str, list[Any]]:
    matches = result.plan.matches
    matched = [None if row.match is None else matches[row.match] for row in result.rows]
    return {
        **columns_of(matched, "origin", "score"),
        "doubtful": [match is not None and match.doubtful for match in matched],
        "match_reasons": [match.reasons if match else () for match in matched],
        "is_unmatched": [match is None for match in matched],
    }


def _searched(rows: Sequence[TreeRow], slices: tuple[Slice, Slice]) -> list[str]:
    """Write down by what rows are found: label, and names and module paths of either side."""
    golden, target = ({node.name: node.path for node in read.nodes} for read in slices)
    found = []
    for row in rows:
        paths = (
            *(golden.get(name, "") for name in row.golden),
            *(target.get(name, "") for name in row.target),
        )
        said = (row.label, row.path or "", *paths, *row.golden, *row.target)
        found.append("\n".join(dict.fromkeys(said)).lower())
    return found


def _pair_columns(result: SliceResult, measurement_ids: Mapping[bytes, int]) -> dict[str, list[Any]]:
    pairs, judged = result.plan.pairs, result.judgement.pairs
    row_of_match = {row.match: row.index for row in result.rows}
    return {
        "index": list(range(len(pairs))),
        "row": [row_of_match[pair.match] for pair in pairs],
        "joined": [pair if pair.is_joined or pair.by_statistics else None for pair in pairs],
        **columns_of(pairs, "transform", "incomparable"),
        "measurement_id": [measurement_ids[key] for key in pair_keys(pairs)],
        **columns_of(judged, "verdict", "error", "reasons"),
    }


def _place_columns(plan: SlicePlan, slices: tuple[Slice, Slice]) -> dict[str, list[int]]:
    columns = {}
    for side, read in zip(("golden", "target"), slices, strict=True):
        places = _positions(read)
        found = [places[getattr(pair, f"{side}_node"), getattr(pair, side).label] for pair in plan.pairs]
        columns[f"{side}_order"] = firsts(found)
        columns[f"{side}_position"] = [position for _, position in found]
    return columns


def _positions(read: Slice) -> dict[tuple[str, str], tuple[int, int]]:
    """Say where each tensor is: order of its node, and place in the node."""
    return {
        (node.name, record.label): (node.order, position)
        for node in read.nodes
        for position, record in enumerate(node.tensors)
    }


def pack(planned: Planned) -> bytes | None:
    """Write a plan and a tree: what else judging takes beside the measurements.

    Where data lie is left out: judging asks only whether a tensor has any. None if a name has characters that
    UTF-8 lacks.
    """
    try:
        return zlib.compress(_encoder().encode(planned), _QUICKLY)
    except UnicodeEncodeError:
        return None


def unpack(packed: bytes) -> Planned | None:
    """Read what `pack` wrote; None if records had other fields then."""
    try:
        return _decoder().decode(zlib.decompress(packed))
    except (DecodeError, zlib.error):
        return None


@cache
def _encoder() -> Encoder:
    return Encoder(enc_hook=lambda _path: None)


@cache
def _decoder() -> Decoder[Planned]:
    return Decoder(Planned, dec_hook=lambda _kind, _nothing: _NOWHERE)
