"""What people write about nodes.

A note belongs to a node of a slice, not to a row of a tree: it stays where it is when a comparison is judged
again, and shows on the results of every match set.
"""

from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import Double, func, select, type_coerce, update
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.lookup import added, record_of, required
from firstdrift.catalogue.sharing.links import shared_comparison
from firstdrift.catalogue.tables import NodeNoteEntry
from firstdrift.errors import QuotaError, SettingsError
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

LONGEST_TEXT = 4000
LONGEST_NAME = 80
MOST_NOTES = 2000
"""So many notes one comparison can have; those that were deleted do not count."""

MOST_OF_LINK = 500
"""So many of them can come through one link; and so many of its notes can be written in an hour, deleted ones
among them, with so many characters of text: whoever has it cannot fill up what all share."""

MOST_AN_HOUR = 100
MOST_CHARACTERS_AN_HOUR = 100_000
HOUR = 3600.0

UNDO = timedelta(minutes=30)
"""So long a deleted note is offered back."""


class NodeNote(Struct, frozen=True):
    """A note; fields as those of `firstdrift.catalogue.tables.NodeNoteEntry`."""

    id: int
    comparison_id: int
    coordinates: Coordinates
    side: str
    node: str
    author: str
    text: str
    link_id: int | None
    written_at: datetime
    deleted_at: datetime | None

    def is_about(self, pair: SliceLabel, row: TreeRow) -> bool:
        """Tell whether it is about the node of a row of a slice."""
        return self.coordinates == pair.target and self.node in getattr(row, self.side)


def add_note(
    session: Session, pair: SliceLabel, row: TreeRow, author: str, text: str, *, link: int | None = None
) -> int:
    """Write a note about the node of a row; return its id.

    Args:
        session: a writing session.
        pair: the slice that the row is in.
        row: of its tree.
        author: as they call themselves.
        text: what they say.
        link: through which link they came; None for somebody with the token.

    Raises:
        SettingsError: name or text is empty or too long, or there are too many notes.
        QuotaError: too much was written through that link.
    """
    author, text = author.strip(), text.replace("\r\n", "\n").strip()
    name, note = Message.of("catalogue.note.name"), Message.of("catalogue.note.text")
    for what, written, most in ((name, author, LONGEST_NAME), (note, text, LONGEST_TEXT)):
        if not written:
            raise SettingsError(
                Message.of("catalogue.note.empty", what=what),
                hint=Message.of("catalogue.hint.write_something"),
            )
        if len(written) > most:
            raise SettingsError(Message.of("catalogue.note.long", what=what, most=most))
    comparison = shared_comparison(session, pair.comparison_id)
    _require_room(session, comparison)
    if link is not None:
        _require_room_of_link(session, link, len(text))
    side = row.side
    entry = NodeNoteEntry(
        comparison_id=comparison,
        coordinates=pair.target,
        side=side,
        node=getattr(row, side)[0],
        author=author,
        text=text,
        link_id=link,
    )
    return added(session, entry)


def notes_of(session: Session, comparison_id: int) -> tuple[NodeNote, ...]:
    """List the notes on nodes of a comparison, the oldest first; those just deleted are among them."""
    shown = shared_comparison(session, comparison_id)
    recent = NodeNoteEntry.deleted_at.is_(None) | (NodeNoteEntry.deleted_at > Now(-UNDO.total_seconds()))
    here = (NodeNoteEntry.comparison_id == shown, recent)
    found = session.scalars(select(NodeNoteEntry).where(*here).order_by(NodeNoteEntry.id))
    return tuple(record_of(NodeNote, entry) for entry in found)


def get_note(session: Session, comparison_id: int, note_id: int) -> NodeNote:
    """Look up a note, also a deleted one."""
    shown = shared_comparison(session, comparison_id)
    here = (NodeNoteEntry.id == note_id, NodeNoteEntry.comparison_id == shown)
    absence = Message.of("catalogue.no_note", comparison=comparison_id, note=note_id)
    return record_of(NodeNote, required(session.scalar(select(NodeNoteEntry).where(*here)), absence))


def delete_note(session: Session, note_id: int) -> None:
    """Delete a note; `restore_note` takes it back."""
    here = (NodeNoteEntry.id == note_id, NodeNoteEntry.deleted_at.is_(None))
    session.execute(update(NodeNoteEntry).where(*here).values(deleted_at=Now()))


def restore_note(session: Session, note_id: int) -> None:
    """Take a deleted note back.

    Raises:
        SettingsError: there are too many notes by now.
    """
    here = (NodeNoteEntry.id == note_id, NodeNoteEntry.deleted_at.is_not(None))
    comparison = session.scalar(select(NodeNoteEntry.comparison_id).where(*here))
    if comparison is not None:
        _require_room(session, comparison)
        session.execute(update(NodeNoteEntry).where(*here).values(deleted_at=None))


def _require_room_of_link(session: Session, link: int, more: int) -> None:
    """Make sure that a note of so many characters may be written through a link.

    Raises:
        QuotaError: it may not, and when it may.
    """
    one = NodeNoteEntry
    lasting = select(func.count()).where(one.link_id == link, one.deleted_at.is_(None))
    written, age = type_coerce(one.written_at, Double), type_coerce(Now(), Double)
    lately = select(func.count(), func.sum(func.length(one.text)), age - func.min(written))
    count, size, oldest = session.execute(lately.where(one.link_id == link, written > age - HOUR)).one()
    is_full = (session.scalar(lasting) or 0) >= MOST_OF_LINK
    if is_full or count >= MOST_AN_HOUR or (size or 0) + more > MOST_CHARACTERS_AN_HOUR:
        raise QuotaError(
            Message.of("catalogue.note.many_of_link", notes=MOST_OF_LINK, an_hour=MOST_AN_HOUR),
            seconds=HOUR if is_full else max(1.0, HOUR - (oldest or 0.0)),
            hint=Message.of("catalogue.hint.later_or_delete"),
        )


def _require_room(session: Session, comparison: int) -> None:
    here = (NodeNoteEntry.comparison_id == comparison, NodeNoteEntry.deleted_at.is_(None))
    if (session.scalar(select(func.count()).where(*here)) or 0) >= MOST_NOTES:
        raise SettingsError(
            Message.of("catalogue.note.many", most=MOST_NOTES), hint=Message.of("catalogue.hint.delete_some")
        )
