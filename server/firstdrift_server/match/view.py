"""The Match page: the nodes of either side in panes, what is picked, what a match would change.

Rows come from the newest results that are finished; what was decided since, and is being measured, is marked
in them. So the page needs no dump and no plan: these are loaded for suggestions and previews only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.outline import Flags, Integers, Outline, rows_containing
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.sides import Sides, called, load_sides, rows_named
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, get_slice_label, slice_labels_of
from firstdrift.catalogue.comparisons.tree import Row, rows_at
from firstdrift.catalogue.matches.match_sets import MatchSet, list_match_sets
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import FirstdriftError, SettingsError
from firstdrift.matching.manual.edits import Edit, EditKind, checked
from firstdrift.matching.manual.mapping_files import LARGEST_FILE
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.match.sets import effect_view, set_of, suggestions_view
from firstdrift_server.parts.addresses import comparison_address, match_address, query_of, tree_address
from firstdrift_server.parts.summary import comparison_summary
from firstdrift_server.parts.workers import worker_view
from firstdrift_server.tree.state import Parameters, read_number

CHUNK = 50
"""Rows are sent in pieces of this size."""

FIRST_CHUNKS = 3
"""A pane begins with so many."""

LATEST = 12
"""Versions that the history shows."""

MOST_PENDING = 200
"""More nodes than this are not marked as being matched."""

Side = Literal["golden", "target"]
SIDES: tuple[Side, Side] = ("golden", "target")


@dataclass(frozen=True, slots=True)
class Picking:
    """What an address of the page says.

    Attributes:
        match_set: which set; None for the comparison as it was found.
        golden: names of the picked golden nodes, in the order in which they were picked; likewise target.
        kind: what is to be done with them; None to decide by what they are.
        show_all: also nodes that have a partner.
        text: part of a name, by side.
        start: place of the first row that a pane shows, by side; None for where something is picked.
    """

    match_set: int | None = None
    golden: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    kind: EditKind | None = None
    descendants: bool = True
    show_all: bool = False
    text: tuple[str, str] = ("", "")
    start: tuple[int | None, int | None] = (None, None)

    @classmethod
    def read(cls, parameters: Parameters) -> Self:
        """Read an address or a form.

        Raises:
            SettingsError: a value makes no sense.
        """
        kind = parameters.get("kind") or ""
        if kind not in ("", *EditKind):
            raise SettingsError(
                Message.of("server.no_such_edit", kind=kind[:20]),
                hint=Message.of("server.choose", names=tuple(map(str, EditKind))),
            )
        finds, starts = [[parameters.get(f"{what}_{side}") for side in SIDES] for what in ("find", "from")]
        return cls(
            match_set=read_number(parameters.get("set"), "set") or None,
            golden=tuple(dict.fromkeys(filter(None, parameters.getlist("golden")))),
            target=tuple(dict.fromkeys(filter(None, parameters.getlist("target")))),
            kind=EditKind(kind) if kind else None,
            # A box that is not ticked is not sent at all, so the form says beside it that there is one.
            descendants=parameters.get("descendants") == "yes" or parameters.get("descendants_box") is None,
            show_all=parameters.get("show") == "all",
            text=((finds[0] or "").strip(), (finds[1] or "").strip()),
            start=(read_number(starts[0], "from"), read_number(starts[1], "from")),
        )

    def names(self, side: Side) -> tuple[str, ...]:
        """Return the names that are picked of a side."""
        return self.golden if side == "golden" else self.target

    @property
    def has_any(self) -> bool:
        """True if a node is picked."""
        return bool(self.golden or self.target)

    def edit(self, kind: EditKind) -> Edit:
        """Give what is to be done with the picked nodes.

        Raises:
            SettingsError: it makes no sense, and why.
        """
        return checked(Edit(kind, self.golden, self.target, self.descendants))

    def query(self, *, picks: bool = True) -> str:
        """Write what the page shows as the part of an address after the question mark."""
        finds = [(f"find_{side}", text) for side, text in zip(SIDES, self.text, strict=True)]
        said = [("set", str(self.match_set or "")), ("show", "all" if self.show_all else ""), *finds]
        if picks:
            said += [(side, name) for side in SIDES for name in self.names(side)]
            said += [] if self.descendants else [("descendants_box", "1")]
        return query_of([(name, value) for name, value in said if value])


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
    """Look up the rows of the newest finished results, and mark what was decided since.

    Raises:
        NotInCatalogueError: there is no such slice (yet).
    """
    comparison, since = shown_results(session, known)
    pair = get_slice_label(session, comparison, position)
    return _panes(session, context, comparison, pair, since)


def _panes(
    session: Session, context: Context, comparison: int, pair: SliceLabel, since: Sequence[Edit]
) -> Panes:
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


def match_view(
    session: Session, context: Context, comparison: int, position: int, picking: Picking
) -> dict[str, Any]:
    """Lay out the page.

    Raises:
        NotInCatalogueError: there is no such comparison, slice or match set.
    """
    known = set_of(session, comparison, picking.match_set)
    panes = panes_of(session, context, known, position)
    address, query = match_address(comparison, position), picking.query()
    known_sets = list_match_sets(session, comparison)
    return {
        "comparison": comparison_summary(session, get_comparison(session, comparison)),
        "comparison_address": comparison_address(comparison, slice=position),
        "address": address,
        "query": query,
        "view_query": picking.query(picks=False),
        "here": f"{address}?{query}" if query else address,
        "tree": tree_address(comparison, position),
        "slice": position,
        "slice_name": panes.pair.target.describe(),
        "slices": _slices(session, comparison, picking),
        "sets": [{"id": one.id, "name": one.name, "version": one.version} for one in known_sets],
        "free_number": _free_number(session, comparison),
        "picking": picking,
        "chunk": CHUNK,
        "largest_file": LARGEST_FILE,
        "panes": {side: _pane_view(session, panes, side, picking) for side in SIDES},
        "picked": picked_view(session, panes, picking),
        "state": state_view(session, known, position),
        "effect": None,
        "suggestions": None,
        "problem": None,
        "worker": worker_view(session),
    }


def _slices(session: Session, comparison: int, picking: Picking) -> list[dict[str, Any]]:
    query = picking.query(picks=False)
    return [
        {
            "slice": pair.position,
            "name": pair.target.describe(),
            "address": match_address(comparison, pair.position) + (f"?{query}" if query else ""),
        }
        for pair in slice_labels_of(session, comparison)
    ]


def _free_number(session: Session, comparison: int) -> int:
    """Return a number for the name of the next match set."""
    return 1 + sum(len(list_match_sets(session, comparison, deleted=deleted)) for deleted in (False, True))


def _pane_view(session: Session, panes: Panes, side: Side, picking: Picking) -> dict[str, Any]:
    listing = listing_of(session, panes, side, picking)
    picked = rows_named(session, panes.pair.id, side, picking.names(side))
    place = listing.place_of(picked)
    if place is None:
        first = np.flatnonzero(panes.free[listing.visible])
        place = int(first[0]) if len(first) else 0
    wanted = picking.start[SIDES.index(side)]
    start = max(0, place // CHUNK - 1) * CHUNK if wanted is None else wanted // CHUNK * CHUNK
    rows = rows_view(session, panes, listing, (side, picking.names(side)), start, FIRST_CHUNKS * CHUNK)
    return {
        "side": side,
        "text": picking.text[SIDES.index(side)],
        **_counts(panes, side),
        "total": len(listing.visible),
        "place": place,
        "start": start,
        "before": max(0, start - FIRST_CHUNKS * CHUNK) if start else None,
        "after": start + FIRST_CHUNKS * CHUNK if start + len(rows) < len(listing.visible) else None,
        "rows": rows,
    }


def _counts(panes: Panes, side: Side) -> dict[str, int]:
    has_node = panes.of(side)
    return {
        "nodes": int(has_node.sum()),
        "free": int((has_node & panes.free & panes.outline.unmatched).sum()),
        "doubtful": int((has_node & panes.free & panes.sides.doubtful).sum()),
    }


def rows_of_pane(
    session: Session, panes: Panes, side: Side, picking: Picking, parameters: Parameters
) -> dict[str, Any]:
    """Give pieces of a pane, and the place that is asked for.

    | parameter  | place                                                                |
    | ---------- | -------------------------------------------------------------------- |
    | next=12    | of the next row after place 12 that waits for a decision; then again |
    |            | from the top; -1 stands for before the first                         |
    | place_of=1 | of the first node that is picked of this side                        |

    Raises:
        SettingsError: a parameter makes no sense.
    """
    listing = listing_of(session, panes, side, picking)
    asked = parameters.get("chunks") or ""
    numbers = [read_number(part, "chunk") for part in asked.split(".")] if asked else []
    place = None
    if (after := parameters.get("next")) is not None:
        free = np.flatnonzero(panes.free[listing.visible] & listing.wanted[listing.visible])
        later = free[free > (-1 if after == "-1" else read_number(after, "next") or 0)]
        place = int(later[0]) if len(later) else int(free[0]) if len(free) else None
    elif parameters.get("place_of") is not None:
        place = listing.place_of(rows_named(session, panes.pair.id, side, picking.names(side)))
    if place is not None:
        numbers.append(place // CHUNK)
    picks = (side, picking.names(side))
    return {
        "side": side,
        "total": len(listing.visible),
        **_counts(panes, side),
        "place": place,
        "chunks": [
            (number, rows_view(session, panes, listing, picks, number * CHUNK, CHUNK))
            for number in numbers[:8]
            if number is not None
        ],
    }


def rows_view(
    session: Session,
    panes: Panes,
    listing: Listing,
    picks: tuple[Side, tuple[str, ...]],
    start: int,
    count: int,
) -> list[dict[str, Any]]:
    """Describe the rows of a pane from a place on, at most `count`."""
    side, picked = picks
    rows = rows_at(session, panes.pair.id, listing.visible[start : start + count].tolist())
    golden = _called(session, panes, side, rows)
    return [
        node_view(panes, side, row)
        | {
            "place": place,
            "label": row.tree.label,
            "is_context": not listing.wanted[row.tree.index],
            "is_picked": bool(set(getattr(row.tree, side)) & set(picked)),
        }
        | golden.get(row.tree.index, {})
        for place, row in enumerate(rows, start)
    ]


def node_view(panes: Panes, side: Side, row: Row) -> dict[str, Any]:
    """Describe the node, or the nodes, of a side in a row."""
    index = row.tree.index
    other = "target" if side == "golden" else "golden"
    if panes.pending[index]:
        status = "pending"
    elif row.match is None:
        status = "unmatched"
    else:
        status = "doubtful" if row.match.doubtful else "matched"
    return {
        "row": index,
        "names": list(getattr(row.tree, side)),
        "partner": list(getattr(row.tree, other)),
        "status": status,
        "depth": row.tree.depth,
        "kind": str(row.tree.kind),
        "type_name": row.tree.type_name,
        "direction": str(row.tree.direction),
    }


def _called(session: Session, panes: Panes, side: Side, rows: Iterable[Row]) -> dict[int, dict[str, str]]:
    """Say what the golden nodes are called of rows that are named after target nodes of other names."""
    if side == "target":
        return {}
    others = {row.tree.index: row.tree.golden for row in rows if row.tree.target not in ((), row.tree.golden)}
    wanted = [name for names in others.values() for name in names]
    known = called(session, panes.pair.golden_slice_id, wanted)
    found = {index: [known.get(name, (name, "")) for name in names] for index, names in others.items()}
    return {
        index: {"label": ", ".join(label for label, _ in each), "type_name": each[0][1]}
        for index, each in found.items()
    }


def picked_view(session: Session, panes: Panes, picking: Picking) -> dict[str, Any]:
    """Say what is picked, what it is matched with, and what can be done with it."""
    sides: dict[str, list[dict[str, Any]]] = {}
    indexes: dict[str, set[int]] = {}
    for side in SIDES:
        names = picking.names(side)
        rows = rows_at(session, panes.pair.id, rows_named(session, panes.pair.id, side, names).tolist())
        by_name = {name: row for row in rows for name in getattr(row.tree, side)}
        sides[side] = [
            {"name": name}
            | (node_view(panes, side, by_name[name]) if name in by_name else {"status": "absent"})
            for name in names
        ]
        indexes[side] = {by_name[name].tree.index for name in names if name in by_name}
    everything = [one for side in SIDES for one in sides[side]]
    matched = bool(everything) and any(one["status"] in ("matched", "doubtful") for one in everything)
    of_each_other = bool(indexes["golden"]) and indexes["golden"] == indexes["target"]
    certain = all(one["status"] == "matched" for one in everything)
    kind = picking.kind or (EditKind.UNMATCH if of_each_other and certain else EditKind.MATCH)
    return {
        "golden": sides["golden"],
        "target": sides["target"],
        "kind": str(kind),
        "can_match": bool(picking.golden and picking.target),
        "can_unmatch": matched,
        "is_too_many": min(len(picking.golden), len(picking.target)) > 1,
        "is_ready": bool(picking.golden and picking.target) if kind is EditKind.MATCH else bool(everything),
        "descendants": picking.descendants,
    }


def state_view(session: Session, known: MatchSet, position: int) -> dict[str, Any]:
    """Say which version is in force, how far its results are, and what was done before."""
    said = {one.version: one.describe() for one in known.versions}
    results = known.results()
    in_force = {one.version for one in known.chain()}
    shown, since = shown_results(session, known)
    return {
        "id": known.id or None,
        "name": known.name,
        "version": known.version,
        "shown": shown,
        "pending": len(since),
        "edits": len(known.edits()),
        "undo": said.get(known.version) if known.undone is not None else None,
        "redo": said.get(known.redone) if known.redone is not None else None,
        "results": None if results is None else _results_view(session, results, position),
        "history": [
            {
                "version": one.version,
                "says": one.describe(),
                "in_force": one.version in in_force,
                "at": one.made_at,
            }
            for one in reversed(known.versions[-LATEST:])
        ],
        "older": max(0, len(known.versions) - LATEST),
    }


def _results_view(session: Session, comparison: int, position: int) -> dict[str, Any]:
    summary = comparison_summary(session, get_comparison(session, comparison))
    shown = ("state", "summary", "tone", "counts", "job", "address")
    return {name: summary[name] for name in shown} | {
        "comparison": comparison,
        "tree": tree_address(comparison, position),
    }


def trial_view(
    session: Session, context: Context, known: MatchSet, position: int, picking: Picking
) -> dict[str, Any]:
    """Say what the picked nodes, matched or taken apart, would change; or why they cannot be.

    Raises:
        NotInCatalogueError: there is no such comparison or slice.
    """
    picked = picked_view(session, panes_of(session, context, known, position), picking)
    kind = EditKind(picked["kind"])
    asked = (known.comparison_id, known.id or None, position)
    try:
        effect = effect_view(session, context, asked, (picking.edit(kind),))
    except SettingsError as error:
        return {"kind": str(kind), "version": known.version, "problem": _said(error)}
    return effect | {"kind": str(kind), "problem": None}


def ranked_view(
    session: Session, context: Context, known: MatchSet, position: int, picking: Picking
) -> dict[str, Any]:
    """Rank partners for the first node that is picked: of golden, unless only the target has one.

    Raises:
        NotInCatalogueError: there is no such comparison or slice.
        SettingsError: nothing is picked.
    """
    if not picking.has_any:
        raise SettingsError(Message.of("server.no_node_named"), hint=Message.of("server.pick_a_node"))
    side: Side = "golden" if picking.golden else "target"
    asked = (known.comparison_id, known.id or None, position)
    names = {side: picking.names(side)[0]}
    about = {"side": side, "of": names[side], "query": picking.query(picks=False)}
    try:
        found = suggestions_view(session, context, asked, {"golden": None, "target": None} | names)
    except SettingsError as error:
        return about | {"suggestions": [], "problem": _said(error)}
    return about | {"suggestions": found["suggestions"], "problem": None}


def _said(error: FirstdriftError) -> dict[str, Message | None]:
    return {"error": error.message, "hint": error.advice}
