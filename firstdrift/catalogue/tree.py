"""The tree of a slice pair and the pairs of its tensors, a window at a time.

`slice_pair` is always the id of a `firstdrift.catalogue.comparisons.SlicePair`; `index` is the position
of a row in pre-order, or of a pair in the plan. Each question is one query that an index answers,
whatever the size of the tree; only a search reads through the names of one slice.
"""

import json
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, SQLColumnExpression, Text, and_, func, or_, select, type_coerce
from sqlalchemy.orm import Session, aliased

from firstdrift.catalogue.columns import storable
from firstdrift.catalogue.dumps import tensor_record
from firstdrift.catalogue.tables import (
    MeasurementEntry,
    NodeEntry,
    PairEntry,
    RowEntry,
    SlicePairEntry,
    TensorEntry,
)
from firstdrift.dumps.dump import Direction, NodeKind
from firstdrift.errors import NotInCatalogueError
from firstdrift.matching.plan import NodeMatch, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.verdict.judgement import NodeClass, PairJudgement, RollUp, RowJudgement, Verdict
from firstdrift.verdict.tree import TreeRow


class Which(StrEnum):
    """Rows to jump to."""

    BAD = "bad"
    ORIGIN = "origin"
    UNMATCHED = "unmatched"


class SortBy(StrEnum):
    """Orders of a flat list of rows."""

    TREE = "tree"
    EXECUTION = "execution"
    INPUT_ERROR = "input_error"
    PARAMETER_ERROR = "parameter_error"
    OUTPUT_ERROR = "output_error"
    AMPLIFICATION = "amplification"


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


class Filter(Struct, frozen=True):
    """Which rows a flat list holds; an empty field lets all through.

    Attributes:
        text: part of a name or label, upper or lower case.
        doubtful: only matches that a person should confirm.
        below: only rows below the row with this index, and that row.
    """

    verdicts: frozenset[Verdict] = frozenset()
    classes: frozenset[NodeClass] = frozenset()
    kinds: frozenset[NodeKind] = frozenset()
    directions: frozenset[Direction] = frozenset()
    micro_step: int | None = None
    text: str = ""
    doubtful: bool = False
    below: int | None = None


class Window(Struct, frozen=True):
    """A part of a longer list of rows: those from `offset` on, of `total`."""

    rows: tuple[Row, ...]
    offset: int
    total: int


class Point(Struct, frozen=True):
    """A row as a point of a chart: input error against output error."""

    index: int
    order: int
    label: str
    kind: NodeKind
    verdict: Verdict
    node_class: NodeClass
    input_error: float | None
    output_error: float | None


class LayerError(Struct, frozen=True):
    """A cell of the map of slices and layers: the output error of a layer in a slice."""

    position: int
    path: str
    index: int
    verdict: Verdict
    output_error: float | None


def get_row(session: Session, slice_pair: int, index: int) -> Row:
    """Look up a row.

    Raises:
        NotInCatalogueError: there is none.
    """
    found = _rows(session, slice_pair, RowEntry.index == index)
    if not found:
        raise NotInCatalogueError(f"there is no row {index}")
    return found[0]


def find_row(
    session: Session, slice_pair: int, *, golden: str | None = None, target: str | None = None
) -> Row | None:
    """Look up the row of a node by its name on one side; None if that side has no such node."""
    side, name = (RowEntry.golden, golden) if golden is not None else (RowEntry.target, target or "")
    in_list = type_coerce(side, Text).contains(json.dumps(name), autoescape=True)
    candidates = _rows(session, slice_pair, in_list)
    return next((row for row in candidates if name in (row.tree.golden if golden else row.tree.target)), None)


def children_of(
    session: Session, slice_pair: int, parent: int | None, *, offset: int = 0, limit: int | None = None
) -> tuple[Row, ...]:
    """List the rows right below a row, or at the top (parent None), in the order of the tree."""
    return _rows(session, slice_pair, _below(parent), offset=offset, limit=limit)


def count_children(session: Session, slice_pair: int, parent: int | None) -> int:
    """Count the rows right below a row, or at the top."""
    return _count(session, slice_pair, _below(parent))


def path_to_row(session: Session, slice_pair: int, index: int) -> tuple[Row, ...]:
    """List the rows that contain a row, from the top down, without the row itself."""
    here = (RowEntry.slice_pair_id == slice_pair, RowEntry.index == index)
    above = select(RowEntry.parent).where(*here).cte("above", recursive=True)
    further = select(RowEntry.parent).where(
        RowEntry.slice_pair_id == slice_pair, RowEntry.index == above.c.parent
    )
    above = above.union_all(further)
    return _rows(session, slice_pair, RowEntry.index.in_(select(above.c.parent)))


