"""A dump without a partner: the tree of a slice, what is known of its tensors, and how that develops.

Statistics are those that were recorded, or those that a job has computed from the values.
"""

from collections.abc import Collection, Mapping

import numpy as np
from msgspec import Struct
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.bulk import insert_many
from firstdrift.catalogue.dumps import load_slice, tensor_record
from firstdrift.catalogue.outline import CLASSES, DIRECTIONS, KINDS, LEVELS, VERDICTS, Flags, Outline
from firstdrift.catalogue.tables import (
    ComputedEntry,
    NodeEntry,
    SliceEntry,
    TensorEntry,
)
from firstdrift.comparison.one_dump import TensorView, view_recorded
from firstdrift.dumps.dump import Coordinates, Node
from firstdrift.tensors import TensorRecord
from firstdrift.verdict.judgement import NodeClass, Overflow, Verdict
from firstdrift.verdict.overflow_alone import find_overflow_alone, has_nonfinite
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
            "node": [node for node, _ in found],
            "position": [position for _, position in found],
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
    same = and_(
        computed.slice_id == columns.slice_id,
        computed.node == columns.node,
        computed.position == columns.position,
    )
    query = (
        select(*columns, computed.summary, computed.problem.label("unreadable"))
        .outerjoin_from(TensorEntry.__table__, ComputedEntry.__table__, same)
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
    read = load_slice(session, slice_id)
    tensors = tensors_of_nodes(session, slice_id)
    views = {node.order: [_known(each) for each in tensors.get(node.order, [])] for node in read.nodes}
    values = [
        (node, [None if view is None else view.values for view in views[node.order]]) for node in read.nodes
    ]
    overflow = tuple(find_overflow_alone(values, read.coordinates))
    rows = rows_of_nodes(read.nodes)
    every = [view for known in views.values() for view in known]
    return DumpTree(
        outline=_outline(rows, [read.nodes[row.order] for row in rows], views, overflow),
        rows=rows,
        search=tuple(f"{row.target[0]}\n{row.label}".lower() for row in rows),
        orders=tuple(read.nodes[row.order].order for row in rows),
        overflow=overflow,
        known=sum(view is not None and view.values is not None for view in every),
        unknown=sum(view is None for view in every),
        unreadable=sum(view is not None and view.problem is not None for view in every),
    )


def trend(session: Session, dump_id: int, node: str, role: str, key: str) -> tuple[TrendPoint, ...]:
    """Find a tensor in every slice of a dump, in the order of execution, but for those merged from ranks."""
    tensor, computed = TensorEntry.__table__.c, ComputedEntry.__table__.c
    slices = session.scalars(
        select(SliceEntry)
        .where(SliceEntry.dump_id == dump_id, SliceEntry.merged.is_(None))
        .order_by(SliceEntry.position)
    ).all()
    found = session.execute(
        select(*tensor, computed.summary, computed.problem.label("unreadable"))
        .select_from(SliceEntry)
        .join(NodeEntry, and_(NodeEntry.slice_id == SliceEntry.id, NodeEntry.name == node))
        .join(TensorEntry, and_(TensorEntry.slice_id == SliceEntry.id, TensorEntry.node == NodeEntry.order))
        .outerjoin(
            ComputedEntry,
            and_(
                computed.slice_id == tensor.slice_id,
                computed.node == tensor.node,
                computed.position == tensor.position,
            ),
        )
        .where(
            SliceEntry.dump_id == dump_id, SliceEntry.merged.is_(None), tensor.role == role, tensor.key == key
        )
        .order_by(tensor.position.desc())
    )
    in_slice = {row.slice_id: row for row in found}
    points = []
    for entry in slices:
        where = Coordinates(entry.step, entry.rank, entry.token, entry.micro_step)
        row = in_slice.get(entry.id)
        if row is None:
            points.append(TrendPoint(entry.position, where, entry.id))
            continue
        record = tensor_record(row)
        place = (row.node, row.position)
        points.append(TrendPoint(entry.position, where, entry.id, place, record, _view(record, row)))
    return tuple(points)


def _view(record: TensorRecord, row: object) -> TensorView | None:
    """Say what is known of a tensor; None if its values would have to be read."""
    known = view_recorded(record)
    summary, problem = row.summary, row.unreadable  # type: ignore[attr-defined] # columns of a query
    if known is not None or (summary is None and problem is None):
        return known
    return TensorView(record, summary, "data" if summary is not None else "", problem)


def _known(tensor: TensorView | TensorRecord) -> TensorView | None:
    return tensor if isinstance(tensor, TensorView) else None


def _outline(
    rows: tuple[TreeRow, ...],
    nodes: list[Node],
    views: Mapping[int, list[TensorView | None]],
    overflow: tuple[Overflow, ...],
) -> Outline:
    levels = {found.node: LEVELS.index(found.level) for found in overflow}
    codes = np.array([levels.get(node.name, -1) for node in nodes], np.int8)
    known = [[view.values for view in views[node.order] if view and view.values] for node in nodes]
    classes = [
        NodeClass.UNMATCHED
        if not values
        else NodeClass.NON_FINITE
        if any(map(has_nonfinite, values))
        else NodeClass.CLEAN
        for values in known
    ]
    verdicts = [
        Verdict.ERROR if code == len(LEVELS) - 1 else Verdict.WARNING if code >= 0 else Verdict.PASS
        for code in codes
    ]
    none: Flags = np.zeros(len(rows), np.bool_)
    return Outline(
        parent=np.array([-1 if row.parent is None else row.parent for row in rows], np.int32),
        last=np.array([row.last for row in rows], np.int32),
        order=np.array([row.order for row in rows], np.int32),
        verdict=np.array([VERDICTS.index(verdict) for verdict in verdicts], np.int8),
        node_class=np.array([CLASSES.index(each) for each in classes], np.int8),
        kind=np.array([KINDS.index(row.kind) for row in rows], np.int8),
        direction=np.array([DIRECTIONS.index(row.direction) for row in rows], np.int8),
        bad=codes >= 0,
        origin=codes == len(LEVELS) - 1,
        unmatched=none,
        output_error=np.full(len(rows), np.nan),
        amplification=np.full(len(rows), np.nan),
        overflow=codes,
        own=np.array([bool(views[node.order]) for node in nodes], np.bool_),
    )
