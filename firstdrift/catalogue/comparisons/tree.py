"""The tree of a slice pair and the pairs of its tensors, a window at a time.

`slice_pair` is always the id of a `SlicePair`; `index` is the position
of a row in pre-order, or of a pair in the plan. Each question is one query that an index answers,
whatever the size of the tree.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from operator import itemgetter
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, SQLColumnExpression, Text, and_, case, func, or_, select, type_coerce
from sqlalchemy.orm import Session, aliased

from firstdrift.catalogue.dumps.records import tensor_record
from firstdrift.catalogue.lookup import record_of, required
from firstdrift.catalogue.tables import (
    BELOW,
    MeasurementEntry,
    NodeEntry,
    PairEntry,
    RowEntry,
    SlicePairEntry,
    TensorEntry,
)
from firstdrift.matching.plan import NodeMatch, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.verdict.judgement import PairJudgement, RollUp, RowJudgement, Verdict
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message


class Row(Struct, frozen=True):
    """A row of the tree: where it is, how its nodes were matched, and what is said of it."""

    tree: TreeRow
    match: NodeMatch | None
    judgement: RowJudgement

    @property
    def has_children(self) -> bool:
        """True if there are rows below it."""
        return self.tree.last > self.tree.index


class Pair(Struct, frozen=True):
    """A pair of tensors: what is compared, its numbers, and its verdict.

    Attributes:
        index: position in the plan.
        row: index of the row it belongs to.
    """

    index: int
    row: int
    plan: TensorPair
    measurement: Measurement
    judgement: PairJudgement


def get_row(session: Session, slice_pair: int, index: int) -> Row:
    """Look up a row."""
    found = _rows(session, slice_pair, RowEntry.index == index)
    return required(next(iter(found), None), Message.of("catalogue.no_row", row=index))


def path_to_row(session: Session, slice_pair: int, index: int) -> tuple[Row, ...]:
    """List the rows that contain a row, from the top down, without the row itself."""
    here = (RowEntry.slice_pair_id == slice_pair, RowEntry.index == index)
    above = select(RowEntry.parent).where(*here).cte("above", recursive=True)
    further = select(RowEntry.parent).where(
        RowEntry.slice_pair_id == slice_pair, RowEntry.index == above.c.parent
    )
    above = above.union_all(further)
    return _rows(session, slice_pair, RowEntry.index.in_(select(above.c.parent)))


def rows_at(session: Session, slice_pair: int, indexes: Collection[int]) -> tuple[Row, ...]:
    """Look up rows by their indexes, in the order of the tree."""
    return _rows(session, slice_pair, RowEntry.index.in_(indexes))


def rows_of_nodes(session: Session, slice_pair: int, side: str, names: Collection[str]) -> dict[str, int]:
    """Say in which rows some nodes of a side ("golden", "target") are; those in none are left out."""
    columns, wanted = RowEntry.__table__.c, frozenset(names)
    # As text, several names are ["a","b"]; of those there are few.
    several = type_coerce(columns[side], Text).contains('","')
    among = or_(columns[side].in_([(name,) for name in wanted]), several)
    found = session.execute(
        select(columns.index, columns[side]).where(columns.slice_pair_id == slice_pair, among)
    )
    return {name: index for index, known in found for name in known if name in wanted}


def pairs_of_row(session: Session, slice_pair: int, row: int) -> tuple[Pair, ...]:
    """List the pairs of tensors of a row, in the order of the plan."""
    # Asked for by row, SQLite goes through all pairs of the slice: it does not know how few a row has.
    here = (PairEntry.slice_pair_id == slice_pair, PairEntry.row == row)
    indexes = select(PairEntry.index).where(*here)
    query = _select_pairs(slice_pair).where(PairEntry.index.in_(indexes)).order_by(PairEntry.index)
    return tuple(map(_pair, session.execute(query)))


def all_rows(session: Session, slice_pair: int) -> Iterator[Row]:
    """Go through all rows in the order of the tree, as they come."""
    query = _select_rows(slice_pair).order_by(RowEntry.index).execution_options(yield_per=1000)
    return map(_row, session.execute(query))


def all_pairs(session: Session, slice_pair: int) -> Iterator[Pair]:
    """Go through all pairs in the order of the plan, as they come."""
    query = _select_pairs(slice_pair).order_by(PairEntry.index).execution_options(yield_per=1000)
    return map(_pair, session.execute(query))


def bad_rows(session: Session, comparison_id: int, limit: int) -> tuple[tuple[int, Row], ...]:
    """List the worst rows of a comparison with a verdict of warning or error, each with its slice pair.

    Those where an error begins come first, in the order of execution, then the others
    by their output error.
    """
    found = session.execute(
        select(*RowEntry.__table__.c)
        .join(SlicePairEntry, SlicePairEntry.id == RowEntry.slice_pair_id)
        .where(SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete, RowEntry.is_bad)
        .order_by(
            RowEntry.is_origin.desc(),
            case((RowEntry.is_origin, SlicePairEntry.position)),
            case((RowEntry.is_origin, RowEntry.order)),
            RowEntry.output_error.is_(None),
            RowEntry.output_error.desc(),
            SlicePairEntry.position,
            RowEntry.index,
        )
        .limit(limit)
    )
    return tuple((row.slice_pair_id, _row(row)) for row in found)


def count_bad_rows(session: Session, comparison_id: int) -> int:
    """Say how many rows of a comparison have a verdict of warning or error."""
    counted = (
        select(func.count())
        .select_from(RowEntry)
        .join(SlicePairEntry, SlicePairEntry.id == RowEntry.slice_pair_id)
        .where(SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete, RowEntry.is_bad)
    )
    return session.scalar(counted) or 0


def incomparable_pairs(session: Session, slice_pair: int, *, limit: int) -> tuple[Pair, ...]:
    """List the first pairs that could not be compared, in the order of the plan."""
    which = _select_pairs(slice_pair).where(PairEntry.verdict == Verdict.INCOMPARABLE)
    return tuple(map(_pair, session.execute(which.order_by(PairEntry.index).limit(limit))))


def kinds_of_rows(
    session: Session, slice_pair: int, rows: Collection[int]
) -> dict[int, frozenset[MeasurementKind]]:
    """Say what the numbers of rows were computed from; rows without pairs of tensors are left out."""
    # A measurement is stored as text that begins with its kind: {"kind":"statistics",...
    beginning = func.substr(type_coerce(MeasurementEntry.measurement, Text), 1, _LONGEST_BEGINNING)
    found = session.execute(
        select(PairEntry.row, beginning)
        .join(MeasurementEntry, MeasurementEntry.id == PairEntry.measurement_id)
        .where(PairEntry.slice_pair_id == slice_pair, PairEntry.row.in_(rows))
        .distinct()
    )
    kinds: defaultdict[int, set[MeasurementKind]] = defaultdict(set)
    for row, text in found:
        kinds[row].add(MeasurementKind(text.split('"')[3]))
    return {row: frozenset(known) for row, known in kinds.items()}


_LONGEST_BEGINNING = len('{"kind":""') + max(map(len, MeasurementKind))


def _select_rows(slice_pair: int) -> Select[*tuple[Any, ...]]:
    return select(*RowEntry.__table__.c).where(RowEntry.slice_pair_id == slice_pair)


def _rows(session: Session, slice_pair: int, condition: SQLColumnExpression[bool]) -> tuple[Row, ...]:
    query = _select_rows(slice_pair).where(condition).order_by(RowEntry.index)
    return tuple(map(_row, session.execute(query)))


_OF_TREE_ROW = itemgetter(*map(RowEntry.__table__.c.keys().index, TreeRow.__struct_fields__))
"""By position, which is quicker than by name: thousands of rows are read for one page of a large tree."""


def _row(found: Any) -> Row:  # noqa: ANN401 (the columns of a row)
    tree = TreeRow(*_OF_TREE_ROW(found))
    match = found.origin and NodeMatch(
        found.golden, found.target, found.origin, found.score, found.doubtful, found.match_reasons
    )
    below = RollUp(**{name: getattr(found, column) for name, column in BELOW.items()})
    return Row(tree, match, record_of(RowJudgement, found, below=below))


def _select_pairs(slice_pair: int) -> Select[*tuple[Any, ...]]:
    return _all_pairs().where(PairEntry.slice_pair_id == slice_pair)


@cache  # putting a statement together takes longer than running it
def _all_pairs() -> Select[*tuple[Any, ...]]:
    golden, target = aliased(TensorEntry), aliased(TensorEntry)
    golden_node, target_node = aliased(NodeEntry), aliased(NodeEntry)
    pair, both = PairEntry, SlicePairEntry
    return (
        select(
            pair,
            MeasurementEntry.measurement,
            golden_node.name,
            target_node.name,
            golden,
            target,
            RowEntry.match,
        )
        .join(both, both.id == pair.slice_pair_id)
        .join(MeasurementEntry, MeasurementEntry.id == pair.measurement_id)
        .join(RowEntry, and_(RowEntry.slice_pair_id == both.id, RowEntry.index == pair.row))
        .join(
            golden_node, and_(golden_node.slice_id == both.golden_id, golden_node.order == pair.golden_order)
        )
        .join(
            target_node, and_(target_node.slice_id == both.target_id, target_node.order == pair.target_order)
        )
        .join(golden, _is_tensor(golden, both.golden_id, pair.golden_order, pair.golden_position))
        .join(target, _is_tensor(target, both.target_id, pair.target_order, pair.target_position))
    )


def _is_tensor(
    tensor: Any,  # noqa: ANN401 (an alias of TensorEntry)
    slice_id: SQLColumnExpression[int],
    node: SQLColumnExpression[int],
    position: SQLColumnExpression[int],
) -> SQLColumnExpression[bool]:
    return and_(tensor.slice_id == slice_id, tensor.node == node, tensor.position == position)


def _pair(found: Any) -> Pair:  # noqa: ANN401 (the columns of a pair)
    entry, measurement, golden_node, target_node, golden, target, match = found
    plan = entry.joined or TensorPair(
        match=match,
        golden_node=golden_node,
        target_node=target_node,
        golden=tensor_record(golden),
        target=tensor_record(target),
        transform=entry.transform,
        incomparable=entry.incomparable,
    )
    judgement = PairJudgement(entry.verdict, entry.error, entry.reasons)
    return Pair(entry.index, entry.row, plan, measurement, judgement)
