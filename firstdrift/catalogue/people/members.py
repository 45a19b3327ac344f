"""Members: people who are let in by tokens of their own.

    add_member ─▶ token ─▶ member_of_token ─▶ who it is

Of a token only the digest is kept, so that the database opens nothing. Whether somebody is a member is asked
of the database each time: whoever was removed is none, at once.
"""

import re
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct
from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.lookup import added, record_of, required
from firstdrift.catalogue.secret import digest_of, new_secret
from firstdrift.catalogue.tables import MemberEntry
from firstdrift.errors import SettingsError
from firstdrift.wording.message import Message

LONGEST_NAME = 60
SEEN_EVERY = timedelta(minutes=1)
"""When somebody was seen last is known so exactly: not every page that they open is written down."""

_TOKEN = re.compile("[A-Za-z0-9_-]{43}")
_NAME = re.compile(rf"[\w.@+-][\w .@+-]{{0,{LONGEST_NAME - 1}}}(?<! )")


class Member(Struct, frozen=True):
    """A member; fields as those of `firstdrift.catalogue.tables.MemberEntry`."""

    id: int
    name: str
    may_write: bool
    added_at: datetime
    seen_at: datetime | None
    removed_at: datetime | None


_member = partial(record_of, Member)


def add_member(session: Session, name: str, *, may_write: bool = True) -> tuple[int, str]:
    """Let somebody in; return the id, and the token, which cannot be had again.

    Args:
        session: a writing session.
        name: letters, digits, blanks and any of . @ + - _; nobody else has it.
        may_write: whether they may change anything.

    Raises:
        SettingsError: there is such a member, or it is no name.
    """
    if _NAME.fullmatch(name) is None:
        raise SettingsError(
            Message.of("catalogue.member.no_name", name=name[:LONGEST_NAME]),
            hint=Message.of("catalogue.hint.name_a_member", most=LONGEST_NAME),
        )
    if session.scalar(select(MemberEntry.id).where(*_is_active(), MemberEntry.name == name)) is not None:
        raise SettingsError(
            Message.of("catalogue.member.known", name=name), hint=Message.of("catalogue.hint.remove_first")
        )
    token = new_secret()
    return added(session, MemberEntry(name=name, digest=digest_of(token), may_write=may_write)), token


def remove_member(session: Session, name: str) -> int:
    """Let somebody in no more, and end their sessions; return the id.

    Raises:
        NotInCatalogueError: there is no such member.
    """
    here = (*_is_active(), MemberEntry.name == name)
    absence = Message.of("catalogue.no_member", name=name)
    found = required(session.scalar(select(MemberEntry.id).where(*here)), absence)
    session.execute(update(MemberEntry).where(*here).values(removed_at=Now()))
    return found


def list_members(session: Session) -> tuple[Member, ...]:
    """List all members there are and were, those that are let in first, by name."""
    order = (MemberEntry.removed_at.is_not(None), MemberEntry.name, MemberEntry.id)
    return tuple(map(_member, session.scalars(select(MemberEntry).order_by(*order))))


def may_be_token(shown: str) -> bool:
    """Tell whether a text looks like the token of a member, so that asking is worth it."""
    return _TOKEN.fullmatch(shown) is not None


def member_of_token(session: Session, shown: str) -> Member | None:
    """Return whose token was shown; None if it is nobody's, or not any more."""
    return _found(session, MemberEntry.digest == digest_of(shown)) if may_be_token(shown) else None


def member_of(session: Session, number: int) -> Member | None:
    """Return a member by id; None if there is none, or not any more."""
    return _found(session, MemberEntry.id == number)


def note_member_seen(session: Session, number: int) -> None:
    """Keep that a member asked for something just now."""
    session.execute(update(MemberEntry).where(MemberEntry.id == number).values(seen_at=Now()))


def _found(session: Session, which: ColumnElement[bool]) -> Member | None:
    found = session.scalar(select(MemberEntry).where(which, *_is_active()))
    return None if found is None else _member(found)


def _is_active() -> tuple[ColumnElement[bool], ...]:
    return (MemberEntry.removed_at.is_(None),)
