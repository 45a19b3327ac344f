"""A job in hand: how its results are written, what reading may take, and whether to go on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.jobs.queue import SLICE_STEPS, Claim, confirm
from firstdrift.comparison.side_by_side import Crew
from firstdrift.errors import DumpUnreadableError, LimitError
from firstdrift.processes.limits import Limits, reading_time
from firstdrift.wording.message import Message


class WorkerStoppedError(Exception):
    """The worker was asked to stop."""


class Held(Protocol):
    """A job that is held, by this process or by the one that it helps."""

    @property
    def claim(self) -> Claim:
        """The job, in these hands."""

    def check(self) -> None:
        """Return if the work should go on; raise as `Work.check` does if not."""

    def progress(self, done: int, total: int, stage: Message) -> None:
        """Say how far the job is."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job in hand: how to write its results, and whether to go on.

    The engine is open at `database_url`. `limits` are what reading a dump, or a slice of it, may take; None
    for no limits. A crew does the work elsewhere, if there is one.
    """

    engine: Engine
    database_url: str
    lease: Held
    stopping: threading.Event
    limits: Limits | None = None
    crew: Crew | None = None

    def check(self) -> None:
        """Return if the work should go on.

        Raises:
            JobCancelledError: a person asked for the job to stop.
            JobLostError: another worker has it.
            WorkerStoppedError: this worker was asked to stop.
        """
        self.lease.check()
        if self.stopping.is_set():
            raise WorkerStoppedError

    @contextmanager
    def reading_dump(self, path: Path) -> Iterator[None]:
        """Let the block read a dump, or a slice of it, within the limits.

        Raises:
            DumpUnreadableError: it takes more memory or processor time.
        """
        try:
            with reading_time(self.limits.seconds) if self.limits is not None else nullcontext():
                yield
        except LimitError as error:
            raise DumpUnreadableError(error.message, path=path, hint=error.advice) from error
        except MemoryError as error:
            raise DumpUnreadableError(Message.of("worker.reading_takes_memory"), path=path) from error

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session to write with; nothing is written unless the job is still in these hands."""
        with writing(self.engine) as session:
            confirm(session, self.lease.claim)
            yield session

    def progress(self, position: int, slices: int, share: float, stage: Message) -> None:
        """Say which share of which slice is done, of how many; go on if `check` lets it."""
        self.check()
        done = round((position + share) * SLICE_STEPS)
        of_slice = Message.of("stage.of_slice", number=position + 1, slices=slices, stage=stage)
        self.lease.progress(done, slices * SLICE_STEPS, of_slice)
