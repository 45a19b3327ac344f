"""The tree of a slice as its page shows it: filters, rows, and what surrounds them."""

from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import Outline, rows_containing, rows_matching
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.sides import rows_named
from firstdrift.catalogue.comparisons.slice_pairs import (
    SliceLabel,
    get_slice_label,
    judgement_of,
    slice_labels_of,
)
from firstdrift.catalogue.comparisons.tree import get_row
from firstdrift.errors import SettingsError
from firstdrift.verdict.limit import limit_of_nodes
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.node.view import node_of
from firstdrift_server.parts.addresses import comparison_address, tree_address, unmatched_address, with_query
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary
from firstdrift_server.tree.rows import window, windows
from firstdrift_server.tree.state import SORTS, Parameters, TreeState
from firstdrift_server.tree.visible import (
    Stop,
    TreeView,
    close_all,
    facets,
    next_stop,
    open_below,
    places_below,
    select,
    step_to,
    toggle,
    view_tree,
)
from firstdrift_server.validation import read_number

CHUNK = 8
"""Rows are sent in pieces of this size, about a quarter of a screen."""

BEFORE, AFTER = 4, 2
"""A page begins with the piece of the selected row and so many beside it: it is seen at two thirds of the
screen."""

CHUNKS = BEFORE + 1 + AFTER

MOST_ROWS = 256
"""So many rows can be asked for at a time."""


class SliceLink(Struct, frozen=True):
    """A slice, and where the same view of its tree is found."""

    slice: int
    name: Message
    verdict: str
    address: str


class Neighbours(Struct, frozen=True):
    """The slices of which the tree can be seen, and those before and after the one that is."""

    all: list[SliceLink]
    previous: SliceLink | None
    next: SliceLink | None


class FilterValue(Struct, frozen=True):
    """A value of a filter, and how many rows it would let through by itself."""

    value: str
    count: int
    is_chosen: bool


class Filter(Struct, frozen=True):
    """A filter that tells rows of a tree apart."""

    name: str
    values: list[FilterValue]


class Seen(Struct, frozen=True, kw_only=True):
    """What of a tree is seen.

    Attributes:
        query: the state, as the part of an address after the question mark.
        total: number of visible rows; `matching` of those that the filters let through.
        place: of the selected row, among the visible ones.
        same_rows: true after a step that left the rows as they were.
    """

    query: str
    total: int
    matching: int
    has_bad: bool
    selected: int | None
    place: int
    same_rows: bool


class TreePieces(Seen, frozen=True, kw_only=True):
    """Pieces of the visible rows, for a page that is open; at `limit` a bar is half as long as its cell."""

    address: str
    columns: tuple[str, ...]
    pieces: list[Sequence[Struct]]
    limit: float | None = None
    roundoff: float | None = None


class SeenPart(Seen, frozen=True, kw_only=True):
    """The rows that a page begins with.

    Attributes:
        columns: all that can be shown, each with whether it is.
        start: place of the first row; `before` and `after` are where the parts beside this one start.
    """

    state: TreeState
    filters: list[Filter]
    columns: list[tuple[str, bool]]
    rows_in_tree: int
    chunk: int = CHUNK
    before: int
    after: int
    start: int
    rows: Sequence[Struct]
    has_more: bool


class TreePart(SeenPart, frozen=True, kw_only=True):
    """The part of a tree that a page begins with, and what surrounds it."""

    address: str
    slice: int
    slice_name: Message
    slices: Neighbours
    node: Struct | None
    limit: float | None = None
    roundoff: float | None = None


class TreePageView(TreePart, frozen=True, kw_only=True):
    """The tree of a slice pair, for its page."""

    comparison: ComparisonSummary
    comparison_address: str
    unmatched: str
    sorts: tuple[str, ...]


def view_from(session: Session, context: Context, pair: SliceLabel, parameters: Parameters) -> TreeView:
    """Work out what an address shows, after the step that it asks for.

    | parameter        | step                                                                   |
    | ---------------- | ---------------------------------------------------------------------- |
    | toggle=12        | open or close a row                                                    |
    | unfold=12        | open a row and all below it; unfold=all for the whole tree             |
    | fold=all         | close all rows                                                         |
    | go=12            | select a row and open what it lies in                                  |
    | next=bad         | go to the next bad row; also origin, unmatched; previous=... backwards |

    Without a row, as=2.100 selects the node that row 100 of slice 2 stands for, if it is here too.
    """
    outline = context.outline(session, pair)
    state = TreeState.read(parameters)
    if state.row is None and (other := parameters.get("as")):
        state = state.at(row_as_in(session, pair, other))
    search = rows_matching if state.is_regex else rows_containing
    containing = search(session, pair.id, state.text) if state.text else None
    view = view_tree(outline, state, containing)
    after = after_step(view, parameters)
    return view if after is None else step_to(view, after, containing)


