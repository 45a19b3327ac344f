"""Which rows of a tree are seen: those that the filters let through, with what they lie in, unless closed.

        filters          what contains them     closed rows
rows ─▶ matching rows ─▶ kept rows ───────────▶ visible rows ─▶ the window on the screen

As a list, the visible rows are the matching ones of which something can be said, the worst first or in the
order of execution.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from firstdrift.catalogue.comparisons.outline import (
    CLASSES,
    DIRECTIONS,
    KINDS,
    LEVELS,
    VERDICTS,
    Codes,
    Flags,
    Floats,
    Integers,
    Outline,
)
from firstdrift.errors import NotInCatalogueError
from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.wording.message import Message
from firstdrift_server.parts.tree_row import UNMATCHED
from firstdrift_server.tree.state import CHOICES, SHOWN_CLASSES, TreeState, codes_of, read_rows, write_rows

ROWS_OF_A_SCREEN = 40


class Stop(StrEnum):
    """What one can jump to."""

    BAD = "bad"
    ORIGIN = "origin"
    UNMATCHED = "unmatched"


@dataclass(frozen=True, slots=True, eq=False)
class TreeView:
    """A tree as one visitor sees it.

    Attributes:
        state: what the visitor chose, written in the one way that stands for it.
        selected: the selected row; None in an empty tree.
        matching: rows that the filters let through.
        opened: rows whose children are shown.
        visible: indexes of the rows that are seen, in the order in which they are.
        same_rows: true after a step that left them, and which of them are open, as they were.
    """

    outline: Outline
    state: TreeState
    selected: int | None
    matching: Flags
    opened: Flags
    visible: Integers
    same_rows: bool = False

    @property
    def position(self) -> int:
        """Where among the visible rows the selected one is; 0 if it is not among them."""
        here = np.flatnonzero(self.visible == self.selected)
        return int(here[0]) if len(here) else 0


def view_tree(outline: Outline, state: TreeState, containing: Integers | None = None) -> TreeView:
    """Work out what is seen; `containing` are the rows with the text that is searched for, if any is."""
    if state.row is not None and state.row >= len(outline):
        raise NotInCatalogueError(Message.of("server.no_row", row=state.row))
    matching = match_filters(outline, state, containing)
    selected = state.row if state.row is not None else first_of_interest(outline, matching)
    opened = _opened(outline, state, selected)
    if state.is_list:
        visible = _listed(outline, state.sort, matching & (outline.own | outline.unmatched))
    else:
        visible = np.flatnonzero(_kept(outline, matching) & ~_hidden(outline, opened)).astype(np.int32)
    return TreeView(outline, _written(outline, state, opened), selected, matching, opened, visible)


def step_to(view: TreeView, state: TreeState, containing: Integers | None = None) -> TreeView:
    """Work out what is seen after a step from another view of the same tree."""
    after = view_tree(view.outline, state, containing)
    same = np.array_equal(after.visible, view.visible) and np.array_equal(
        after.opened[after.visible], view.opened[view.visible]
    )
    return replace(after, same_rows=same)


def match_filters(outline: Outline, state: TreeState, containing: Integers | None) -> Flags:
    """Tell which rows have everything that was chosen."""
    matching = np.ones(len(outline), np.bool_)
    for name, values in state.chosen:
        matching &= _has_one_of(outline, name, values)
    if containing is not None:
        found = np.zeros(len(outline), np.bool_)
        found[containing] = True
        matching &= found
    return matching


def first_of_interest(outline: Outline, among: Flags) -> int | None:
    """Return where an error begins first, in execution order; failing that, the first bad row, or the top."""
    for flags in (outline.origin & among, outline.bad & among):
        candidates = np.flatnonzero(flags)
        if len(candidates):
            return int(candidates[np.argmin(outline.order[candidates])])
    rest = np.flatnonzero(among)
    return int(rest[0]) if len(rest) else None


def toggle(view: TreeView, row: int) -> TreeState:
    """Open a closed row or close an open one; a selection that gets hidden moves to the closed row."""
    opened = view.opened.copy()
    opened[row] = not opened[row]
    hides_selected = view.selected is not None and row < view.selected <= view.outline.last[row]
    selected = row if hides_selected and not opened[row] else view.selected
    return _with_opened(view, opened, selected)


def places_below(view: TreeView, row: int) -> range:
    """Say at which places the rows below a row are seen; none if it is closed."""
    here = np.flatnonzero(view.visible == row)
    if not len(here):
        raise NotInCatalogueError(Message.of("server.row_not_seen", row=row))
    first = int(here[0]) + 1
    return range(first, first + int(np.count_nonzero(view.visible[first:] <= view.outline.last[row])))


def open_below(view: TreeView, row: int | None) -> TreeState:
    """Open a row and everything in it; None for the whole tree."""
    opened = view.opened.copy()
    opened[slice(None) if row is None else slice(row, int(view.outline.last[row]) + 1)] = True
    return _with_opened(view, opened, view.selected)


def close_all(view: TreeView) -> TreeState:
    """Close every row; the selection moves to the top row that contains it."""
    selected = view.selected
    while selected is not None and view.outline.parent[selected] >= 0:
        selected = int(view.outline.parent[selected])
    return _with_opened(view, np.zeros(len(view.outline), np.bool_), selected)


def select(view: TreeView, row: int) -> TreeState:
    """Select a row and open what it lies in."""
    return _with_opened(view, view.opened | ancestors(view.outline, row), row)


def next_stop(view: TreeView, stop: Stop, *, backwards: bool = False) -> int | None:
    """Find the next row to stop at after the selected one, from the other end where there is none ahead.

    In a tree, the next in execution order, or of unmatched rows the next further down, beginning with what
    the selected row holds; in a list, the next in the list. None if there is none at all.
    """
    order = _order_of_stops(view, stop)
    candidates = np.flatnonzero(_stops(view, stop))
    here = -1 if view.selected is None else order[view.selected]
    ahead = candidates[order[candidates] < here if backwards else order[candidates] > here]
    if not len(ahead):
        ahead = candidates
    if not len(ahead):
        return None
    best = np.argmax(order[ahead]) if backwards else np.argmin(order[ahead])
    return int(ahead[best])


def _order_of_stops(view: TreeView, stop: Stop) -> Integers:
    rows = len(view.outline)
    if view.state.is_list:
        order = np.full(rows, rows, np.int32)
        order[view.visible] = np.arange(len(view.visible))
        return order
    return np.arange(rows, dtype=np.int32) if stop is Stop.UNMATCHED else view.outline.order


def _stops(view: TreeView, stop: Stop) -> Flags:
    """Mark the rows to stop at; in a tree, not those that only contain where an error begins."""
    outline = view.outline
    flags = {Stop.BAD: outline.bad, Stop.ORIGIN: outline.origin, Stop.UNMATCHED: outline.unmatched}[stop]
    stops = flags & view.matching
    if stop is not Stop.BAD or view.state.is_list:
        return stops
    passes_on = outline.node_class == CLASSES.index(NodeClass.PROPAGATED)
    contains: Flags = passes_on & _holds_one(outline, stops & outline.origin)
    return stops & ~contains


def _holds_one(outline: Outline, among: Flags) -> Flags:
    """Mark the rows below which one of these lies."""
    before = np.concatenate(([0], np.cumsum(among)))
    found: Flags = before[outline.last + 1] > before[np.arange(len(outline)) + 1]
    return found


def ancestors(outline: Outline, row: int) -> Flags:
    """Mark the rows that contain a row."""
    marked = np.zeros(len(outline), np.bool_)
    above = int(outline.parent[row])
    while above >= 0:
        marked[above] = True
        above = int(outline.parent[above])
    return marked


def facets(outline: Outline) -> dict[str, dict[str, int]]:
    """Count the rows that each value of each filter would let through by itself."""
    judged = _judged(outline)
    of_verdicts = {str(one): _has_verdict(outline, frozenset((one,))) for one in (*VERDICTS, UNMATCHED)}
    counts = {
        "verdict": {verdict: int(rows.sum()) for verdict, rows in of_verdicts.items()},
        "class": _count(shown_codes(outline)[judged], SHOWN_CLASSES),
        "kind": _count(outline.kind, KINDS),
        "direction": _count(outline.direction, DIRECTIONS),
        "overflow": _count(outline.overflow[outline.overflow >= 0], LEVELS),
    }
    counts["class"] = {shown: counts["class"][shown] for shown in CHOICES["class"]}
    return counts


def shown_codes(outline: Outline) -> Codes:
    """Say of each row which of the classes that people are shown is its own."""
    found: Codes = np.where(outline.way < 0, outline.node_class, len(CLASSES) + outline.way)
    return found


def _judged(outline: Outline) -> Flags:
    """Mark the rows that have a verdict: those with a partner, and those that fail for having none."""
    judged: Flags = outline.own & (~outline.unmatched | (outline.origin & outline.bad))
    return judged


def _count(codes: np.ndarray, known: Sequence[str]) -> dict[str, int]:
    found = np.bincount(codes, minlength=len(known))
    return {str(word): int(found[place]) for place, word in enumerate(known)}


def _has_one_of(outline: Outline, name: str, values: frozenset[str]) -> Flags:
    match name:
        case "verdict":
            return _has_verdict(outline, values)
        case "class":
            return np.isin(shown_codes(outline), codes_of(SHOWN_CLASSES, values)) & outline.own
        case "kind":
            return np.isin(outline.kind, codes_of(KINDS, values))
        case "overflow":
            return np.isin(outline.overflow, codes_of(LEVELS, values))
        case _:
            return np.isin(outline.direction, codes_of(DIRECTIONS, values))


def _has_verdict(outline: Outline, values: frozenset[str]) -> Flags:
    """Mark the rows of some verdicts; a row with one incomparable pair is of *incomparable* as well."""
    listed: Flags = np.isin(outline.verdict, codes_of(VERDICTS, values)) & _judged(outline)
    if UNMATCHED in values:
        listed = listed | outline.unmatched
    return listed | outline.incomparable if Verdict.INCOMPARABLE in values else listed


def _listed(outline: Outline, sort: str, among: Flags) -> Integers:
    """Order rows: the largest number first, and what has none last; equal ones as they were executed."""
    keys: Floats | Integers
    match sort:
        case "error":
            keys = _descending(outline.output_error, outline.bad)
        case "amplification":
            keys = _descending(outline.amplification)
        case _:
            keys = outline.order
    rows = np.flatnonzero(among)
    return rows[np.lexsort((outline.order[rows], keys[rows]))].astype(np.int32)


def _descending(numbers: Floats, worst: Flags | bool = False) -> Floats:
    """Make keys that sort large numbers first; NaN is a missing number, but of the worst rows the largest."""
    return -np.where(np.isnan(numbers), np.where(worst, np.inf, -np.inf), numbers)


def _kept(outline: Outline, matching: Flags) -> Flags:
    """Add the rows that contain a matching one."""
    return matching | _holds_one(outline, matching)


def _hidden(outline: Outline, opened: Flags) -> Flags:
    """Mark the rows below a closed one."""
    return _number_of_containers(outline, ~opened) > 0


def _number_of_containers(outline: Outline, among: Flags) -> Integers:
    """Count for each row the rows among some that contain it."""
    rows = np.arange(len(outline))
    branches = rows[among & (outline.last > rows)]
    steps = np.zeros(len(outline) + 1, np.int32)
    np.add.at(steps, branches + 1, 1)
    np.add.at(steps, outline.last[branches] + 1, -1)
    return np.cumsum(steps[:-1], dtype=np.int32)


def _opened(outline: Outline, state: TreeState, selected: int | None) -> Flags:
    leading = np.zeros(len(outline), np.bool_) if selected is None else ancestors(outline, selected)
    if state.open is not None and state.closed is None:
        return read_rows(outline, state.open) | leading
    if state.closed is not None or state.is_filtered:
        return ~read_rows(outline, state.closed or "") | leading
    return _first_levels(outline) if state.row is None and not outline.bad.any() else leading


def _first_levels(outline: Outline) -> Flags:
    """Open as many whole levels as fit on a screen: of a clean tree nothing is to be seen before the rest."""
    depth = _number_of_containers(outline, np.ones(len(outline), np.bool_))
    rows_up_to = np.cumsum(np.bincount(depth, minlength=1))
    return depth < np.searchsorted(rows_up_to, ROWS_OF_A_SCREEN, side="right") - 1


def _with_opened(view: TreeView, opened: Flags, selected: int | None) -> TreeState:
    return replace(_written(view.outline, view.state, opened), row=selected)


def _written(outline: Outline, state: TreeState, opened: Flags) -> TreeState:
    """Write down what is open, or what is closed, whichever is shorter."""
    open_rows, closed_rows = write_rows(outline, opened), write_rows(outline, ~opened)
    if len(open_rows) <= len(closed_rows):
        return replace(state, open=open_rows, closed=None)
    return replace(state, open=None, closed=closed_rows)
