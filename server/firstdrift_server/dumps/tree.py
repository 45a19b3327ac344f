"""The tree of a slice of one dump: its filters and columns, and its rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import CLASSES, DIRECTIONS, KINDS, LEVELS, Integers
from firstdrift.catalogue.comparisons.patterns import names_matching
from firstdrift.catalogue.dumps.computed import computed_of_slice
from firstdrift.catalogue.dumps.records import IndexedSlice, get_dump
from firstdrift.catalogue.dumps.single_dump import (
    DumpTree,
    load_dump_tree,
    tensors_of_nodes,
)
from firstdrift.comparison.single_dump import TensorView
from firstdrift.errors import NotInCatalogueError
from firstdrift.groups import fields_of
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Problem
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict.judgement import NodeClass
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.dumps.node import dump_node_view
from firstdrift_server.dumps.slices import DumpSummary, dump_summary, own_slices, slice_at
from firstdrift_server.node.view import STATISTICS, fields_known
from firstdrift_server.parts.addresses import dump_tree_address
from firstdrift_server.parts.tree_row import OF_ROWS
from firstdrift_server.tree.rows import placed
from firstdrift_server.tree.state import Parameters, TreeState, write_rows
from firstdrift_server.tree.view import (
    CHUNK,
    CHUNKS,
    Neighbours,
    SliceLink,
    TreePart,
    TreePieces,
    after_step,
    first_place,
    neighbours_of,
    part_of,
    pieces_asked_for,
    seen_of,
)
from firstdrift_server.tree.visible import TreeView, step_to, view_tree
from firstdrift_server.validation import read_number

COLUMNS = ("order", "type", "tensors", "shape", "maximum", "minimum", "mean", "norm", "overflow")
"""What can be shown beside the name of a node; the statistics are those of its first output."""

ROWS_AT_FIRST = 60

_CRITICAL = len(LEVELS) - 1

SHOWN = ("shape", "maximum", "mean", "norm", "overflow")


@dataclass(frozen=True, slots=True)
class DumpTreeState(TreeState):
    """What a visitor chose of a tree of one dump."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "class": (NodeClass.NON_FINITE, NodeClass.CLEAN),
        "kind": tuple(map(str, KINDS)),
        "direction": tuple(map(str, DIRECTIONS)),
        "overflow": tuple(reversed(LEVELS)),
    }
    sorts: ClassVar[tuple[str, ...]] = ("tree", "execution")
    known_columns: ClassVar[tuple[str, ...]] = COLUMNS
    shown: ClassVar[tuple[str, ...]] = SHOWN


class Overflowing(Struct, frozen=True):
    """How many rows below another overflow, and how badly; laid out as what is said of compared rows."""

    error: int
    warning: int
    unmatched: int
    worst: str


class DumpRow(Struct, frozen=True, kw_only=True):
    """A visible row of the tree of one dump, laid out as those of a comparison.

    Attributes:
        values: the class of its values: "unknown" until some were looked at.
        tensor: label of the tensor that stands for it, whose dtype, shape and statistics these are.
    """

    row: int
    parent: int | None
    last: int
    depth: int
    order: int
    label: str
    kind: NodeKind
    type_name: str
    direction: Direction
    golden: tuple[str, ...]
    target: tuple[str, ...]
    place: int
    has_children: bool
    is_open: bool
    name: str
    indent: int
    overflow: str | None
    is_selected: bool
    is_context: bool
    verdict: str
    values: str
    own: bool = True
    below: Overflowing
    worst_below: float | None = None
    tensors: int
    tensor: str | None
    dtype: str
    shape: tuple[int, ...] | None
    maximum: float | None
    minimum: float | None
    mean: float | None
    norm: float | None


def tree_of(session: Session, context: Context, slice_id: int) -> DumpTree:
    """Return the tree of an indexed slice with what is known of it by now."""
    computed = len(computed_of_slice(session, slice_id))
    return context.dump_trees.get((slice_id, computed), lambda: load_dump_tree(session, slice_id))


class DumpTreePageView(TreePart, frozen=True, kw_only=True):
    """The tree of a slice of one dump, for its page.

    Attributes:
        values: how many tensors have known values, and how many not.
        overflow_count: number of nodes with NaN or infinities.
    """

    dump: DumpSummary
    values: dict[str, int]
    overflow_count: int
    problems: list[Problem]
    order_origin: Message | None


def dump_tree_view(
    session: Session, context: Context, dump_id: int, position: int, parameters: Parameters
) -> DumpTreePageView:
    """Lay a tree out for its page."""
    known, tree, view = _seen(session, context, dump_id, position, parameters)
    start = first_place(view, read_number(parameters.get("start"), "start"))
    rows = _window(session, known.id, tree, view, start, CHUNKS * CHUNK)
    return DumpTreePageView(
        **asdict(part_of(view, start, rows)),
        dump=dump_summary(get_dump(session, dump_id)),
        address=dump_tree_address(dump_id, position),
        slice=position,
        slice_name=known.coordinates.name(),
        slices=_neighbours(session, dump_id, position, view.state),
        values={"known": tree.known, "unknown": tree.unknown, "unreadable": tree.unreadable},
        overflow_count=len(tree.overflow),
        problems=list(known.problems),
        order_origin=None if known.order_origin is None else known.order_origin.message,
        node=None
        if view.selected is None
        else dump_node_view(session, context, dump_id, position, view.selected, tree),
    )


