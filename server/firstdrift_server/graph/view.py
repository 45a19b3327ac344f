"""The graph of a slice as its page shows it: which boxes are open, and what surrounds them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import CLASSES, VERDICTS, Flags
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, get_slice_pair
from firstdrift.errors import SettingsError
from firstdrift.verdict.graph import Place
from firstdrift.verdict.limit import limit_of_nodes
from firstdrift.verdict.shown_classes import SHOWN_ALONE
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.graph.layers import PIECE, Graph, LayerView, Piece
from firstdrift_server.parts.addresses import comparison_address, graph_address, tree_address
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary
from firstdrift_server.parts.tree_row import UNMATCHED
from firstdrift_server.tree.state import Parameters, TreeState, read_rows
from firstdrift_server.tree.view import Neighbours, neighbours_at, row_as_in, stop_named
from firstdrift_server.tree.visible import ancestors, next_stop, view_tree
from firstdrift_server.validation import read_number

MOST_BOXES = 2000
"""A page begins with so many boxes, and the rest closed."""

FIRST_BOXES = 40
"""Where nothing is bad and nothing was chosen, modules are open as far as so many boxes are seen."""


class GraphView(Struct, frozen=True, kw_only=True):
    """The graph of a slice pair, for its page.

    Attributes:
        tree: address of the same in the tree; likewise `panel`, where the numbers of a node are.
        row: the selected one; None in an empty graph.
        layers: what is open, those that contain others first.
        limit: what errors are held against: the colours tell by how much they are above it.
        is_cut: more is open than a page begins with.
        words: verdicts and classes that a box may have.
    """

    comparison: ComparisonSummary
    comparison_address: str
    address: str
    tree: str
    panel: str
    slice: int
    slice_name: Message
    slices: Neighbours
    row: int | None
    layers: Sequence[LayerView]
    limit: float
    has_bad: bool
    is_cut: bool
    words: Mapping[str, Sequence[str]]


class GraphPieces(Struct, frozen=True, kw_only=True):
    """What a page that is open asks for.

    Attributes:
        row: where a step leads to; None if none was asked for, or it leads nowhere.
        path: the pieces that have to be there for the row to be seen, from the top down.
    """

    row: int | None
    path: Sequence[Piece]
    layers: Sequence[LayerView]


class GraphPage(Struct, frozen=True):
    """What the address of a graph asks for, which there is."""

    pair: SliceLabel
    limit: float
    row: int | None
    open: Sequence[int]
    pieces: Mapping[Place, Sequence[int]]


def find_graph_page(
    session: Session, context: Context, comparison: int, position: int, parameters: Parameters
) -> GraphPage:
    """Find what an address asks for: all that can be wrong with it comes out here.

    | parameter         | what it says                                                             |
    | ----------------- | ------------------------------------------------------------------------ |
    | row=12            | the selected row; the first bad one without it                           |
    | as=2.100          | the node that row 100 of slice 2 stands for, if it is here too           |
    | open=0.40-60      | the open modules; those around the selected row are open in any case     |
    | pieces=40:1.:2    | of module 40 the second piece is seen, and the third of what is in none  |
    """
    pair, limit = _limited(session, comparison, position)
    graph = Graph(session, context, pair, limit)
    chosen = _chosen(session, graph, pair, parameters)
    row = graph.first_of_interest() if chosen is None else chosen
    flags = _open(graph, row, parameters.get("open"), is_chosen=chosen is not None)
    rows = np.flatnonzero(flags & (graph.outline.last > np.arange(len(flags)))).tolist()
    return GraphPage(pair, limit, row, rows, read_pieces(parameters.get("pieces") or ""))


def _chosen(session: Session, graph: Graph, pair: SliceLabel, parameters: Parameters) -> int | None:
    """Return the row that an address asks for; None if it asks for none, or for one that is not here."""
    row = read_number(parameters.get("row"), "row")
    if row is None and (other := parameters.get("as")):
        row = row_as_in(session, pair, other)
    if row is not None:
        graph.require(row)
    return row


def _open(graph: Graph, row: int | None, text: str | None, *, is_chosen: bool) -> Flags:
    """Mark the open modules; where nothing was chosen and nothing is bad, those of a screen."""
    outline = graph.outline
    flags = np.zeros(len(outline), np.bool_) if row is None else ancestors(outline, row)
    if text is not None:
        return flags | read_rows(outline, text)
    if not is_chosen and not outline.bad.any():
        flags[list(_first_open(graph))] = True
    return flags


def _limited(session: Session, comparison: int, position: int) -> tuple[SliceLabel, float]:
    """Look up a slice pair, and the error from which on its nodes stand out, whatever is around them."""
    pair = get_slice_pair(session, comparison, position)
    judged = pair.judgement
    limit = limit_of_nodes([judged])
    return pair, judged.limits.floor * judged.roundoff if limit is None else limit


def _first_open(graph: Graph) -> Iterator[int]:
    """Open modules from the top down, as many as fit on a screen."""
    waiting, seen = [*graph.rows_in(None)], 0
    for row in waiting:
        inner = graph.rows_in(row)
        seen += len(inner)
        if inner and seen <= FIRST_BOXES:
            yield row
            waiting += inner


def read_pieces(text: str) -> dict[Place, list[int]]:
    """Read "40:1.:2": which pieces of modules are seen."""
    found: dict[Place, list[int]] = {}
    for part in filter(None, text.split(".")):
        row, colon, piece = part.partition(":")
        number = read_number(piece, "pieces")
        if not colon or number is None:
            raise SettingsError(Message.of("server.no_list_of_rows", text=part[:20]))
        found.setdefault(read_number(row, "pieces"), []).append(number)
    return found


def graph_view(session: Session, context: Context, page: GraphPage) -> GraphView:
    """Lay a graph out for its page."""
    pair, comparison, position = page.pair, page.pair.comparison_id, page.pair.position
    graph = Graph(session, context, pair, page.limit)
    wanted, is_cut = _wanted(graph, page)
    return GraphView(
        comparison=comparison_summary(session, get_comparison(session, comparison)),
        comparison_address=comparison_address(comparison, slice=position),
        address=graph_address(comparison, position),
        tree=tree_address(comparison, position),
        panel=tree_address(comparison, position).removesuffix("tree") + "n/",
        slice=position,
        slice_name=pair.target.name(),
        slices=neighbours_at(session, pair, TreeState(row=page.row), graph_address),
        row=page.row,
        layers=graph.pieces(wanted),
        limit=page.limit,
        has_bad=bool(graph.outline.bad.any()),
        is_cut=is_cut,
        words={
            "verdict": [*map(str, VERDICTS), UNMATCHED],
            "node_class": [*map(str, CLASSES), *SHOWN_ALONE],
        },
    )


def _wanted(graph: Graph, page: GraphPage) -> tuple[list[Piece], bool]:
    """List the pieces that are seen, those that contain others first; tell whether there are more."""
    wanted, boxes = list[Piece](), 0
    on_path = dict(path_to(graph, page.row))
    seen: set[Place] = {None}
    for row in (None, *page.open):
        if row not in seen:
            continue
        inner = graph.rows_in(row)
        pieces = {*page.pieces.get(row, ()), on_path.get(row, graph.piece_of_interest(row))}
        shown = {piece: inner[piece * PIECE : (piece + 1) * PIECE] for piece in sorted(pieces)}
        boxes += sum(map(len, shown.values()))
        if boxes > MOST_BOXES and wanted:
            return wanted, True
        wanted += [(row, piece) for piece, some in shown.items() if some]
        seen.update(inner_row for some in shown.values() for inner_row in some)
    return wanted, False


def path_to(graph: Graph, row: int | None) -> list[Piece]:
    """List the pieces in which a row is seen, from the top down."""
    path: list[Piece] = []
    while row is not None:
        path.append((graph.above(row), graph.piece_with(row)))
        row = graph.above(row)
    return path[::-1]


def pieces_of(
    session: Session, context: Context, comparison: int, position: int, parameters: Parameters
) -> GraphPieces:
    """Give what a page that is open asks for.

    | parameter       | answer                                                                      |
    | --------------- | --------------------------------------------------------------------------- |
    | of=40:1.41      | the second piece of module 40, and of 41 the one in which an error begins   |
    | next=bad&row=12 | the next bad row after 12, and where it is; also origin, unmatched; previous=... |
    """
    graph = Graph(session, context, *_limited(session, comparison, position))
    row = _step(graph, parameters)
    asked = [*_asked(graph, parameters.get("of") or "")]
    return GraphPieces(row=row, path=path_to(graph, row), layers=graph.pieces(asked))


def _asked(graph: Graph, text: str) -> Iterator[Piece]:
    for part in [*filter(None, text.split("."))][:MOST_PIECES]:
        number, _, piece = part.partition(":")
        row = read_number(number, "row")
        if row is not None:
            graph.require(row)
        chosen = read_number(piece, "pieces")
        yield row, graph.piece_of_interest(row) if chosen is None else chosen


MOST_PIECES = 32
"""So many can be asked for at a time."""


def _step(graph: Graph, parameters: Parameters) -> int | None:
    row = read_number(parameters.get("row"), "row")
    view = view_tree(graph.outline, TreeState(row=row))
    for name in ("next", "previous"):
        if (text := parameters.get(name)) is not None:
            return next_stop(view, stop_named(text), backwards=name == "previous")
    return None
