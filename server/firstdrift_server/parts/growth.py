"""A dump that is still being written, as pages say it."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.dumps.following import QUIET_SECONDS, follow_again, is_followed, stop_following
from firstdrift.catalogue.dumps.records import get_dump, has_unfinished, load_dump
from firstdrift.wording.message import Message


class UnfinishedSlice(Struct, frozen=True):
    """A slice that is not complete, and what shows it."""

    name: Message
    reason: Message


class Growing(Struct, frozen=True):
    """A dump that is still being written, or was a moment ago.

    Attributes:
        side: of a comparison, "golden" or "target"; None of a dump by itself.
        complete: how many of its slices are complete.
        is_followed: it is looked at again by itself, until it has not changed for so many `minutes`.
    """

    side: str | None
    path: str
    complete: int
    unfinished: list[UnfinishedSlice]
    is_followed: bool
    minutes: int


def growing(session: Session, dump_id: int | None, side: str | None = None) -> Growing | None:
    """Describe a dump that grows; None if it does not, as far as that is known."""
    if dump_id is None:
        return None
    followed = is_followed(session, get_dump(session, dump_id).path)
    if not followed and not has_unfinished(session, dump_id):
        return None
    dump = load_dump(session, dump_id)
    unfinished = [UnfinishedSlice(one.listing.coordinates.name(), one.reason) for one in dump.unfinished]
    return Growing(side, str(dump.path), len(dump.slices), unfinished, followed, round(QUIET_SECONDS / 60))


def set_followed(session: Session, paths: Iterable[Path], *, stops: bool) -> None:
    """Look at dumps again by itself, or no more, as a person asks for it."""
    for path in paths:
        (stop_following if stops else follow_again)(session, path)
