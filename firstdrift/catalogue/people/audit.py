"""The audit log: who did what to what, and when.

    with writing(engine) as session:
        delete_comparison(session, 7)
        enter(session, Deed(Act.DELETED, Who(Actor.MEMBER, "ann", 3), "192.0.2.7", comparison=7))

An entry is written in the transaction of the change: both are there, or neither. It holds no secret, and
stays when what it is about is gone. What is done again and again (`OFTEN`), and whatever comes through a
link, is one entry for each hour, with how often it was.
"""

import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Select, delete, exists, func, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.lookup import record_of
from firstdrift.catalogue.tables import AuditEntry, JobEntry, MatchSetEntry

KEPT_DAYS = 400
"""So long an entry is kept: a year, and what it takes to ask about it."""

HOUR = timedelta(hours=1)
MOST_ADDRESSES = 50
"""Of strangers from so many addresses an hour each has an entry; what comes from others is one together."""

LONGEST_SUBJECT = 4096
LONGEST_USER = 200
"""PostgreSQL refuses entries whose name is too long for an index."""

_MOST_DIGITS = 18


class Actor(StrEnum):
    """Who did something: "open" is anybody where no token is asked for, "stranger" somebody without one."""

    OWNER = "owner"
    MEMBER = "member"
    LINK = "link"
    OPEN = "open"
    STRANGER = "stranger"
    TERMINAL = "terminal"


class Act(StrEnum):
    """What was done."""

    COMPARED = "compared"
    JUDGED_AGAIN = "judged again"
    COMPARED_NEW = "compared new"
    FOLLOWED = "followed"
    DESCRIBED = "described"
    CANCELLED = "cancelled"
    DELETED = "deleted"
    RESTORED = "restored"
    DUMP_READ = "dump read"
    UPLOAD_BEGUN = "upload begun"
    PART_SENT = "part sent"
    UPLOADED = "uploaded"
    UPLOAD_CANCELLED = "upload cancelled"
    UPLOAD_DELETED = "upload deleted"
    UPLOAD_RESTORED = "upload restored"
    MATCHED = "matched"
    UNDONE = "undone"
    REDONE = "redone"
    SET_BEGUN = "set begun"
    SET_RENAMED = "set renamed"
    SET_DELETED = "set deleted"
    SET_RESTORED = "set restored"
    IMPORTED = "imported"
    SHARED = "shared"
    REVOKED = "revoked"
    OPENED = "opened"
    EXPORTED = "exported"
    NOTE_WRITTEN = "note written"
    NOTE_DELETED = "note deleted"
    NOTE_RESTORED = "note restored"
    LOGGED_IN = "logged in"
    LOGGED_OUT = "logged out"
    REFUSED = "refused"
    MEMBER_ADDED = "member added"
    MEMBER_REMOVED = "member removed"


OFTEN = frozenset({Act.PART_SENT, Act.OPENED, Act.EXPORTED, Act.REFUSED})
"""What is done again and again, and what strangers can do as often as they like."""


class Who(Struct, frozen=True):
    """Who did something: a kind, the name of a member or the label of a link, and its id."""

    actor: Actor
    name: str = ""
    number: int | None = None


class Deed(Struct, frozen=True):
    """What was done; fields as those of `firstdrift.catalogue.tables.AuditEntry`."""

    act: Act
    who: Who
    address: str = ""
    comparison: int | None = None
    kind: str = ""
    subject: str = ""


class Entered(Struct, frozen=True):
    """An entry of the log; fields as those of `firstdrift.catalogue.tables.AuditEntry`."""

    id: int
    at: datetime
    until: datetime
    times: int
    actor: str
    name: str
    number: int | None
    address: str
    act: str
    comparison_id: int | None
    kind: str
    subject: str


class Sought(Struct, frozen=True):
    """Which entries are asked for; what is empty leaves all.

    Attributes:
        who: "owner", "open", "stranger", "terminal", "member:NAME" or "link:ID".
        act: what was done.
        comparison: to which comparison.
        before: the id of the entry after which the list goes on.
    """

    who: str = ""
    act: str = ""
    comparison: int | None = None
    before: int | None = None


_NAMELESS = frozenset({Actor.OWNER, Actor.OPEN, Actor.STRANGER})

_entered = partial(record_of, Entered)


def at_terminal() -> Who:
    """Say who does something on the command line: the user of the system."""
    try:
        return Who(Actor.TERMINAL, getpass.getuser()[:LONGEST_USER])  # any text, if the environment says so
    except (KeyError, OSError):  # in a container, a user may have no name
        return Who(Actor.TERMINAL, f"{os.getuid()}")


def enter(session: Session, deed: Deed, times: int = 1) -> None:
    """Write an entry of what was done so often, in the transaction of the change."""
    known = _completed(session, deed)
    if known.act in OFTEN or known.who.actor is Actor.LINK:
        if _counted(session, known, times):
            return
        if _is_crowded(session, known):
            known = replace(known, address="")
            if _counted(session, known, times):
                return
    session.add(AuditEntry(**_columns(known), times=times))


