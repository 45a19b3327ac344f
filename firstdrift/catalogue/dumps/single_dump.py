"""A dump without a partner: the tree of a slice, what is known of its tensors, and how that develops.

Statistics are those that were recorded, or those that a job has computed from the values.
"""

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

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
from firstdrift.catalogue.dumps.computed import Computed, computed_of_slice, view_of
from firstdrift.catalogue.dumps.nodes import Place, all_nodes, nodes_at, nodes_named, tensors_of
from firstdrift.catalogue.dumps.records import entries_of_dump, get_slice
from firstdrift.catalogue.tables import SliceEntry
from firstdrift.comparison.single_dump import TensorView
from firstdrift.groups import firsts, gathered
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import TensorRecord
from firstdrift.verdict.judgement import NodeClass, Overflow, Verdict
from firstdrift.verdict.overflow_single import find_overflow_alone, has_nonfinite
from firstdrift.verdict.tree import TreeRow, rows_of_nodes


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


def tensors_of_nodes(
    session: Session, slice_id: int, nodes: Collection[int]
) -> dict[int, list[TensorView | TensorRecord]]:
    """List the tensors of nodes, by the order of these, with what is known of them.

    Of tensors whose values would have to be read there is the record alone.
    """
    computed = computed_of_slice(session, slice_id)
    tensors = tensors_of(nodes_at(session, slice_id, nodes))
    return dict(
        gathered((node.order, view_of(place, record, computed) or record) for place, node, record in tensors)
    )


def load_dump_tree(session: Session, slice_id: int) -> DumpTree:
    """Lay an indexed slice out as a tree."""
    nodes = tuple(all_nodes(session, slice_id))
    computed = computed_of_slice(session, slice_id)
    known = _knowledge(nodes, computed)
    overflow = _overflow(get_slice(session, slice_id).coordinates, nodes, known, computed)
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


def _knowledge(nodes: Sequence[Node], computed: Computed) -> _Knowledge:
    """Look through the tensors of a slice."""
    tensors = [(node.order, record, view_of(at, record, computed)) for at, node, record in tensors_of(nodes)]
    views = [(order, view) for order, _, view in tensors if view is not None]
    with_values = [(order, view.values) for order, view in views if view.values is not None]
    return _Knowledge(
        own=frozenset(order for order, _, _ in tensors),
        valued=frozenset(firsts(with_values)),
        non_finite=frozenset(order for order, values in with_values if has_nonfinite(values)),
        known=len(with_values),
        unknown=sum(view is None and record.location is not None for _, record, view in tensors),
        unreadable=sum(view.problem is not None for _, view in views),
    )


def _overflow(
    where: Coordinates, nodes: Sequence[Node], known: _Knowledge, computed: Computed
) -> tuple[Overflow, ...]:
    """Find what overflows: nodes of which all values are finite have no say in it."""
    values = []
    for node in nodes:
        if node.order in known.non_finite:
            tensors = [(record, view_of(at, record, computed)) for at, _, record in tensors_of((node,))]
            values.append((node, [view.values if view is not None else None for _, view in tensors]))
    return tuple(find_overflow_alone(values, where))


def trend(session: Session, dump_id: int, node: str, role: str, key: str) -> tuple[TrendPoint, ...]:
    """Find a tensor in every slice of a dump, in the order of execution, but for those merged from ranks."""
    slices = (one for one in entries_of_dump(session, dump_id) if one.merged is None)
    return tuple(_trend_point(session, entry, node, f"{role}.{key}") for entry in slices)


def _trend_point(session: Session, entry: SliceEntry, name: str, label: str) -> TrendPoint:
    point = TrendPoint(entry.position, entry.coordinates, entry.id)
    for place, _, record in tensors_of(nodes_named(session, entry.id, (name,)).values()):
        if record.label == label:
            view = view_of(place, record, computed_of_slice(session, entry.id))
            return replace(point, place=place, record=record, view=view)
    return point


def _outline(
    rows: Sequence[TreeRow], nodes: Sequence[Node], known: _Knowledge, overflow: Sequence[Overflow]
) -> Outline:
    levels = {found.node: LEVELS.index(found.level) for found in overflow}
    codes = np.array([levels.get(node.name, -1) for node in nodes], np.int8)
    worst = len(LEVELS) - 1
    verdict = np.full(len(rows), VERDICTS.index(Verdict.PASS), np.int8)
    verdict[codes >= 0] = VERDICTS.index(Verdict.WARNING)
    verdict[codes == worst] = VERDICTS.index(Verdict.ERROR)
    unknown, none = np.full(len(rows), np.nan), np.zeros(len(rows), np.bool_)
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
        unmatched=none,
        incomparable=none,
        output_error=unknown,
        amplification=unknown,
        overflow=codes,
        own=np.array([node.order in known.own for node in nodes], np.bool_),
        way=np.full(len(rows), -1, np.int8),
    )
