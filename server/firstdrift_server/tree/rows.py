"""The visible rows of the tree as pages and JSON show them."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import LEVELS, Floats
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import Row, rows_with_kinds
from firstdrift.catalogue.sharing.notes import notes_of
from firstdrift.groups import known
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.tree import TreeRow
from firstdrift_server.parts.tree_row import RowView, row_view
from firstdrift_server.tree.visible import TreeView

Noted = Collection[tuple[str, str]]
"""Nodes that people have written about, by side and name."""

SIDES = ("golden", "target")


class Placed(Struct, frozen=True):
    """How a row is shown: where, and as a branch of the tree or as a line of a list."""

    place: int
    has_children: bool
    is_open: bool
    name: str
    indent: int
    overflow: str | None
    is_selected: bool
    is_context: bool


class SeenRow(RowView, frozen=True, kw_only=True):
    """A visible row.

    Attributes:
        worst_below: the largest output error below it; None if nothing below it is off.
        worst_from: the kinds of measurements that tell.
        golden_label: what golden calls it, where that is something else than its name in the tree.
        has_notes: people have written about it.
    """

    place: int
    has_children: bool
    is_open: bool
    name: str
    indent: int
    overflow: str | None
    is_selected: bool
    is_context: bool
    worst_below: float | None
    worst_from: list[MeasurementKind]
    golden_label: str | None
    has_notes: bool


def window(session: Session, pair: SliceLabel, view: TreeView, start: int, count: int) -> list[SeenRow]:
    """Describe the visible rows from place `start` on, at most `count`."""
    (rows,) = windows(session, pair, view, [range(start, start + count)])
    return rows


def windows(
    session: Session, pair: SliceLabel, view: TreeView, places: Sequence[range]
) -> list[list[SeenRow]]:
    """Describe the visible rows at some places, so far as there are any."""
    parts = [view.visible[part.start : part.stop].tolist() for part in places]
    indexes = frozenset(chain.from_iterable(parts))
    errors = np.nan_to_num(view.outline.output_error, posinf=np.inf)
    worst = {index: _worst_below(errors, index, view.outline.last[index]) for index in indexes}
    rows, kinds = rows_with_kinds(session, pair.id, indexes, known(worst.values()))
    noted = noted_at(session, pair)
    return [
        [
            _seen(rows[index], view, place, worst[index], kinds, noted)
            for place, index in enumerate(part, at.start)
        ]
        for at, part in zip(places, parts, strict=True)
    ]


def _seen(
    row: Row,
    view: TreeView,
    place: int,
    worst: int | None,
    kinds: Mapping[int, frozenset[MeasurementKind]],
    noted: Noted,
) -> SeenRow:
    return SeenRow(
        **asdict(row_view(row, kinds.get(row.tree.index, frozenset()))),
        **asdict(placed(row.tree, view, place)),
        worst_below=None if worst is None else float(view.outline.output_error[worst]),
        worst_from=[] if worst is None else sorted(kinds.get(worst, ())),
        golden_label=golden_label(row.tree),
        has_notes=any((side, node) in noted for side in SIDES for node in getattr(row.tree, side)),
    )


def noted_at(session: Session, pair: SliceLabel) -> Noted:
    """List the nodes of a slice that people have written about."""
    notes = notes_of(session, pair.comparison_id)
    return {
        (note.side, note.node)
        for note in notes
        if note.coordinates == pair.target and note.deleted_at is None
    }


def golden_label(row: TreeRow) -> str | None:
    """Return what golden calls a node that has another name in the tree; None if it is called the same.

    A node whose parent alone is called otherwise has the same name. What follows a name, such as its type
    and direction, is left out on both sides.
    """
    label = row.label.split(".")
    for name in row.target[:1]:
        parts = name.split(".")
        ends = [end for end in range(len(label), len(parts) + 1) if parts[end - len(label) : end] == label]
        if ends:
            after, count = len(parts) - ends[-1], len(label)
            found = [_part(golden.split("."), after, count) for golden in row.golden]
            return ", ".join(found) if found and found != [row.label] else None
    return None


def _part(names: Sequence[str], after: int, count: int) -> str:
    """Return so many parts of a name, with so many after them."""
    end = len(names) - after
    return ".".join(names[max(0, end - count) : end] or names)


def placed(row: TreeRow, view: TreeView, place: int) -> Placed:
    """Describe how a row is shown."""
    index, is_list = row.index, view.state.is_list
    has_children = row.last > index and not is_list
    return Placed(
        place=place,
        has_children=has_children,
        is_open=bool(view.opened[index]) and has_children,
        name=(row.target or row.golden)[0] if is_list else row.label,
        indent=0 if is_list else row.depth,
        overflow=None if view.outline.overflow[index] < 0 else LEVELS[view.outline.overflow[index]],
        is_selected=index == view.selected,
        is_context=not view.matching[index],
    )


def _worst_below(errors: Floats, index: int, last: int) -> int | None:
    """Return the row with the largest output error below a row; None if none is above zero."""
    if last == index:
        return None
    worst = index + 1 + int(np.argmax(errors[index + 1 : last + 1]))
    return worst if errors[worst] > 0 else None
