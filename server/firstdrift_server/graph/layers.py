"""The layers of a graph as its page and JSON show them: some boxes of a module at a time, with their edges.

A module may hold thousands of nodes: they come in pieces, in the order of execution.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.layers import Layer, load_layer
from firstdrift.catalogue.comparisons.outline import Outline
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import Row, rows_with_kinds
from firstdrift.groups import fields_of
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.graph import Edge, Place
from firstdrift.verdict.judgement import ORIGINS, NodeClass
from firstdrift_frontend import numbers
from firstdrift_server.context import Context
from firstdrift_server.parts.tree_row import UNMATCHED

PIECE = 64
"""So many boxes of a module are sent, and laid out, at a time."""

LEVELS = 4
"""An error above its limit is as many levels above it as it has powers of ten more, up to so many."""


class BoxView(Struct, frozen=True, kw_only=True):
    """A row as a box.

    Attributes:
        name: of its nodes, as the dumps write them.
        sides: which runs have it.
        holds: how many rows lie directly in it.
        own: something can be said of it by itself, and not just of what lies in it.
        said: what its verdict looks like: its own, or the worst of what lies in it; "nothing" without either.
        shown: its errors as they are read: `input`, `parameter`, `output`.
        level: how far its output error is above the limit, in powers of ten: 0 is within it, -1 says that
            outputs are equal; None if no number is known.
        bad: how many rows below it are bad; likewise unmatched.
    """

    row: int
    label: str
    name: str
    kind: NodeKind
    type_name: str
    direction: Direction
    sides: Sequence[str]
    holds: int
    own: bool
    verdict: str
    node_class: NodeClass
    said: str
    input_error: float | None
    parameter_error: float | None
    output_error: float | None
    shown: Mapping[str, str]
    level: int | None
    bad: int
    unmatched: int


class EdgeView(Struct, frozen=True):
    """An edge, as in `Edge`, with its shapes as they are read."""

    source: Place
    goal: Place
    shapes: Sequence[str]
    by_order: bool


class LayerView(Struct, frozen=True, kw_only=True):
    """A piece of what lies directly in a module.

    Attributes:
        row: of the module; None for what lies in none.
        piece: which piece it is, of `pieces`; they have `total` boxes together, `size` each.
        edges: by side, those that begin or end in this piece.
    """

    row: Place
    piece: int
    pieces: int
    total: int
    size: int = PIECE
    boxes: Sequence[BoxView]
    edges: Mapping[str, Sequence[EdgeView]]


class Graph:
    """The graph of a slice pair, of which layers are looked up."""

    def __init__(self, session: Session, context: Context, pair: SliceLabel, limit: float) -> None:
        """Read what is known of all rows; `limit` is what errors are held against."""
        self.outline = context.outline(session, pair)
        self._session, self._context, self._pair, self._limit = session, context, pair, limit

    def rows_in(self, row: Place) -> tuple[int, ...]:
        """List the rows directly in a module, in the order of execution."""
        return tuple(np.flatnonzero(self.outline.parent == _code(row)).tolist())

    def piece_with(self, row: int) -> int:
        """Say in which piece of its module a row is."""
        return self.rows_in(self.above(row)).index(row) // PIECE

    def above(self, row: int) -> Place:
        """Return the module around a row."""
        found = int(self.outline.parent[row])
        return None if found < 0 else found

    def piece_of_interest(self, row: Place) -> int:
        """Return the piece of a module in which an error begins, or the first bad row is; else the first."""
        return next((place for place in _interesting(self.outline, self.rows_in(row))), 0) // PIECE

    def layer(self, row: Place, piece: int) -> LayerView:
        """Look up a piece of what lies in a module."""
        key = (self._pair.id, self._pair.revision, _code(row))
        layer = self._context.layers.get(key, lambda: self._load(row))
        boxes = layer.rows[piece * PIECE : (piece + 1) * PIECE]
        return LayerView(
            row=row,
            piece=piece,
            pieces=max(1, math.ceil(len(layer.rows) / PIECE)),
            total=len(layer.rows),
            boxes=self._boxes(boxes),
            edges={
                "golden": _edges_at(layer.golden, frozenset(boxes)),
                "target": _edges_at(layer.target, frozenset(boxes)),
            },
        )

    def _load(self, row: Place) -> Layer:
        return load_layer(self._session, self._pair, row, self.rows_in(row))

    def _boxes(self, rows: Sequence[int]) -> list[BoxView]:
        found, kinds = rows_with_kinds(self._session, self._pair.id, rows, ())
        return [self._box(found[row], kinds.get(row, frozenset())) for row in rows]

    def _box(self, row: Row, kinds: Collection[MeasurementKind]) -> BoxView:
        tree, judged = row.tree, row.judgement
        verdict = UNMATCHED if row.match is None else str(judged.verdict)
        own = bool(kinds) or judged.node_class in ORIGINS
        holds = len(self.rows_in(tree.index))
        below = judged.below
        return BoxView(
            **fields_of(tree, ("label", "kind", "type_name", "direction")),
            **fields_of(judged, ("node_class", "input_error", "parameter_error", "output_error")),
            row=tree.index,
            name=(tree.target or tree.golden)[0],
            sides=[side for side in ("golden", "target") if getattr(tree, side)],
            holds=holds,
            own=own,
            verdict=verdict,
            said=verdict if own or row.match is None else str(below.worst) if holds else "nothing",
            shown={
                "input": error_text(judged.input_error, kinds),
                "parameter": error_text(judged.parameter_error, kinds),
                "output": error_text(judged.output_error, kinds),
            },
            level=level_of(judged.output_error, self._limit),
            bad=below.error + below.warning,
            unmatched=below.unmatched,
        )


def _code(row: Place) -> int:
    return -1 if row is None else row


def _interesting(outline: Outline, rows: Sequence[int]) -> Iterable[int]:
    """Give the places of rows in which something is to be seen, what matters most first."""
    for flags in (outline.origin, outline.bad, outline.unmatched):
        found = np.concatenate(([0], np.cumsum(flags)))
        yield from (place for place, row in enumerate(rows) if found[outline.last[row] + 1] > found[row])


def _edges_at(edges: Iterable[Edge], rows: Collection[int]) -> list[EdgeView]:
    return [
        EdgeView(edge.source, edge.goal, [*map(numbers.shape, edge.shapes)], edge.by_order)
        for edge in edges
        if edge.source in rows or edge.goal in rows
    ]


def error_text(error: float | None, measured_from: Collection[MeasurementKind]) -> str:
    """Write an error as it is read: from statistics it is a lower bound, and digests tell no number."""
    if error is None or MeasurementKind.DATA in measured_from:
        return numbers.short(error)
    if MeasurementKind.STATISTICS in measured_from:
        return f"≥ {numbers.short(error)}" if error else numbers.short(error)
    if MeasurementKind.DIGEST in measured_from:
        return "≠" if error else "="
    return numbers.short(error)


def level_of(error: float | None, limit: float) -> int | None:
    """Say how far an error is above its limit, in powers of ten.

    | error          | level       |
    | -------------- | ----------- |
    | not known      | None        |
    | 0              | -1          |
    | up to limit    | 0           |
    | below 10 times | 1           |
    | below 100      | 2           |
    | 1000 and more  | 4, the most |
    | NaN, infinite  | 4           |
    """
    if error is None:
        return None
    if not math.isfinite(error):
        return LEVELS
    if error <= limit:
        return 0 if error else -1
    return min(LEVELS, 1 + math.floor(math.log10(error / limit)))
