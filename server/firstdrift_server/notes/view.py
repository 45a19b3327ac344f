"""What people wrote about nodes: beside a node, and all of a comparison."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, get_slice_label, slice_labels_of
from firstdrift.catalogue.comparisons.tree import get_row, rows_of_nodes
from firstdrift.catalogue.sharing.notes import NodeNote, add_note, get_note, notes_of
from firstdrift.exports.report_json import coordinates_object
from firstdrift.groups import fields_of, gathered
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import node_address
from firstdrift_server.visitors import Viewer, viewer_of


def notes_view(session: Session, pair: SliceLabel, row: TreeRow) -> dict[str, Any]:
    """Give the notes about the node of a row, and where they are written to."""
    return {
        "notes": [
            note_view(note) for note in notes_of(session, pair.comparison_id) if note.is_about(pair, row)
        ],
        "address": f"{node_address(pair.comparison_id, pair.position, row.index)}/notes",
        "changes": f"/c/{pair.comparison_id}/notes",
    }


def note_view(note: NodeNote) -> dict[str, Any]:
    """Describe a note."""
    names = ("id", "author", "text", "link_id", "written_at")
    return fields_of(note, names) | {"is_deleted": note.deleted_at is not None}


def noted_nodes(session: Session, comparison_id: int) -> list[dict[str, Any]]:
    """List the notes of a comparison, each with its node and where that is; those deleted are left out.

    A node that the results have no more (such as of other slices) has no address.
    """
    notes = [note for note in notes_of(session, comparison_id) if note.deleted_at is None]
    addresses = _addresses(session, comparison_id, notes)
    return [
        note_view(note)
        | {
            "node": note.node,
            "side": note.side,
            "where": note.coordinates.name(),
            "coordinates": coordinates_object(note.coordinates),
            "address": addresses.get((note.coordinates, note.side, note.node)),
        }
        for note in notes
    ]


def _addresses(
    session: Session, comparison_id: int, notes: Sequence[NodeNote]
) -> dict[tuple[Coordinates, str, str], str]:
    """Say where the nodes are that notes are about, by slice, side and name."""
    pairs = {pair.target: pair for pair in slice_labels_of(session, comparison_id)} if notes else {}
    wanted = gathered(
        ((note.coordinates, note.side), note.node) for note in notes if note.coordinates in pairs
    )
    return {
        (where, side, name): node_address(comparison_id, pairs[where].position, row)
        for (where, side), names in wanted.items()
        for name, row in rows_of_nodes(session, pairs[where].id, side, names).items()
    }


def write_note(session: Session, viewer: Viewer, place: tuple[int, int, int], author: str, text: str) -> int:
    """Write a note about the node at a place (comparison, position of the slice, row); return its id."""
    comparison, position, index = place
    pair = get_slice_label(session, comparison, position)
    row = get_row(session, pair.id, index).tree
    return add_note(session, pair, row, author, text, link=viewer.link.id if viewer.link else None)


def require_own(request: Request, context: Context, comparison: int, note: int) -> None:
    """Make sure that a note is there, and that whoever asks may change it."""
    known = context.read(get_note, comparison, note)
    if not viewer_of(request).may_change(known.link_id):
        raise HTTPException(HTTPStatus.NOT_FOUND, Message.of("server.no_note_of_yours"))