def visible_rows(
    session: Session, slice_pair: int, open_rows: Collection[int], *, offset: int = 0, limit: int = 200
) -> Window:
    """List what a tree shows whose rows `open_rows` are opened: their children, and the top rows.

    An open row inside a closed one shows nothing.
    """
    parents = dict(
        session.execute(
            select(RowEntry.index, RowEntry.parent).where(
                RowEntry.slice_pair_id == slice_pair, RowEntry.index.in_(open_rows)
            )
        ).all()
    )
    shown: set[int] = set()
    for index in sorted(parents):  # parents come before their children
        if parents[index] is None or parents[index] in shown:
            shown.add(index)
    visible = or_(RowEntry.parent.is_(None), RowEntry.parent.in_(shown))
    rows = _rows(session, slice_pair, visible, offset=offset, limit=limit)
    return Window(rows, offset, _count(session, slice_pair, visible))


def list_rows(
    session: Session,
    slice_pair: int,
    only: Filter,
    *,
    sort_by: SortBy = SortBy.EXECUTION,
    descending: bool = False,
    offset: int = 0,
    limit: int | None = 200,
) -> Window:
    """List the rows that a filter lets through, flat; rows without the number sorted by come last."""
    conditions = tuple(_conditions(only))
    column = _SORT_COLUMNS[sort_by]
    order = (column.desc() if descending else column.asc()).nulls_last()
    rows = _rows(session, slice_pair, *conditions, order=order, offset=offset, limit=limit)
    return Window(rows, offset, _count(session, slice_pair, *conditions))


def rows_at(session: Session, slice_pair: int, indexes: Collection[int]) -> tuple[Row, ...]:
    """Look up rows by their indexes, in the order of the tree."""
    return _rows(session, slice_pair, RowEntry.index.in_(indexes))


def search_rows(session: Session, slice_pair: int, text: str, *, limit: int = 50) -> tuple[Row, ...]:
    """List the first rows, in the order of the tree, whose names or label contain a text."""
    return _rows(session, slice_pair, *_conditions(Filter(text=text)), limit=limit)


def next_row(
    session: Session, slice_pair: int, after: int | None, which: Which, *, backwards: bool = False
) -> Row | None:
    """Find the next row of a kind after a row (by index) in execution order, or the one before it.

    Without `after` it is the first one, or the last one; None if there is none.
    """
    conditions: list[SQLColumnExpression[bool]] = [_WHICH[which]]
    if after is not None:
        here = (RowEntry.slice_pair_id == slice_pair, RowEntry.index == after)
        order = select(RowEntry.order).where(*here).scalar_subquery()
        conditions.append(RowEntry.order < order if backwards else RowEntry.order > order)
    direction = RowEntry.order.desc() if backwards else RowEntry.order.asc()
    return next(iter(_rows(session, slice_pair, *conditions, order=direction, limit=1)), None)


def all_rows(session: Session, slice_pair: int) -> Iterator[Row]:
    """Go through all rows in the order of the tree, without holding them all."""
    found = session.execute(
        _select_rows(slice_pair).order_by(RowEntry.index).execution_options(yield_per=1000)
    )
    return map(_row, found)


def pairs_of_row(session: Session, slice_pair: int, row: int) -> tuple[Pair, ...]:
    """List the pairs of tensors of a row, in the order of the plan."""
    query = _select_pairs(slice_pair).where(PairEntry.row == row).order_by(PairEntry.index)
    return tuple(map(_pair, session.execute(query)))


def get_pair(session: Session, slice_pair: int, index: int) -> Pair:
    """Look up a pair of tensors by its position in the plan.

    Raises:
        NotInCatalogueError: there is none.
    """
    found = session.execute(_select_pairs(slice_pair).where(PairEntry.index == index)).one_or_none()
    if found is None:
        raise NotInCatalogueError(f"there is no pair {index}")
    return _pair(found)


def incomparable_pairs(session: Session, slice_pair: int, *, limit: int) -> tuple[Pair, ...]:
    """List the first pairs that could not be compared, in the order of the plan."""
    which = _select_pairs(slice_pair).where(PairEntry.verdict == Verdict.INCOMPARABLE)
    return tuple(map(_pair, session.execute(which.order_by(PairEntry.index).limit(limit))))


def all_pairs(session: Session, slice_pair: int) -> Iterator[Pair]:
    """Go through all pairs in the order of the plan, without holding them all."""
    query = _select_pairs(slice_pair).order_by(PairEntry.index).execution_options(yield_per=1000)
    return map(_pair, session.execute(query))