def dump_chunks(
    session: Session, context: Context, dump_id: int, position: int, parameters: Parameters
) -> TreePieces:
    """Give pieces of the visible rows: those asked for, or those around the selected row."""
    known, tree, view = _seen(session, context, dump_id, position, parameters)
    return TreePieces(
        **asdict(seen_of(view)),
        address=dump_tree_address(dump_id, position),
        columns=view.state.columns,
        pieces=[
            _window(session, known.id, tree, view, places.start, len(places))
            for places in pieces_asked_for(view, parameters)
        ],
    )


def read_slice_at(session: Session, dump_id: int, position: int) -> IndexedSlice:
    """Look up a slice of which the nodes are known."""
    known = slice_at(session, dump_id, position)
    if known.nodes is None:
        why = known.problems[0].reason if known.problems else Message.of("server.not_read_yet")
        raise NotInCatalogueError(
            Message.of("server.slice_cannot_be_shown", dump=dump_id, slice=position, why=why),
            hint=Message.of("server.read_slices_left", dump=dump_id),
        )
    return known


def _seen(
    session: Session, context: Context, dump_id: int, position: int, parameters: Parameters
) -> tuple[IndexedSlice, DumpTree, TreeView]:
    known = read_slice_at(session, dump_id, position)
    tree = tree_of(session, context, known.id)
    state = DumpTreeState.read(parameters)
    chosen = (state.row, state.open, state.closed)
    if not tree.overflow and chosen == (None, None, None) and not state.is_filtered:
        state = replace(state, open=_upper_branches(tree))
    containing = _containing(tree, state)
    view = view_tree(tree.outline, state, containing)
    after = after_step(view, parameters)
    return known, tree, view if after is None else step_to(view, after, containing)


def _containing(tree: DumpTree, state: TreeState) -> Integers | None:
    """Find the rows with the text that is searched for, if any is."""
    if not state.text:
        return None
    if state.is_regex:
        return names_matching(state.text, enumerate(tree.search))
    wanted = state.text.lower()
    return np.array([row for row, names in enumerate(tree.search) if wanted in names], np.int32)


def _upper_branches(tree: DumpTree) -> str:
    """Write which rows are open at first, where nothing leads to one: as many levels as fit a screen."""
    depths = np.array([row.depth for row in tree.rows], np.int32)
    fitting = [depth for depth in range(1, 6) if int((depths <= depth).sum()) <= ROWS_AT_FIRST]
    return write_rows(tree.outline, depths < max(fitting, default=0))


def _window(
    session: Session, slice_id: int, tree: DumpTree, view: TreeView, start: int, count: int
) -> list[DumpRow]:
    indexes = view.visible[start : start + count].tolist()
    tensors = tensors_of_nodes(session, slice_id, [tree.orders[index] for index in indexes])
    return [
        _row(tree, view, index, place, tensors.get(tree.orders[index], []))
        for place, index in enumerate(indexes, start)
    ]


def _row(
    tree: DumpTree, view: TreeView, index: int, place: int, tensors: list[TensorView | TensorRecord]
) -> DumpRow:
    row, outline = tree.rows[index], tree.outline
    below = outline.overflow[index + 1 : row.last + 1]
    errors, bad = int((below == _CRITICAL).sum()), int((below >= 0).sum())
    level, state = int(outline.overflow[index]), CLASSES[outline.node_class[index]]
    is_known = state is not NodeClass.UNMATCHED
    record, values = _shown_tensor(tensors)
    return DumpRow(
        **fields_of(row, OF_ROWS),
        **asdict(placed(row, view, place)),
        row=index,
        verdict=_verdict(level) or ("pass" if is_known else "nothing"),
        values=state if is_known else "unknown",
        below=Overflowing(errors, bad - errors, 0, _verdict(below.max(initial=-1)) or "pass"),
        tensors=len(tensors),
        tensor=record.label if record else None,
        dtype=record.dtype if record else "",
        shape=record.shape if record else None,
        **fields_known(values, STATISTICS),
    )


def _verdict(level: int) -> str | None:
    """Show a level of overflow as a verdict; None for none."""
    return None if level < 0 else "error" if level == _CRITICAL else "warning"


def _shown_tensor(
    tensors: list[TensorView | TensorRecord],
) -> tuple[TensorRecord | None, object]:
    """Choose the tensor that stands for a node: its first output, else its first tensor."""
    both = [(each.record, each.values) if isinstance(each, TensorView) else (each, None) for each in tensors]
    real = [(record, values) for record, values in both if record.is_tensor]
    outputs = [(record, values) for record, values in real if record.role is Role.OUTPUT]
    return next(iter([*outputs, *real]), (None, None))


def _neighbours(session: Session, dump_id: int, position: int, state: TreeState) -> Neighbours:
    return neighbours_of(
        [
            SliceLink(
                known.position, known.coordinates.name(), "pass", dump_tree_address(dump_id, known.position)
            )
            for known in own_slices(session, dump_id)
            if known.nodes is not None
        ],
        position,
        state,
    )
