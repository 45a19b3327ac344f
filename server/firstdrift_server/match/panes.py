"""The two panes of the match page: the nodes of either side, and which of them wait for a decision.

Rows come from the newest results that are finished; what was decided since, and is being measured, is marked
in them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import Flags, Integers, Outline, rows_containing
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.sides import Sides, called, load_sides, rows_named
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, get_slice_label
from firstdrift.catalogue.comparisons.tree import Row, rows_at
from firstdrift.catalogue.matches.match_sets import MatchSet
from firstdrift.catalogue.tables import JobState
from firstdrift.groups import firsts, known
from firstdrift.matching.manual.edits import Edit
from firstdrift_server.context import Context
from firstdrift_server.match.picking import SIDES, Picking, Side
from firstdrift_server.tree.state import Parameters
from firstdrift_server.validation import read_number

CHUNK = 50
"""Rows are sent in pieces of this size."""

FIRST_CHUNKS = 3
"""A pane begins with so many."""

MOST_PENDING = 200
"""More nodes than this are not marked as being matched."""


@dataclass(frozen=True, slots=True)
class Panes:
    """The rows that both panes are made of.

    Attributes:
        comparison: whose results they are: of the version in force, or of the last that is finished.
        pending: rows that are decided since, and not measured yet.
    """

    comparison: int
    pair: SliceLabel
    outline: Outline
    sides: Sides
    pending: Flags

    def of(self, side: Side) -> Flags:
        """Tell which rows have a node of a side."""
        return self.sides.golden if side == "golden" else self.sides.target

    @property
    def free(self) -> Flags:
        """Tell which rows wait for a decision."""
        return (self.outline.unmatched | self.sides.doubtful) & ~self.pending


@dataclass(frozen=True, slots=True)
class Listing:
    """What a pane shows, in the order of the tree: rows that are wanted, and what these lie in."""

    visible: Integers
    wanted: Flags

    def place_of(self, rows: Integers) -> int | None:
        """Return the place of the first of some rows that is shown; None if none is."""
        places = np.flatnonzero(np.isin(self.visible, rows))
        return int(places[0]) if len(places) else None


def shown_results(session: Session, known: MatchSet) -> tuple[int, list[Edit]]:
    """Return the comparison with the newest finished results of a match set, and what was decided since."""
    since: list[Edit] = []
    for version in reversed(known.chain()):
        results = version.results_id
        if results is not None and get_comparison(session, results).state is JobState.DONE:
            return results, since
        since += version.edits
    return known.comparison_id, since


def panes_of(session: Session, context: Context, known: MatchSet, position: int) -> Panes:
    """Look up the rows of the newest finished results, and mark what was decided since."""
    comparison, since = shown_results(session, known)
    pair = get_slice_label(session, comparison, position)
    outline = context.outline(session, pair)
    sides = context.sides.get((pair.id, pair.revision), lambda: load_sides(session, pair.id, len(outline)))
    pending = np.zeros(len(outline), np.bool_)
    for side in SIDES:
        for descendants in (True, False):
            edits = [edit for edit in since if edit.descendants is descendants]
            names = [name for edit in edits for name in getattr(edit, side)]
            for row in rows_named(session, pair.id, side, names[:MOST_PENDING]):
                pending[row : (outline.last[row] if descendants else row) + 1] = True
    return Panes(comparison, pair, outline, sides, pending)


def listing_of(session: Session, panes: Panes, side: Side, picking: Picking) -> Listing:
    """Work out which rows a pane shows."""
    has_node = panes.of(side)
    wanted = has_node if picking.show_all else has_node & panes.free
    text = picking.text[SIDES.index(side)]
    if text:
        found = np.zeros_like(wanted)
        found[rows_containing(session, panes.pair.id, text)] = True
        wanted = wanted & found
    shown = wanted.copy()
    level: Integers = np.flatnonzero(wanted).astype(np.int32)
    while len(level):
        above = np.unique(panes.outline.parent[level])
        above = above[above >= 0]
        level = above[~shown[above]]
        shown[level] = True
    return Listing(np.flatnonzero(shown & has_node).astype(np.int32), wanted)


class PaneCounts(Struct, frozen=True):
    """How many nodes a side has, how many of them are free, and how many are matched doubtfully."""

    nodes: int
    free: int
    doubtful: int


class PaneView(Struct, frozen=True, kw_only=True):
    """The part of a pane that is shown first.

    Attributes:
        total: number of rows that the pane shows.
        place: of what is picked, or of the first node that waits for a decision.
        start: place of the first row; `before` and `after` are where the parts beside this one start.
    """

    side: Side
    text: str
    nodes: int
    free: int
    doubtful: int
    total: int
    place: int
    start: int
    before: int | None
    after: int | None
    rows: list["PaneRow"]


def pane_view(session: Session, panes: Panes, side: Side, picking: Picking) -> PaneView:
    """Lay a pane out around what is picked, or around the first node that waits for a decision."""
    listing = listing_of(session, panes, side, picking)
    picked = rows_named(session, panes.pair.id, side, picking.names(side))
    place = listing.place_of(picked)
    if place is None:
        first = np.flatnonzero(panes.free[listing.visible])
        place = int(first[0]) if len(first) else 0
    wanted = picking.start[SIDES.index(side)]
    start = max(0, place // CHUNK - 1) * CHUNK if wanted is None else wanted // CHUNK * CHUNK
    rows = rows_view(session, panes, listing, (side, picking.names(side)), start, FIRST_CHUNKS * CHUNK)
    return PaneView(
        side=side,
        text=picking.text[SIDES.index(side)],
        **asdict(_counts(panes, side)),
        total=len(listing.visible),
        place=place,
        start=start,
        before=max(0, start - FIRST_CHUNKS * CHUNK) if start else None,
        after=start + FIRST_CHUNKS * CHUNK if start + len(rows) < len(listing.visible) else None,
        rows=rows,
    )


def _counts(panes: Panes, side: Side) -> PaneCounts:
    has_node = panes.of(side)
    return PaneCounts(
        nodes=int(has_node.sum()),
        free=int((has_node & panes.free & panes.outline.unmatched).sum()),
        doubtful=int((has_node & panes.free & panes.sides.doubtful).sum()),
    )


class PanePieces(Struct, frozen=True, kw_only=True):
    """Pieces of a pane by their numbers, and the place that is asked for."""

    side: Side
    total: int
    nodes: int
    free: int
    doubtful: int
    place: int | None
    chunks: list[tuple[int, list["PaneRow"]]]


def rows_of_pane(
    session: Session, panes: Panes, side: Side, picking: Picking, parameters: Parameters
) -> PanePieces:
    """Give pieces of a pane, and the place that is asked for.

    | parameter  | place                                                                |
    | ---------- | -------------------------------------------------------------------- |
    | next=12    | of the next row after place 12 that waits for a decision; then again |
    |            | from the top; -1 stands for before the first                         |
    | place_of=1 | of the first node that is picked of this side                        |
    """
    listing = listing_of(session, panes, side, picking)
    asked = parameters.get("chunks") or ""
    numbers = [read_number(part, "chunk") for part in asked.split(".")]
    place = None
    if (after := parameters.get("next")) is not None:
        free = np.flatnonzero(panes.free[listing.visible] & listing.wanted[listing.visible])
        place = _next_after(free.tolist(), -1 if after == "-1" else read_number(after, "next") or 0)
    elif parameters.get("place_of") is not None:
        place = listing.place_of(rows_named(session, panes.pair.id, side, picking.names(side)))
    chunks = known(numbers)
    chunks += [] if place is None else [place // CHUNK]
    picks = (side, picking.names(side))
    return PanePieces(
        side=side,
        total=len(listing.visible),
        **asdict(_counts(panes, side)),
        place=place,
        chunks=[
            (number, rows_view(session, panes, listing, picks, number * CHUNK, CHUNK))
            for number in chunks[:8]
        ],
    )


def _next_after(places: list[int], place: int) -> int | None:
    """Return the first of some places after one, else the first of all; None if there are none."""
    return next((one for one in places if one > place), next(iter(places), None))


class NodeRow(Struct, frozen=True, kw_only=True):
    """The node, or the nodes, of a side in a row.

    Attributes:
        row: index in the tree.
        names: of the nodes of this side; `partner` of the other.
        status: "unmatched", "doubtful", "matched", or "pending" until the newest version is measured.
    """

    row: int
    names: list[str]
    partner: list[str]
    status: str
    depth: int
    kind: str
    type_name: str
    direction: str


class PaneRow(NodeRow, frozen=True, kw_only=True):
    """A row of a pane.

    Attributes:
        place: among the rows that the pane shows.
        is_context: it is there only for what lies in it.
    """

    place: int
    label: str
    is_context: bool
    is_picked: bool


def rows_view(
    session: Session,
    panes: Panes,
    listing: Listing,
    picks: tuple[Side, tuple[str, ...]],
    start: int,
    count: int,
) -> list[PaneRow]:
    """Describe the rows of a pane from a place on, at most `count`."""
    side, picked = picks
    rows = rows_at(session, panes.pair.id, listing.visible[start : start + count].tolist())
    golden = _called(session, panes, side, rows)
    found = []
    for place, row in enumerate(rows, start):
        index, node = row.tree.index, node_row(panes, side, row)
        label, type_name = golden.get(index, (row.tree.label, node.type_name))
        found.append(
            PaneRow(
                **asdict(replace(node, type_name=type_name)),
                place=place,
                label=label,
                is_context=not listing.wanted[index],
                is_picked=not set(node.names).isdisjoint(picked),
            )
        )
    return found


def node_row(panes: Panes, side: Side, row: Row) -> NodeRow:
    """Describe the node, or the nodes, of a side in a row."""
    tree = row.tree
    if panes.pending[tree.index]:
        status = "pending"
    elif row.match is None:
        status = "unmatched"
    else:
        status = "doubtful" if row.match.doubtful else "matched"
    return NodeRow(
        row=tree.index,
        names=list(getattr(tree, side)),
        partner=list(tree.target if side == "golden" else tree.golden),
        status=status,
        depth=tree.depth,
        kind=str(tree.kind),
        type_name=tree.type_name,
        direction=str(tree.direction),
    )


def _called(session: Session, panes: Panes, side: Side, rows: Iterable[Row]) -> dict[int, tuple[str, str]]:
    """Say label and type of the golden nodes of rows that are named after target nodes of other names."""
    if side == "target":
        return {}
    others = [row.tree for row in rows if row.tree.target not in ((), row.tree.golden)]
    known = called(session, panes.pair.golden_slice_id, [name for tree in others for name in tree.golden])
    found = {tree.index: [known.get(name, (name, "")) for name in tree.golden] for tree in others}
    return {index: (", ".join(firsts(each)), each[0][1]) for index, each in found.items()}