def entries(session: Session, sought: Sought, limit: int) -> tuple[Entered, ...]:
    """List the entries that are asked for, the newest first."""
    found = select(AuditEntry).where(*_conditions(sought)).order_by(AuditEntry.id.desc()).limit(limit)
    return tuple(map(_entered, session.scalars(found)))


def those_known(session: Session) -> tuple[str, ...]:
    """List all who are in the log, as `Sought.who` names them."""
    members = _each(session, AuditEntry.name, Actor.MEMBER)
    links = _each(session, AuditEntry.number, Actor.LINK)
    alone = [actor for actor in Actor if actor not in (Actor.MEMBER, Actor.LINK)]
    here = [actor for actor in alone if session.scalar(_is_there(actor))]
    known = (
        *(Who(Actor.MEMBER, name=name) for name in members),
        *(Who(Actor.LINK, number=number) for number in links),
        *map(Who, here),
    )
    return tuple(sorted(map(name_of, known)))


def _is_there(actor: Actor) -> Select[bool]:
    return select(exists().where(AuditEntry.actor == actor.value))


def _each(session: Session, column: InstrumentedAttribute[Any], actor: Actor) -> Sequence[Any]:
    """List what stands in a column of entries of a kind, each once, going from one to the next in its index.

    However often each is there, it is looked at once, so that this takes as long for a million entries as
    for a hundred.
    """
    after = select(func.min(column)).where(AuditEntry.actor == actor.value)
    walk = after.cte("walk", recursive=True)
    (here,) = walk.columns
    following = after.where(column > here).correlate(walk).scalar_subquery()
    walk = walk.union_all(select(following).where(here.is_not(None)))
    (found,) = walk.columns
    return session.scalars(select(found).where(found.is_not(None))).all()


def name_of(who: Who) -> str:
    """Name somebody as `Sought.who` does."""
    of_kind: Mapping[Actor, object] = {Actor.MEMBER: who.name, Actor.LINK: who.number}
    return f"{who.actor}:{of_kind[who.actor]}" if who.actor in of_kind else who.actor


def purge_audit(session: Session, *, older_than: timedelta = timedelta(days=KEPT_DAYS)) -> None:
    """Remove for good what was done so long ago."""
    session.execute(delete(AuditEntry).where(AuditEntry.until < Now(-older_than.total_seconds())))


def _completed(session: Session, deed: Deed) -> Deed:
    """Add of which comparison a match set or a job is, where only that was said."""
    subject = deed.subject[:LONGEST_SUBJECT]
    owner = _OWNERS.get(deed.kind)
    if owner is None or deed.comparison is not None:
        return replace(deed, subject=subject)
    found = session.scalar(select(owner.comparison_id).where(owner.id == id_in(subject)))
    return replace(deed, subject=subject, comparison=found)


_OWNERS: Mapping[str, type[MatchSetEntry] | type[JobEntry]] = {"match_set": MatchSetEntry, "job": JobEntry}


def _counted(session: Session, deed: Deed, times: int) -> bool:
    """Count a deed where the same was done within the hour; tell whether it was."""
    recent = AuditEntry.at > Now(-HOUR.total_seconds())
    values = _columns(deed)
    same = [getattr(AuditEntry, name).is_not_distinct_from(value) for name, value in values.items()]
    found = session.scalar(select(func.max(AuditEntry.id)).where(recent, *same))
    if found is None:
        return False
    more = {"times": AuditEntry.times + times, "until": Now()}
    session.execute(update(AuditEntry).where(AuditEntry.id == found).values(more))
    return True


def _is_crowded(session: Session, deed: Deed) -> bool:
    """Tell whether strangers have written as many entries as they may within the hour."""
    if deed.who.actor not in (Actor.STRANGER, Actor.LINK):
        return False
    recent = (
        AuditEntry.at > Now(-HOUR.total_seconds()),
        AuditEntry.act == deed.act.value,
        AuditEntry.actor == deed.who.actor.value,
        AuditEntry.number.is_not_distinct_from(deed.who.number),
    )
    return (session.scalar(select(func.count()).where(*recent)) or 0) >= MOST_ADDRESSES


def _columns(deed: Deed) -> dict[str, object]:
    return {
        "actor": deed.who.actor.value,
        "name": deed.who.name,
        "number": deed.who.number,
        "address": deed.address,
        "act": deed.act.value,
        "comparison_id": deed.comparison,
        "kind": deed.kind,
        "subject": deed.subject,
    }


def _conditions(sought: Sought) -> Iterator[ColumnElement[bool]]:
    actor, _, which = sought.who.partition(":")
    if actor:
        yield AuditEntry.actor == actor
    if actor in _NAMELESS:
        yield AuditEntry.name == ""  # by which its index gives them in their order
    if which:
        yield AuditEntry.number == id_in(which) if actor == Actor.LINK else AuditEntry.name == which
    if sought.act:
        yield AuditEntry.act == sought.act
    if sought.comparison is not None:
        yield AuditEntry.comparison_id == sought.comparison
    if sought.before is not None:
        yield AuditEntry.id < sought.before


def id_in(text: str) -> int | None:
    """Read an id; None where a text is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None
