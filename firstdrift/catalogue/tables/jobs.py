"""The tables of jobs and workers."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Now, Said
from firstdrift.catalogue.tables.entry import Entry, JobState
from firstdrift.wording.message import Message


class JobEntry(Entry):
    """Something for a worker to do.

    Attributes:
        kind: which function of the worker does it.
        comparison_id: what it works on, if that is a comparison.
        path: where the dump lies, if it works on one dump.
        priority: higher ones are taken first.
        attempts: how often it was claimed; also the fencing token of the worker that has it.
        max_attempts: after so many it has failed for good.
        ready_at: not to be taken before.
        leased_until: it may be taken from its worker after that.
        done, total, stage: how far it is, in steps and in words.
        cancel_requested: its worker should stop.
        error: what went wrong, for a person; `traceback` for a bug report.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_waiting", "state", "priority", "id"),
        Index(None, "comparison_id", "id"),
        Index(None, "path", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    comparison_id: Mapped[int | None] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    path: Mapped[str | None]
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[JobState] = mapped_column(default=JobState.QUEUED)
    attempts: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=3)
    worker: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=Now())
    ready_at: Mapped[datetime] = mapped_column(default=Now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    done: Mapped[int] = mapped_column(default=0)
    total: Mapped[int] = mapped_column(default=0)
    stage: Mapped[str] = mapped_column(default="")
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    error: Mapped[Message | None] = mapped_column(Said(Message))
    traceback: Mapped[str | None]


class WorkerEntry(Entry):
    """A worker that is, or was, alive."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(default=Now())
    seen_at: Mapped[datetime] = mapped_column(default=Now())
