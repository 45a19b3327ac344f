"""Who changed what: some entries of the audit log, and what else may be asked for."""

from datetime import datetime
from typing import Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.people.audit import Act, Actor, Entered, Sought, Who, entries, name_of, those_known
from firstdrift.exports.audit import of_what
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import query_of

PAGE: Final = 100


class EntryView(Struct, frozen=True):
    """An entry: when, who, from where, what, of what, and where more of the same person or thing is."""

    id: int
    at: datetime
    until: datetime
    times: int
    actor: str
    name: str
    address: str
    act: str
    comparison: int | None
    kind: str
    of_what: Message | None
    by_who: str
    by_act: str


class WhoView(Struct, frozen=True):
    """Somebody who is in the log: as an address names them, and what to call them."""

    value: str
    actor: str
    name: str


class AuditView(Struct, frozen=True):
    """A page of the log.

    Attributes:
        who: whose entries are shown; empty for all.
        act: what was done in them; empty for all.
        comparison: to which comparison; None for all.
        is_narrowed: whether any of the three leaves something out.
        known: all who are in the log.
        acts: all that may have been done.
        entries: the newest first.
        older: where the list goes on; None at its end.
        newest: where it begins; None there.
    """

    who: str
    act: str
    comparison: int | None
    is_narrowed: bool
    known: list[WhoView]
    acts: list[str]
    entries: list[EntryView]
    older: str | None
    newest: str | None


def audit_view(session: Session, sought: Sought) -> AuditView:
    """Lay out the entries that are asked for."""
    found = entries(session, sought, PAGE + 1)
    shown = found[:PAGE]
    older = _address(sought, before=shown[-1].id) if len(found) > PAGE else None
    return AuditView(
        who=sought.who,
        act=sought.act,
        comparison=sought.comparison,
        is_narrowed=bool(sought.who or sought.act or sought.comparison is not None),
        known=[_who_view(value) for value in those_known(session)],
        acts=[act.value for act in Act],
        entries=list(map(_entry_view, shown)),
        older=older,
        newest=None if sought.before is None else _address(sought, before=None),
    )


def _entry_view(entry: Entered) -> EntryView:
    who = Who(Actor(entry.actor), entry.name, entry.number)
    called = entry.name or ("" if entry.number is None else f"{entry.number}")
    return EntryView(
        id=entry.id,
        at=entry.at,
        until=entry.until,
        times=entry.times,
        actor=entry.actor,
        name=called,
        address=entry.address,
        act=entry.act,
        comparison=entry.comparison_id,
        kind=entry.kind,
        of_what=of_what(entry) if entry.kind else None,
        by_who=f"/audit?{query_of({'who': name_of(who)})}",
        by_act=f"/audit?{query_of({'act': entry.act})}",
    )


def _who_view(value: str) -> WhoView:
    actor, _, name = value.partition(":")
    return WhoView(value, actor, name)


def _address(sought: Sought, before: int | None) -> str:
    said = {"who": sought.who, "act": sought.act, "comparison": sought.comparison, "before": before}
    query = query_of({name: value for name, value in said.items() if value})
    return f"/audit?{query}" if query else "/audit"