def scatter_points(session: Session, slice_pair: int) -> tuple[Point, ...]:
    """List the rows of which an output error is known, in execution order, as points of a chart."""
    columns = [getattr(RowEntry, name) for name in Point.__struct_fields__]
    query = (
        select(*columns)
        .where(RowEntry.slice_pair_id == slice_pair, RowEntry.output_error.is_not(None))
        .order_by(RowEntry.order)
    )
    return tuple(Point(*found) for found in session.execute(query))


def layer_errors(session: Session, comparison_id: int) -> tuple[LayerError, ...]:
    """List the output errors of the layers of all slices of a comparison, as cells of a map."""
    query = (
        select(
            SlicePairEntry.position,
            func.coalesce(RowEntry.path, ""),
            RowEntry.index,
            RowEntry.verdict,
            RowEntry.output_error,
        )
        .join(RowEntry, RowEntry.slice_pair_id == SlicePairEntry.id)
        .where(SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete, RowEntry.is_layer)
        .order_by(SlicePairEntry.position, RowEntry.order)
    )
    return tuple(LayerError(*found) for found in session.execute(query))


_SORT_COLUMNS: dict[SortBy, SQLColumnExpression[Any]] = {
    SortBy.TREE: RowEntry.index,
    SortBy.EXECUTION: RowEntry.order,
    SortBy.INPUT_ERROR: RowEntry.input_error,
    SortBy.PARAMETER_ERROR: RowEntry.parameter_error,
    SortBy.OUTPUT_ERROR: RowEntry.output_error,
    SortBy.AMPLIFICATION: RowEntry.amplification,
}
_WHICH: dict[Which, SQLColumnExpression[bool]] = {
    Which.BAD: RowEntry.is_bad,
    Which.ORIGIN: RowEntry.is_origin,
    Which.UNMATCHED: RowEntry.is_unmatched,
}


def _below(parent: int | None) -> SQLColumnExpression[bool]:
    return RowEntry.parent.is_(None) if parent is None else RowEntry.parent == parent


def _conditions(only: Filter) -> Iterator[SQLColumnExpression[bool]]:
    chosen: list[tuple[SQLColumnExpression[Any], frozenset[Any]]] = [
        (RowEntry.verdict, only.verdicts),
        (RowEntry.node_class, only.classes),
        (RowEntry.kind, only.kinds),
        (RowEntry.direction, only.directions),
    ]
    yield from (column.in_(values) for column, values in chosen if values)
    if only.micro_step is not None:
        yield RowEntry.micro_step == only.micro_step
    if only.text:
        yield RowEntry.search.contains(storable(only.text.lower()), autoescape=True)
    if only.doubtful:
        yield RowEntry.doubtful
    if only.below is not None:
        above = aliased(RowEntry)
        last = (
            select(above.last)
            .where(above.slice_pair_id == RowEntry.slice_pair_id, above.index == only.below)
            .scalar_subquery()
        )
        yield and_(RowEntry.index >= only.below, RowEntry.index <= last)


def _select_rows(slice_pair: int) -> Select[*tuple[Any, ...]]:
    return select(*RowEntry.__table__.c).where(RowEntry.slice_pair_id == slice_pair)


def _rows(
    session: Session,
    slice_pair: int,
    *conditions: SQLColumnExpression[bool],
    order: SQLColumnExpression[Any] | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> tuple[Row, ...]:
    query = _select_rows(slice_pair).where(*conditions).order_by(RowEntry.index if order is None else order)
    return tuple(map(_row, session.execute(query.offset(offset).limit(limit))))


def _count(session: Session, slice_pair: int, *conditions: SQLColumnExpression[bool]) -> int:
    counted = select(func.count()).where(RowEntry.slice_pair_id == slice_pair, *conditions)
    return session.scalar(counted) or 0


def _row(found: Any) -> Row:  # noqa: ANN401 (the columns of a row)
    tree = TreeRow(**{name: getattr(found, name) for name in TreeRow.__struct_fields__})
    match = found.origin and NodeMatch(
        found.golden, found.target, found.origin, found.score, found.doubtful, found.match_reasons
    )
    below = RollUp(
        error=found.errors_below,
        warning=found.warnings_below,
        incomparable=found.incomparable_below,
        unmatched=found.unmatched_below,
        origins=found.origins_below,
        worst=found.worst_below,
    )
    judgement = RowJudgement(
        verdict=found.verdict,
        node_class=found.node_class,
        reasons=found.reasons,
        input_error=found.input_error,
        parameter_error=found.parameter_error,
        output_error=found.output_error,
        amplification=found.amplification,
        worst_pair=found.worst_pair,
        below=below,
    )
    return Row(tree, match, judgement)


def _select_pairs(slice_pair: int) -> Select[*tuple[Any, ...]]:
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
        .where(pair.slice_pair_id == slice_pair)
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
