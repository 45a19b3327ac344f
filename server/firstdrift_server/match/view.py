"""The match page: two panes, what is picked, what a match would change.

The page needs no dump and no plan: these are loaded for suggestions and previews only.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.sides import rows_named
from firstdrift.catalogue.comparisons.slice_pairs import slice_labels_of
from firstdrift.catalogue.comparisons.tree import rows_at
from firstdrift.catalogue.lookup import record_of
from firstdrift.catalogue.matches.match_sets import MatchSet, list_match_sets
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import EditKind
from firstdrift.matching.manual.thresholds import LARGEST_FILE
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.match.panes import CHUNK, Panes, PaneView, node_row, pane_view, panes_of, shown_results
from firstdrift_server.match.picking import SIDES, Picking, Side
from firstdrift_server.match.sets import effect_view, set_of, suggestions_view
from firstdrift_server.parts.addresses import comparison_address, match_address, tree_address, with_query
from firstdrift_server.parts.refusal import Refusal, refusal
from firstdrift_server.parts.summary import (
    ComparisonSummary,
    JobView,
    WorkerView,
    comparison_summary,
    worker_view,
)

LATEST = 12
"""Versions that the history shows."""


class SetChoice(Struct, frozen=True):
    """A match set that can be chosen, and its version in force."""

    id: int
    name: str
    version: int


class Deleted(Struct, frozen=True):
    """A match set that was just deleted, and can be restored."""

    id: int
    name: str


class SliceChoice(Struct, frozen=True):
    """A slice, and the address of this page of it."""

    slice: int
    name: Message
    address: str


class MatchView(Struct, frozen=True, kw_only=True):
    """The page.

    Attributes:
        query: what is chosen, as the part of an address after the question mark; `view_query` without what
            is picked.
        here: the address of the page as it is seen; `tree` of the tree of the slice.
        free_number: no match set has it in its name yet.
        chunk: number of rows in a piece of a pane.
        largest_file: bytes of a mapping file that is read in at the most.
        effect: what a match of the picked nodes would change, if that was asked for; likewise suggestions.
        problem: why what was submitted was refused.
    """

    comparison: ComparisonSummary
    comparison_address: str
    address: str
    query: str
    view_query: str
    here: str
    tree: str
    slice: int
    slice_name: Message
    slices: list[SliceChoice]
    sets: list[SetChoice]
    free_number: int
    picking: Picking
    chunk: int
    largest_file: int
    panes: dict[Side, PaneView]
    picked: "Picked"
    state: "StateView"
    effect: Mapping[str, Any] | None = None
    suggestions: Mapping[str, Any] | None = None
    problem: Refusal | None = None
    worker: WorkerView
    deleted: Deleted | None = None


def match_view(
    session: Session, context: Context, comparison: int, position: int, picking: Picking
) -> MatchView:
    """Lay out the page, without what a match would change, and without suggestions."""
    known = set_of(session, comparison, picking.match_set)
    panes = panes_of(session, context, known, position)
    address, query = match_address(comparison, position), picking.query()
    known_sets = list_match_sets(session, comparison)
    return MatchView(
        comparison=comparison_summary(session, get_comparison(session, comparison)),
        comparison_address=comparison_address(comparison, slice=position),
        address=address,
        query=query,
        view_query=picking.query(picks=False),
        here=with_query(address, query),
        tree=tree_address(comparison, position),
        slice=position,
        slice_name=panes.pair.target.name(),
        slices=_slices(session, comparison, picking),
        sets=[SetChoice(one.id, one.name, one.version) for one in known_sets],
        free_number=1 + len(known_sets) + len(list_match_sets(session, comparison, deleted=True)),
        picking=picking,
        chunk=CHUNK,
        largest_file=LARGEST_FILE,
        panes={side: pane_view(session, panes, side, picking) for side in SIDES},
        picked=picked_view(session, panes, picking),
        state=state_view(session, known, position),
        worker=worker_view(session),
    )


def _slices(session: Session, comparison: int, picking: Picking) -> list[SliceChoice]:
    query = picking.query(picks=False)
    return [
        SliceChoice(
            pair.position, pair.target.name(), with_query(match_address(comparison, pair.position), query)
        )
        for pair in slice_labels_of(session, comparison)
    ]


class PickedNode(Struct, frozen=True):
    """A node that is picked.

    Attributes:
        status: as that of its row; "absent" if the results have no such node.
    """

    name: str
    status: str
    partner: list[str]


class Picked(Struct, frozen=True, kw_only=True):
    """What is picked, and what can be done with it.

    Attributes:
        kind: what is to be done: "match" or "unmatch".
        is_too_many: several nodes of either side cannot be matched at once.
    """

    golden: list[PickedNode]
    target: list[PickedNode]
    kind: EditKind
    can_match: bool
    can_unmatch: bool
    is_too_many: bool
    is_ready: bool
    descendants: bool


def picked_view(session: Session, panes: Panes, picking: Picking) -> Picked:
    """Say what is picked, what it is matched with, and what can be done with it."""
    (golden, golden_rows), (target, target_rows) = (
        _picked_nodes(session, panes, side, picking.names(side)) for side in SIDES
    )
    statuses = {node.status for node in (*golden, *target)}
    is_match = bool(golden_rows) and golden_rows == target_rows and statuses == {"matched"}
    kind = picking.kind or (EditKind.UNMATCH if is_match else EditKind.MATCH)
    can_match = bool(golden and target)
    return Picked(
        golden=golden,
        target=target,
        kind=kind,
        can_match=can_match,
        can_unmatch=not statuses.isdisjoint(("matched", "doubtful")),
        is_too_many=min(len(golden), len(target)) > 1,
        is_ready=can_match if kind is EditKind.MATCH else picking.has_any,
        descendants=picking.descendants,
    )


def _picked_nodes(
    session: Session, panes: Panes, side: Side, names: tuple[str, ...]
) -> tuple[list[PickedNode], set[int]]:
    """Describe the picked nodes of a side, and give the rows that they stand in."""
    rows = rows_at(session, panes.pair.id, rows_named(session, panes.pair.id, side, names).tolist())
    known = {name: node_row(panes, side, row) for row in rows for name in getattr(row.tree, side)}
    nodes = [
        PickedNode(name, known[name].status, known[name].partner)
        if name in known
        else PickedNode(name, "absent", [])
        for name in names
    ]
    return nodes, {known[name].row for name in names if name in known}


class Step(Struct, frozen=True):
    """A version of a match set: what was done, and whether the version in force was made from it."""

    version: int
    says: Message
    in_force: bool
    at: datetime


class ResultsView(Struct, frozen=True, kw_only=True):
    """How far the results of a version are, what they say first, and the tree of the slice in them."""

    state: JobState
    summary: Message | None
    tone: str
    counts: Mapping[str, int] | None
    job: JobView
    address: str
    comparison: int
    tree: str


class StateView(Struct, frozen=True, kw_only=True):
    """Which version of a match set is in force, and what was done before.

    Attributes:
        id: of the match set; None of the comparison as it was found.
        shown: the comparison whose results are shown; `pending` are the edits since.
        undo: what would be undone; likewise redo.
        history: the newest versions; `older` is how many there are besides.
    """

    id: int | None
    name: str
    version: int
    shown: int
    pending: int
    edits: int
    undo: Message | None
    redo: Message | None
    results: ResultsView | None
    history: list[Step]
    older: int


def state_view(session: Session, known: MatchSet, position: int) -> StateView:
    """Say which version is in force, how far its results are, and what was done before."""
    said = {one.version: one.message() for one in known.versions}
    results = known.results()
    in_force = {one.version for one in known.chain()}
    shown, since = shown_results(session, known)
    history = [
        Step(one.version, said[one.version], one.version in in_force, one.made_at)
        for one in reversed(known.versions[-LATEST:])
    ]
    return StateView(
        id=known.id or None,
        name=known.name,
        version=known.version,
        shown=shown,
        pending=len(since),
        edits=len(known.edits()),
        undo=None if known.undone is None else said.get(known.version),
        redo=None if known.redone is None else said.get(known.redone),
        results=None if results is None else _results_view(session, results, position),
        history=history,
        older=max(0, len(known.versions) - LATEST),
    )


def _results_view(session: Session, comparison: int, position: int) -> ResultsView:
    summary = comparison_summary(session, get_comparison(session, comparison))
    return record_of(ResultsView, summary, comparison=comparison, tree=tree_address(comparison, position))


def trial_view(
    session: Session, context: Context, known: MatchSet, position: int, picking: Picking
) -> dict[str, Any]:
    """Say what the picked nodes, matched or taken apart, would change; or why they cannot be."""
    picked = picked_view(session, panes_of(session, context, known, position), picking)
    asked = (known.comparison_id, known.id or None, position)
    try:
        effect = effect_view(session, context, asked, (picking.edit(picked.kind),))
    except SettingsError as error:
        return {"kind": picked.kind, "version": known.version, "problem": refusal(error)}
    return effect | {"kind": picked.kind, "problem": None}


def ranked_view(
    session: Session, context: Context, known: MatchSet, position: int, picking: Picking
) -> dict[str, Any]:
    """Rank partners for the first node that is picked: of golden, unless only the target has one."""
    if not picking.has_any:
        raise SettingsError(Message.of("server.no_node_named"), hint=Message.of("server.pick_a_node"))
    side: Side = "golden" if picking.golden else "target"
    asked = (known.comparison_id, known.id or None, position)
    name = picking.names(side)[0]
    about = {"side": side, "of": name, "query": picking.query(picks=False), "problem": None}
    try:
        return about | suggestions_view(session, context, asked, {"golden": None, "target": None, side: name})
    except SettingsError as error:
        return about | {"suggestions": [], "problem": refusal(error)}
