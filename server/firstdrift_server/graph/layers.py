"""The layers of a graph as its page and JSON show them: some boxes of a module at a time, with their edges.

A module may hold thousands of nodes: they come in pieces, in the order of execution.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.layers import Layer, load_layers
from firstdrift.catalogue.comparisons.outline import Outline
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.comparisons.tree import Row, rows_with_kinds
from firstdrift.errors import NotInCatalogueError
from firstdrift.groups import fields_of
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.graph import Edge, Place
from firstdrift.verdict.judgement import ORIGINS, NodeClass, Verdict
from firstdrift.verdict.shown_classes import shown_class
from firstdrift.wording.message import Message
from firstdrift_frontend import numbers
from firstdrift_server.context import Context
from firstdrift_server.parts.tree_row import shown_verdict
from firstdrift_server.tree.rows import golden_label
from firstdrift_server.tree.visible import first_of_interest

PIECE = 64
"""So many boxes of a module are sent, and laid out, at a time."""

LEVELS = 4
"""An error above its limit is as many levels above it as it has powers of ten more, up to so many."""


class BoxView(Struct, frozen=True, kw_only=True):
    """A row as a box.

    Attributes:
        golden_label: what golden calls it, where that is something else than its label.
        name: of its nodes, as the dumps write them.
        sides: which runs have it.
        holds: how many rows lie directly in it.
        own: something can be said of it by itself, and not just of what lies in it.
        class_shown: the class that people read: of one that is propagated, how the error came to it.
        said: what its verdict looks like: its own, or the worst of what lies in it; "nothing" without either.
        shown: its errors as they are read: `input`, `parameter`, `output`.
        level: how far its output error is above the limit, in powers of ten: 0 is within it, -1 says that
            outputs are equal; None if no number is known.
        bad: how many rows below it are bad, of which `errors` fail; likewise unmatched.
    """

    row: int
    label: str
    golden_label: str | None
    name: str
    kind: NodeKind
    type_name: str
    direction: Direction
    sides: Sequence[str]
    holds: int
    own: bool
    verdict: str
    node_class: NodeClass
    class_shown: str
    said: str
    input_error: float | None
    parameter_error: float | None
    output_error: float | None
    shown: Mapping[str, str]
    level: int | None
    bad: int
    errors: int
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


Piece = tuple[Place, int]
"""A module, and which piece of what lies in it."""


class Graph:
    """The graph of a slice pair, of which pieces are looked up."""

    def __init__(self, session: Session, context: Context, pair: SliceLabel, limit: float) -> None:
        """Read what is known of all rows; `limit` is what errors are held against."""
        self.outline = context.outline(session, pair)
        self._session, self._context, self._pair, self._limit = session, context, pair, limit
        self._holds = np.bincount(self.outline.parent + 1, minlength=len(self.outline) + 1)

    def require(self, row: int) -> None:
        """Refuse a row that is not there."""
        if row >= len(self.outline):
            raise NotInCatalogueError(Message.of("server.no_row", row=row))

    def first_of_interest(self) -> int | None:
        """Return where an error begins first, or the first bad row, or the top; None in an empty tree."""
        return first_of_interest(self.outline, np.ones(len(self.outline), np.bool_))

    def rows_in(self, row: Place) -> tuple[int, ...]:
        """List the rows directly in a module, in the order of execution."""
        if row is not None and not self._holds[row + 1]:
            return ()
        return tuple(np.flatnonzero(self.outline.parent == _code(row)).tolist())

    def above(self, row: int) -> Place:
        """Return the module around a row."""
        found = int(self.outline.parent[row])
        return None if found < 0 else found

    def piece_with(self, row: int) -> int:
        """Say in which piece of its module a row is."""
        return self.rows_in(self.above(row)).index(row) // PIECE

    def piece_of_interest(self, row: Place) -> int:
        """Return the piece of a module in which an error begins, or the first bad row is; else the first."""
        rows = self.rows_in(row)
        return next(_interesting(self.outline, rows), 0) // PIECE if len(rows) > PIECE else 0

    def pieces(self, wanted: Sequence[Piece]) -> list[LayerView]:
        """Look up pieces of what lies in modules."""
        layers = self._layers(dict.fromkeys(row for row, _ in wanted))
        shown = [layers[row].rows[piece * PIECE : (piece + 1) * PIECE] for row, piece in wanted]
        boxes = self._boxes({row for rows in shown for row in rows})
        return [
            LayerView(
                row=row,
                piece=piece,
                pieces=max(1, math.ceil(len(layers[row].rows) / PIECE)),
                total=len(layers[row].rows),
                boxes=[boxes[inner] for inner in rows],
                edges={
                    "golden": _edges_at(layers[row].golden, frozenset(rows)),
                    "target": _edges_at(layers[row].target, frozenset(rows)),
                },
            )
            for (row, piece), rows in zip(wanted, shown, strict=True)
        ]

    def _layers(self, modules: Iterable[Place]) -> dict[Place, Layer]:
        """Return layers that are at hand, and read the others, all at once."""
        rows = {module: self.rows_in(module) for module in modules}
        read: dict[Place, Layer] = {}

        def load(module: Place) -> Layer:
            if module not in read:
                left = {other: inner for other, inner in rows.items() if other not in found}
                read.update(load_layers(self._session, self._pair, left))
            return read[module]

        found: dict[Place, Layer] = {}
        for module in rows:
            key = (self._pair.id, self._pair.revision, _code(module))
            found[module] = self._context.layers.get(key, partial(load, module))
        return found

    def _boxes(self, rows: Collection[int]) -> dict[int, BoxView]:
        found, kinds = rows_with_kinds(self._session, self._pair.id, rows, ())
        return {row: self._box(one, kinds.get(row, frozenset())) for row, one in found.items()}

    def _box(self, row: Row, kinds: Collection[MeasurementKind]) -> BoxView:
        tree, judged = row.tree, row.judgement
        verdict = shown_verdict(row)
        own = bool(kinds) or judged.node_class in ORIGINS
        holds = int(self._holds[tree.index + 1])
        below = judged.below
        return BoxView(
            **fields_of(tree, ("label", "kind", "type_name", "direction")),
            **fields_of(judged, ("node_class", "input_error", "parameter_error", "output_error")),
            row=tree.index,
            golden_label=golden_label(tree),
            name=(tree.target or tree.golden)[0],
            sides=[side for side in ("golden", "target") if getattr(tree, side)],
            holds=holds,
            class_shown=shown_class(judged.node_class, judged.rule),
            own=own,
            verdict=verdict,
            said=verdict if own or row.match is None else str(below.worst) if holds else "nothing",
            shown={
                "input": error_text(judged.input_error, kinds),
                "parameter": error_text(judged.parameter_error, kinds),
                "output": error_text(judged.output_error, kinds),
            },
            level=level_of(judged.output_error, self._limit, fails=own and verdict == Verdict.ERROR),
            bad=below.error + below.warning,
            errors=below.error,
            unmatched=below.unmatched,
        )


def _code(row: Place) -> int:
    return -1 if row is None else row


def _interesting(outline: Outline, rows: Sequence[int]) -> Iterator[int]:
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
        return numbers.error(error)
    if MeasurementKind.STATISTICS in measured_from:
        return f"≥ {numbers.error(error)}" if error and math.isfinite(error) else numbers.error(error)
    if MeasurementKind.DIGEST in measured_from:
        return "≠" if error else "="
    return numbers.error(error)


def level_of(error: float | None, limit: float, *, fails: bool = False) -> int | None:
    """Say how far an error is above its limit, in powers of ten; one that fails has a limit of its own.

    | error          | level             |
    | -------------- | ----------------- |
    | not known      | None              |
    | 0              | -1; 1 if it fails |
    | up to limit    | 0; 1 if it fails  |
    | below 10 times | 1                 |
    | below 100      | 2                 |
    | 1000 and more  | 4, the most       |
    | NaN, infinite  | 4                 |
    """
    if error is None:
        return None
    if not math.isfinite(error):
        return LEVELS
    if error <= limit:
        return 1 if fails else 0 if error else -1
    return min(LEVELS, 1 + math.floor(math.log10(error / limit))) if limit > 0 else LEVELS
