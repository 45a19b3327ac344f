"""The tables of people who are let in by tokens of their own, and of who changed what."""

from datetime import datetime

from sqlalchemy import Index, LargeBinary, text
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.tables.entry import Entry

_ACTIVE = text("removed_at IS NULL")


class MemberEntry(Entry):
    """Somebody who is let in by a token of their own.

    Attributes:
        name: which no other active member has.
        digest: SHA-256 of the token, which is known to nobody but them.
        may_write: whether they may change anything.
        seen_at: when they asked for something last, to some minutes; None if never.
        removed_at: None while they are let in.
    """

    __tablename__ = "members"
    __table_args__ = (
        Index("ix_members_name", "name", unique=True, sqlite_where=_ACTIVE, postgresql_where=_ACTIVE),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    digest: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    may_write: Mapped[bool] = mapped_column(default=True)
    added_at: Mapped[datetime] = mapped_column(default=Now())
    seen_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]


class AuditEntry(Entry):
    """What somebody did; it outlasts what it was done to.

    Attributes:
        at: when, or when first.
        until: when last, where it was done several times.
        times: how often.
        actor: who, as `firstdrift.catalogue.people.audit.Actor` has it.
        name: of a member, the label of a link, the user of a terminal; empty where there is none.
        number: id of the member or link; None where there is none.
        address: from which it came; empty for the terminal, and for many at once.
        act: what, as `firstdrift.catalogue.people.audit.Act` has it.
        comparison_id: to which comparison; it may be gone.
        kind: to what else, such as "link"; empty where there is none.
        subject: which of that kind.
    """

    __tablename__ = "audit"
    __table_args__ = (Index(None, "actor", "name", "id"), Index(None, "actor", "number", "id"))

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(default=Now(), index=True)
    until: Mapped[datetime] = mapped_column(default=Now(), index=True)
    times: Mapped[int] = mapped_column(default=1)
    actor: Mapped[str]
    name: Mapped[str] = mapped_column(default="")
    number: Mapped[int | None]
    address: Mapped[str] = mapped_column(default="")
    act: Mapped[str]
    comparison_id: Mapped[int | None] = mapped_column(index=True)
    kind: Mapped[str] = mapped_column(default="")
    subject: Mapped[str] = mapped_column(default="")