def row_as_in(session: Session, pair: SliceLabel, other: str) -> int | None:
    """Find the row of a node of another slice by its name on either side; None if it is not here."""
    position, row = (read_number(part, "as") for part in other.partition(".")[::2])
    there = get_slice_label(session, pair.comparison_id, position or 0)
    node = get_row(session, there.id, row or 0).tree
    for side, names in (("target", node.target), ("golden", node.golden)):
        if (found := rows_named(session, pair.id, side, names)).size:
            return int(found[0])
    return None


class TreePage(Struct, frozen=True):
    """What the address of a tree asks for, which there is.

    Attributes:
        pair: the slice pair.
        view: which rows are seen.
        start: place of the first row of the page among them.
    """

    pair: SliceLabel
    view: TreeView
    start: int


def find_tree_page(
    session: Session, context: Context, comparison: int, position: int, parameters: Parameters
) -> TreePage:
    """Find what an address asks for: all that can be wrong with it comes out here."""
    pair = get_slice_label(session, comparison, position)
    view = view_from(session, context, pair, parameters)
    return TreePage(pair, view, first_place(view, read_number(parameters.get("start"), "start")))


def tree_view(session: Session, context: Context, page: TreePage) -> TreePageView:
    """Lay a tree out for its page."""
    pair, view, start = page.pair, page.view, page.start
    comparison, position = pair.comparison_id, pair.position
    rows = window(session, pair, view, start, CHUNKS * CHUNK)
    return TreePageView(
        **asdict(part_of(view, start, rows)),
        comparison=comparison_summary(session, get_comparison(session, comparison)),
        comparison_address=comparison_address(comparison, slice=position),
        address=tree_address(comparison, position),
        unmatched=unmatched_address(comparison, position),
        slice=position,
        slice_name=pair.target.name(),
        slices=neighbours_at(session, pair, view.state, tree_address),
        sorts=SORTS,
        limit=_limit(session, pair),
        roundoff=judgement_of(session, pair.id).roundoff,
        node=None if view.selected is None else node_of(session, context, pair, view.selected),
    )


def chunks_of(
    session: Session, context: Context, comparison: int, position: int, parameters: Parameters
) -> TreePieces:
    """Give pieces of the visible rows: those asked for, or those around the selected row."""
    pair = get_slice_label(session, comparison, position)
    view = view_from(session, context, pair, parameters)
    return TreePieces(
        **asdict(seen_of(view)),
        address=tree_address(comparison, position),
        columns=view.state.columns,
        limit=_limit(session, pair),
        roundoff=judgement_of(session, pair.id).roundoff,
        pieces=[*windows(session, pair, view, pieces_asked_for(view, parameters))],
    )


def _limit(session: Session, pair: SliceLabel) -> float | None:
    """Return the error in the middle of a bar: above it, an error is a fault's."""
    return limit_of_nodes([judgement_of(session, pair.id)])


def seen_of(view: TreeView) -> Seen:
    """Say what of a tree is seen."""
    return Seen(
        query=view.state.query(),
        total=len(view.visible),
        matching=int(view.matching.sum()),
        has_bad=bool((view.outline.bad & view.matching).any()),
        selected=view.selected,
        place=view.position,
        same_rows=view.same_rows,
    )


def part_of(view: TreeView, start: int, rows: Sequence[Struct]) -> SeenPart:
    """Say which part of a tree begins at a place with these rows."""
    return SeenPart(
        **asdict(seen_of(view)),
        state=view.state,
        filters=filters_of(view.outline, view.state),
        columns=[(name, name in view.state.columns) for name in view.state.known_columns],
        rows_in_tree=len(view.outline),
        before=max(0, start - CHUNKS * CHUNK),
        after=start + CHUNKS * CHUNK,
        start=start,
        rows=rows,
        has_more=start + len(rows) < len(view.visible),
    )


