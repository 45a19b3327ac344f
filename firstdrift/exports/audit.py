"""The audit log and the members, as JSON and as lines of text."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from firstdrift.catalogue.people.audit import Actor, Entered, Who, name_of
from firstdrift.catalogue.people.members import Member
from firstdrift.groups import fields_of
from firstdrift.paths import printable
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of, word


def entry_object(entry: Entered) -> dict[str, Any]:
    """Give an entry as JSON has it; `who` names the person as a search for them does."""
    who = name_of(Who(Actor(entry.actor), entry.name, entry.number))
    said = fields_of(entry, ("id", "at", "until", "times", "name", "address", "act", "kind", "subject"))
    return said | {"who": who, "comparison": entry.comparison_id}


def entry_line(entry: Entered) -> str:
    """Say in a line when, who, from where, what, of what, and how often."""
    said = (
        f"{_moment(entry.until)}  {_who(entry)}",
        entry.address,
        word("act", entry.act),
        f"#{entry.comparison_id}" if entry.comparison_id is not None else "",
        text_of(of_what(entry)) if entry.kind else "",
        f"({entry.times} times)" if entry.times > 1 else "",
    )
    return printable("  ".join(filter(None, said)))


def of_what(entry: Entered) -> Message:
    """Say of what else than a comparison an entry is."""
    return Message(f"of_what.{entry.kind}", {"which": entry.subject})


def _who(entry: Entered) -> str:
    known = word("actor", entry.actor)
    named = entry.name or (f"{entry.number}" if entry.number is not None else "")
    return f"{known} {named}".strip()


def member_object(member: Member) -> dict[str, Any]:
    """Give a member as JSON has it."""
    names = ("id", "name", "may_write", "added_at", "seen_at", "removed_at")
    return fields_of(member, names) | {"is_active": member.removed_at is None}


def member_lines(members: Iterable[Member]) -> list[str]:
    """Say in a line of each member who they are, what they may do, and when they were here."""
    rows = [("NAME", "MAY", "ADDED", "LAST SEEN", "STATE"), *map(_cells, members)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


def _cells(member: Member) -> tuple[str, ...]:
    return (
        printable(member.name),
        "change" if member.may_write else "look",
        _moment(member.added_at),
        _moment(member.seen_at) if member.seen_at is not None else "never",
        "active" if member.removed_at is None else f"removed {_moment(member.removed_at)}",
    )


def _moment(then: datetime) -> str:
    return f"{then:%Y-%m-%d %H:%M:%S}Z"
