"""The pairs of a comparison as lines of a table, one by one, as the database gives them."""

from collections.abc import Iterator

from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_pairs
from firstdrift.catalogue.tables import MeasurementEntry, NodeEntry, PairEntry, RowEntry, SlicePairEntry
from firstdrift.comparison.left_over import MatchedNames
from firstdrift.comparison.levels import level_of
from firstdrift.comparison.table import Line, PairLine, UnmatchedLine, unmatched_tensors
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.wording.text import texts_of

_KINDS_OF_TABLES = (MeasurementKind.DATA, MeasurementKind.STATISTICS, MeasurementKind.DIGEST)


def stored_lines(session: Session, comparison_id: int) -> Iterator[Line]:
    """Give a line for each pair, unmatched node and unmatched tensor of a comparison, slice by slice."""
    get_comparison(session, comparison_id)
    for pair in slice_pairs_of(session, comparison_id):
        yield from _lines(session, pair)


def richest_kind(session: Session, comparison_id: int) -> MeasurementKind:
    """Say what the numbers of a comparison come from: data if any do, else statistics, else digests."""
    # A measurement is stored as text that begins with its kind: {"kind":"statistics",...
    text = type_coerce(MeasurementEntry.measurement, Text)
    for kind in _KINDS_OF_TABLES:
        found = (
            select(PairEntry.index)
            .join(SlicePairEntry, SlicePairEntry.id == PairEntry.slice_pair_id)
            .join(MeasurementEntry, MeasurementEntry.id == PairEntry.measurement_id)
            .where(SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete)
            .where(text.startswith(f'{{"kind":"{kind.value}"'))
            .limit(1)
        )
        if session.scalar(found) is not None:
            return kind
    return MeasurementKind.DATA


def _lines(session: Session, pair: SlicePair) -> Iterator[Line]:
    columns = RowEntry.__table__.c
    rows = {
        found[0]: found
        for found in session.execute(
            select(
                columns.index,
                columns.order,
                columns.path,
                columns.origin,
                columns.node_class,
                columns.kind,
                columns.golden,
                columns.target,
                columns.match,
                columns.doubtful,
            ).where(columns.slice_pair_id == pair.id, columns.origin.is_not(None))
        )
    }
    golden_types = _types(session, pair.golden_slice_id)
    target_types = _types(session, pair.target_slice_id)
    for found in all_pairs(session, pair.id):
        row = rows[found.row]
        yield PairLine(
            pair.target,
            row.order,
            row.path,
            row.origin.value,
            row.node_class.value,
            found.plan,
            found.measurement,
            found.judgement,
            golden_types.get(found.plan.golden_node, ""),
            target_types.get(found.plan.target_node, ""),
            level_of(row.kind, row.path),
        )
    yield from _unmatched_nodes(session, pair)
    matched = [row for row in rows.values() if row.match is not None]
    matches = {row.match: MatchedNames(row.golden, row.target, row.doubtful) for row in matched}
    levels = {row.match: level_of(row.kind, row.path) for row in matched}
    yield from unmatched_tensors(pair.target, pair.unmatched_golden, pair.unmatched_target, matches, levels)


def _types(session: Session, slice_id: int) -> dict[str, str]:
    columns = NodeEntry.__table__.c
    return dict(
        session.execute(select(columns.name, columns.type_name).where(columns.slice_id == slice_id)).all()
    )


def _unmatched_nodes(session: Session, pair: SlicePair) -> Iterator[UnmatchedLine]:
    columns = RowEntry.__table__.c
    free = session.execute(
        select(columns.golden, columns.target, columns.type_name, columns.reasons, columns.kind, columns.path)
        .where(columns.slice_pair_id == pair.id, columns.origin.is_(None))
        .order_by(columns.index)
    ).all()
    for at, side in enumerate(("golden", "target")):
        for row in free:
            rest = row.type_name, "; ".join(texts_of(row.reasons)), level_of(row.kind, row.path)
            yield from (UnmatchedLine(pair.target, side, name, None, *rest) for name in row[at])
