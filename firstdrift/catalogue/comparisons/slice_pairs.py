"""The pairs of slices of a comparison: what is said of each, and where it stands."""

from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session, aliased, load_only

from firstdrift.catalogue.lookup import record_of, required
from firstdrift.catalogue.tables import SliceEntry, SlicePairEntry
from firstdrift.matching.plan import Messages, UnmatchedTensor
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import SliceJudgement, Verdict
from firstdrift.wording.message import Message

Labelled = TypeVar("Labelled", bound="SliceLabel")


class SliceLabel(Struct, frozen=True):
    """What tells a pair of slices from others, and how it fared: quickly read, however much is said of it.

    Attributes:
        id: by which its rows and pairs are found.
        position: place in the order of execution, from 0.
        revision: counts up whenever its rows and pairs were made again.
        golden: coordinates of the golden slice; likewise target.
        golden_slice_id: the indexed golden slice; likewise target_slice_id.
        verdict: the worst of its matched rows; incomparable if no tensors of it could be compared.
    """

    id: int
    comparison_id: int
    position: int
    revision: int
    golden: Coordinates
    target: Coordinates
    golden_slice_id: int
    target_slice_id: int
    verdict: Verdict


class SlicePair(SliceLabel, frozen=True):
    """A golden and a target slice that were compared; those of a running comparison appear one by one.

    Attributes:
        judgement: what is said of it (logits, worst, origins, counts, ...); `rows` and `pairs` are empty, and
            of a step of training the parameters are left out.
        unmatched_golden: tensors of matched nodes left over; likewise unmatched_target.
        notes: remarks on its match plan, such as which entries of a mapping file matched nothing.
        unreadable: how many pairs could not be compared because a file is damaged or missing.
        rows: number of rows of its tree.
        pairs: number of pairs of tensors.
    """

    judgement: SliceJudgement
    unmatched_golden: tuple[UnmatchedTensor, ...]
    unmatched_target: tuple[UnmatchedTensor, ...]
    notes: Messages
    unreadable: int
    rows: int
    pairs: int
    seconds: dict[str, float]


def slice_pairs_of(session: Session, comparison_id: int) -> tuple[SlicePair, ...]:
    """List the slice pairs of a comparison that are there so far, in the order of execution."""
    return _all(SlicePair, session, comparison_id)


def get_slice_pair(session: Session, comparison_id: int, position: int) -> SlicePair:
    """Look up the slice pair at a position of a comparison."""
    return _at(SlicePair, session, comparison_id, position)


def slice_labels_of(session: Session, comparison_id: int) -> tuple[SliceLabel, ...]:
    """List the labels of the slice pairs of a comparison, in the order of execution."""
    return _all(SliceLabel, session, comparison_id)


def get_slice_label(session: Session, comparison_id: int, position: int) -> SliceLabel:
    """Look up the label of the slice pair at a position of a comparison."""
    return _at(SliceLabel, session, comparison_id, position)


def judgement_of(session: Session, slice_pair: int) -> SliceJudgement:
    """Return what is said of a slice pair, without its rows and pairs."""
    return session.execute(
        select(SlicePairEntry.judgement).where(SlicePairEntry.id == slice_pair)
    ).scalar_one()


def judgements_of(session: Session, slice_pairs: Collection[int]) -> dict[int, SliceJudgement]:
    """Return what is said of some slice pairs, by their ids, without their rows and pairs."""
    asked = select(SlicePairEntry.id, SlicePairEntry.judgement).where(SlicePairEntry.id.in_(slice_pairs))
    return {each.id: each.judgement for each in session.execute(asked)}


def left_over_of(session: Session, slice_pair: int) -> dict[str, tuple[UnmatchedTensor, ...]]:
    """List the tensors of matched nodes that were left over, by side ("golden", "target")."""
    columns = SlicePairEntry.unmatched_golden, SlicePairEntry.unmatched_target
    golden, target = session.execute(select(*columns).where(SlicePairEntry.id == slice_pair)).one()
    return {"golden": golden, "target": target}


def _all(kind: type[Labelled], session: Session, comparison_id: int) -> tuple[Labelled, ...]:
    of_comparison = _query(kind).where(SlicePairEntry.comparison_id == comparison_id)
    found = session.execute(of_comparison.order_by(SlicePairEntry.position))
    return tuple(_labelled(kind, each) for each in found)


def _at(kind: type[Labelled], session: Session, comparison_id: int, position: int) -> Labelled:
    here = (SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.position == position)
    absence = Message.of("catalogue.no_slice_pair", comparison=comparison_id, position=position)
    return _labelled(kind, required(session.execute(_query(kind).where(*here)).one_or_none(), absence))


@cache  # putting a statement together takes longer than running it
def _query(kind: type[SliceLabel]) -> Select[*tuple[Any, ...]]:
    golden, target = aliased(SliceEntry), aliased(SliceEntry)
    pair = SlicePairEntry
    query = (
        select(pair, golden, target)
        .join(golden, golden.id == pair.golden_id)
        .join(target, target.id == pair.target_id)
        .where(pair.complete)
    )
    if kind is SlicePair:
        return query
    columns = pair.id, pair.comparison_id, pair.position, pair.revision, pair.golden_id, pair.target_id
    return query.options(load_only(*columns, pair.verdict, raiseload=True))


def _labelled(kind: type[Labelled], found: Row[*tuple[Any, ...]]) -> Labelled:
    entry, golden, target = found
    return record_of(
        kind,
        entry,
        golden=golden.coordinates,
        target=target.coordinates,
        golden_slice_id=entry.golden_id,
        target_slice_id=entry.target_id,
    )