def pieces_asked_for(view: TreeView, parameters: Parameters) -> list[range]:
    """Say which places the pieces have that an address asks for.

    | parameter         | pieces                                                                        |
    | ----------------- | ----------------------------------------------------------------------------- |
    | rows=32-47.60-63  | these places                                                                  |
    | toggle=12&most=40 | the row that was opened or closed, with at most so many of those it opened    |
    | neither           | those around the selected row; none after a step that left the rows as they were |
    """
    toggled = read_number(parameters.get("toggle"), "toggle")
    most = read_number(parameters.get("most"), "most")
    if toggled is not None and most is not None:
        below = places_below(view, toggled)
        return [range(below.start - 1, min(below.stop, below.start + most, below.start + MOST_ROWS))]
    if asked := parameters.get("rows"):
        return _read_places(asked)
    return [] if view.same_rows else pieces_around(view)


def _read_places(text: str) -> list[range]:
    """Read "32-47.60-63", up to `MOST_ROWS`, and as many pieces."""
    pieces, left = [], MOST_ROWS
    for part in text.split(".")[:MOST_ROWS]:
        first, _, last = part.partition("-")
        start, end = read_number(first, "place"), read_number(last or first, "place")
        if start is None or end is None:
            raise SettingsError(Message.of("server.no_list_of_places", text=part[:20]))
        pieces.append(range(start, min(end + 1, start + left)))
        left -= len(pieces[-1])
    return pieces


def after_step(view: TreeView, parameters: Parameters) -> TreeState | None:
    """Give what is shown after the step that an address asks for; None if it asks for none."""
    last = len(view.outline) - 1
    if (row := _row(parameters, "toggle", last)) is not None:
        return toggle(view, row)
    if (row := _row(parameters, "go", last)) is not None:
        return select(view, row)
    if (text := parameters.get("unfold")) is not None:
        return open_below(view, None if text == "all" else _row(parameters, "unfold", last))
    if parameters.get("fold") == "all":
        return close_all(view)
    for name in ("next", "previous"):
        if (text := parameters.get(name)) is not None:
            row = next_stop(view, stop_named(text), backwards=name == "previous")
            return None if row is None else select(view, row)
    return None


def _row(parameters: Parameters, name: str, last: int) -> int | None:
    row = read_number(parameters.get(name), name)
    if row is not None and row > last:
        raise SettingsError(Message.of("server.no_row", row=row))
    return row


def stop_named(text: str) -> Stop:
    """Read what an address says is to be gone to."""
    try:
        return Stop(text)
    except ValueError as error:
        raise SettingsError(
            Message.of("server.nowhere_to_go", name=text[:20]),
            hint=Message.of("server.choose", names=tuple(map(str, Stop))),
        ) from error


def first_place(view: TreeView, wanted: int | None) -> int:
    """Begin with the piece asked for, or the one of the selected row."""
    return pieces_around(view)[0].start if wanted is None else wanted // CHUNK * CHUNK


def pieces_around(view: TreeView) -> list[range]:
    """Say which places the pieces around the selected row have."""
    first = max(0, view.position // CHUNK - BEFORE) * CHUNK
    return [range(start, start + CHUNK) for start in range(first, first + CHUNKS * CHUNK, CHUNK)]


def neighbours_at(
    session: Session, pair: SliceLabel, state: TreeState, address: Callable[[int, int], str]
) -> Neighbours:
    """Say where the same view of the slices of a comparison is found, whose pages have these addresses."""
    links = [
        SliceLink(
            other.position, other.target.name(), other.verdict, address(other.comparison_id, other.position)
        )
        for other in slice_labels_of(session, pair.comparison_id)
    ]
    return neighbours_of(links, pair.position, state)


def neighbours_of(slices: Sequence[SliceLink], position: int, state: TreeState) -> Neighbours:
    """Say where the same view is found in the slices before and after, of which the trees are given."""
    chosen = state.without_position().parameters()
    same_node = [] if state.row is None else [("as", f"{position}.{state.row}")]
    query = urlencode(chosen + same_node)
    links = [replace(one, address=with_query(one.address, query)) for one in slices]
    here = [link.slice for link in links].index(position)
    following = links[here + 1] if here + 1 < len(links) else None
    return Neighbours(links, links[here - 1] if here else None, following)


def filters_of(outline: Outline, state: TreeState) -> list[Filter]:
    """List the filters that tell rows of a tree apart, with how many rows each value would let through."""
    counts, chosen = facets(outline), dict(state.chosen)
    offered = {
        name: [value for value in values if counts[name][value] or value in chosen.get(name, ())]
        for name, values in state.choices.items()
    }
    return [
        Filter(
            name,
            [FilterValue(value, counts[name][value], value in chosen.get(name, ())) for value in values],
        )
        for name, values in offered.items()
        if len(values) > 1 or name in chosen
    ]
