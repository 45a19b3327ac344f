"""A dump without a partner: the tree of a slice, what is known of its tensors, and how that develops.

Statistics are those that were recorded, or those that a job has computed from the values.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.bulk import insert_many
from firstdrift.catalogue.comparisons.outline import (
    CLASSES,
    DIRECTIONS,
    KINDS,
    LEVELS,
    VERDICTS,
    Outline,
    codes_of,
    parents_of,
)
from firstdrift.catalogue.dumps.records import get_slice, load_bare_nodes, tensor_record
from firstdrift.catalogue.tables import ComputedEntry, NodeEntry, SliceEntry, TensorEntry, computed_of
from firstdrift.comparison.single_dump import TensorView, view_recorded
from firstdrift.groups import firsts, seconds
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import TensorRecord
from firstdrift.verdict.judgement import NodeClass, Overflow, Verdict
from firstdrift.verdict.overflow_single import find_overflow_alone, has_nonfinite
from firstdrift.verdict.tree import TreeRow, rows_of_nodes

Place = tuple[int, int]
"""Where a tensor is in its slice: order of the node, and place among its tensors."""


class DumpTree(Struct, frozen=True, eq=False):
    """The nodes of a slice as a tree, and what overflows.

    Attributes:
        outline: one element for each row. Bad are rows that overflow, origins those that do so though
            what went in is finite; the class is non-finite, clean, or unmatched where nothing is known.
        rows: likewise; each has its node as target.
        search: names and labels in lower case.
        orders: order of the node of each row.
        overflow: nodes with non-finite values, in execution order.
        known: number of tensors of which statistics are known.
        unknown: number of tensors with values of which nobody has computed them.
        unreadable: number of tensors whose values cannot be read.
    """

    outline: Outline
    rows: tuple[TreeRow, ...]
    search: tuple[str, ...]
    orders: tuple[int, ...]
    overflow: tuple[Overflow, ...]
    known: int
    unknown: int
    unreadable: int


class TrendPoint(Struct, frozen=True):
    """A tensor in one of the slices of a dump.

    Attributes:
        place: where it is in the slice; None if the slice has no such tensor, or was not read yet.
        view: what is known of it; None if its values would have to be read, or there is none.
        record: the tensor; None if there is none.
    """

    position: int
    coordinates: Coordinates
    slice_id: int
    place: Place | None = None
    record: TensorRecord | None = None
    view: TensorView | None = None


def add_computed(session: Session, slice_id: int, found: Mapping[Place, TensorView]) -> None:
    """Keep statistics that were computed; those that are there already stay."""
    insert_many(
        session,
        ComputedEntry,
        {
            "node": firsts(found),
            "position": seconds(found),
            "summary": [view.values for view in found.values()],
            "problem": [view.problem for view in found.values()],
        },
        on_conflict="ON CONFLICT DO NOTHING",
        slice_id=slice_id,
    )


def computed_of_slice(session: Session, slice_id: int) -> frozenset[Place]:
    """Say for which tensors of a slice the values were read."""
    columns = ComputedEntry.__table__.c
    found = session.execute(select(columns.node, columns.position).where(columns.slice_id == slice_id))
    return frozenset((node, position) for node, position in found)


def tensors_of_nodes(
    session: Session, slice_id: int, nodes: Collection[int] | None = None
) -> dict[int, list[TensorView | TensorRecord]]:
    """List the tensors of nodes (of all if None) with what is known of them.

    Of tensors whose values would have to be read there is the record alone.
    """
    columns, computed = TensorEntry.__table__.c, ComputedEntry.__table__.c
    here = [columns.slice_id == slice_id] + ([] if nodes is None else [columns.node.in_(nodes)])
    query = (
        select(*columns, computed.summary, computed.problem.label("unreadable"))
        .outerjoin_from(TensorEntry.__table__, ComputedEntry.__table__, computed_of(columns))
        .where(*here)
        .order_by(columns.node, columns.position)
    )
    found: dict[int, list[TensorView | TensorRecord]] = {}
    for row in session.execute(query):
        record = tensor_record(row)
        found.setdefault(row.node, []).append(_view(record, row) or record)
    return found


def load_dump_tree(session: Session, slice_id: int) -> DumpTree:
    """Lay an indexed slice out as a tree."""
    nodes = load_bare_nodes(session, slice_id)
    known = _knowledge(session, slice_id)
    overflow = _overflow(session, slice_id, nodes, known)
    rows = rows_of_nodes(nodes)
    return DumpTree(
        outline=_outline(rows, [nodes[row.order] for row in rows], known, overflow),
        rows=rows,
        search=tuple(f"{row.target[0]}\n{row.label}".lower() for row in rows),
        orders=tuple(nodes[row.order].order for row in rows),
        overflow=overflow,
        known=known.known,
        unknown=known.unknown,
        unreadable=known.unreadable,
    )


class _Knowledge(Struct, frozen=True):
    """What is known of the tensors of a slice; nodes are told by their order.

    Attributes:
        own: nodes that have tensors or arguments.
        valued: nodes of which statistics are known.
        non_finite: nodes with statistics that are not finite, masks included.
        known: number of tensors of which statistics are known; likewise unknown, unreadable.
    """

    own: frozenset[int]
    valued: frozenset[int]
    non_finite: frozenset[int]
    known: int
    unknown: int
    unreadable: int

    def class_of(self, order: int) -> NodeClass:
        """Say by what is known of its values what a node is called."""
        if order in self.non_finite:
            return NodeClass.NON_FINITE
        return NodeClass.CLEAN if order in self.valued else NodeClass.UNMATCHED


def _knowledge(session: Session, slice_id: int) -> _Knowledge:
    """Look through the tensors of a slice without making a record of each."""
    columns, computed = TensorEntry.__table__.c, ComputedEntry.__table__.c
    found = session.execute(
        select(
            columns.node,
            columns.scalar.is_(None) & columns.problem.is_(None),
            columns.problem.is_not(None),
            columns.has_statistics,
            columns.file.is_not(None),
            columns.maximum,
            columns.minimum,
            columns.mean,
            columns.norm,
            computed.summary,
            computed.problem,
        )
        .outerjoin_from(TensorEntry.__table__, ComputedEntry.__table__, computed_of(columns))
        .where(columns.slice_id == slice_id)
    )
    own, valued, non_finite = set(), set(), set()
    known = unknown = unreadable = 0
    for node, is_sound, is_damaged, has_statistics, has_values, *four, computed_ones, problem in found:
        own.add(node)
        if not is_sound:
            unreadable += is_damaged
            continue
        summary = SideSummary(None, *four) if has_statistics else computed_ones
        if summary is not None:
            known += 1
            valued.add(node)
            if node not in non_finite and has_nonfinite(summary):
                non_finite.add(node)
        elif problem is not None:
            unreadable += 1
        else:
            unknown += has_values
    return _Knowledge(frozenset(own), frozenset(valued), frozenset(non_finite), known, unknown, unreadable)


def _overflow(
    session: Session, slice_id: int, nodes: Sequence[Node], known: _Knowledge
) -> tuple[Overflow, ...]:
    """Find what overflows: nodes of which all values are finite have no say in it."""
    if not known.non_finite:
        return ()
    where = get_slice(session, slice_id).coordinates
    tensors = tensors_of_nodes(session, slice_id, known.non_finite if len(known.non_finite) < _MANY else None)
    values = []
    for node in nodes:
        if node.order in known.non_finite:
            views = [
                each if isinstance(each, TensorView) else TensorView(each) for each in tensors[node.order]
            ]
            whole = replace(node, tensors=tuple(view.record for view in views))
            values.append((whole, [view.values for view in views]))
    return tuple(find_overflow_alone(values, where))


_MANY = 5000
"""So many nodes are not asked for one by one."""


def trend(session: Session, dump_id: int, node: str, role: str, key: str) -> tuple[TrendPoint, ...]:
    """Find a tensor in every slice of a dump, in the order of execution, but for those merged from ranks."""
    tensor, computed = TensorEntry.__table__.c, ComputedEntry.__table__.c
    here = (SliceEntry.dump_id == dump_id, SliceEntry.merged.is_(None))
    slices = session.scalars(select(SliceEntry).where(*here).order_by(SliceEntry.position)).all()
    found = session.execute(
        select(*tensor, computed.summary, computed.problem.label("unreadable"))
        .select_from(SliceEntry)
        .join(NodeEntry, and_(NodeEntry.slice_id == SliceEntry.id, NodeEntry.name == node))
        .join(TensorEntry, and_(TensorEntry.slice_id == SliceEntry.id, TensorEntry.node == NodeEntry.order))
        .outerjoin(ComputedEntry, computed_of(tensor))
        .where(*here, tensor.role == role, tensor.key == key)
        .order_by(tensor.position.desc())
    )
    in_slice = {row.slice_id: row for row in found}
    return tuple(_trend_point(entry, in_slice.get(entry.id)) for entry in slices)


def _trend_point(entry: SliceEntry, row: Any) -> TrendPoint:  # noqa: ANN401 (columns of a query)
    point = TrendPoint(entry.position, entry.coordinates, entry.id)
    if row is None:
        return point
    record = tensor_record(row)
    return replace(point, place=(row.node, row.position), record=record, view=_view(record, row))


def _view(record: TensorRecord, row: Any) -> TensorView | None:  # noqa: ANN401 (columns of a query)
    """Say what is known of a tensor; None if its values would have to be read."""
    known = view_recorded(record)
    summary, problem = row.summary, row.unreadable
    if known is not None or (summary is None and problem is None):
        return known
    return TensorView(record, summary, "data" if summary is not None else "", problem)


def _outline(
    rows: Sequence[TreeRow], nodes: Sequence[Node], known: _Knowledge, overflow: Sequence[Overflow]
) -> Outline:
    levels = {found.node: LEVELS.index(found.level) for found in overflow}
    codes = np.array([levels.get(node.name, -1) for node in nodes], np.int8)
    worst = len(LEVELS) - 1
    verdict = np.full(len(rows), VERDICTS.index(Verdict.PASS), np.int8)
    verdict[codes >= 0] = VERDICTS.index(Verdict.WARNING)
    verdict[codes == worst] = VERDICTS.index(Verdict.ERROR)
    unknown = np.full(len(rows), np.nan)
    return Outline(
        parent=parents_of(row.parent for row in rows),
        last=np.array([row.last for row in rows], np.int32),
        order=np.array([row.order for row in rows], np.int32),
        verdict=verdict,
        node_class=codes_of((known.class_of(node.order) for node in nodes), CLASSES),
        kind=codes_of((row.kind for row in rows), KINDS),
        direction=codes_of((row.direction for row in rows), DIRECTIONS),
        bad=codes >= 0,
        origin=codes == worst,
        unmatched=np.zeros(len(rows), np.bool_),
        output_error=unknown,
        amplification=unknown,
        overflow=codes,
        own=np.array([node.order in known.own for node in nodes], np.bool_),
    )
