"""Have each job done by a process of its own, which may die of the dumps that it reads.

    this process ── claims a job ─▶ child process: reads, matches, measures, writes results
        │
        └── ends the child: a person cancelled, the job was lost, or the worker stops

A child that dies takes nothing with it: the job is tried again, pair by pair, and says what happened
should it be of no use. A job that takes long does not keep those behind it waiting: the next one is begun
beside it.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from multiprocessing.context import ForkServerProcess
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.jobs import queue as jobs
from firstdrift.catalogue.jobs.queue import Claim, Standing
from firstdrift.errors import CatalogueError, JobLostError
from firstdrift.files import allow_mapping, confine_process
from firstdrift.logs import Carried, about, carried, take_over
from firstdrift.processes.children import OUTLASTS
from firstdrift.processes.endings import why_it_ended
from firstdrift.processes.limits import be_first_to_go, collect_garbage_seldom, limit_memory
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_worker.manner import Manner

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 6
"""Jobs under way at a time, however long each of them takes."""

LONG_SECONDS: Final = 5.0
"""A job that takes longer has the next one begun beside it."""

STOP_SECONDS: Final = 8.0
"""So long a job is waited for that is asked to put itself back."""

_CANCEL_SECONDS: Final = 1.5
"""A process whose job was cancelled puts away what it holds within that, or is ended."""

_SILENT_SECONDS: Final = 120.0
"""A process that has not been heard of for so long is held to hang: one long call can be silent, too."""

_LOST_SECONDS: Final = 3.0
"""A process whose job is over, or in other hands, ends by itself within that."""


@dataclass(slots=True)
class _Child:
    """A process that does a job."""

    claim: Claim
    process: ForkServerProcess
    since: float = field(default_factory=time.monotonic)
    cancelled_at: float | None = None
    beat: datetime | None = None
    beat_at: float = field(default_factory=time.monotonic)

    def is_overdue(self, standing: Standing) -> bool:
        """Tell whether a person cancelled its job, and it did not end by itself within a moment."""
        if not (standing.is_held and standing.is_cancelled):
            return False
        self.cancelled_at = self.cancelled_at or time.monotonic()
        return time.monotonic() - self.cancelled_at > _CANCEL_SECONDS

    def is_lost(self, standing: Standing) -> bool:
        """Tell whether its job is over, or in other hands, or it gives no sign of life."""
        now = time.monotonic()
        if standing.is_held and standing.leased_until != self.beat:
            self.beat, self.beat_at = standing.leased_until, now
        return now - self.beat_at > (_SILENT_SECONDS if standing.is_held else _LOST_SECONDS)

    def is_long(self) -> bool:
        return time.monotonic() - self.since > LONG_SECONDS

    def kill(self) -> None:
        """End it, and the processes that it has started, at once."""
        number = self.process.pid
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(number, signal.SIGKILL)
        self.process.kill()
        self.process.join()


class Supervisor(AbstractContextManager["Supervisor"]):
    """Keeps the processes that do jobs.

    with Supervisor(engine, "host:17", manner) as supervisor:
        while ...:
            supervisor.turn()
    """

    def __init__(self, engine: Engine, name: str, manner: Manner) -> None:
        """Prepare; `name` is the worker's."""
        self.name = name
        self._engine = engine
        self._manner = manner
        self._children: list[_Child] = []

    def __exit__(self, *_: object) -> None:
        """Have all jobs put back; end those that do not."""
        for child in self._children:
            child.process.terminate()
        until = time.monotonic() + STOP_SECONDS
        for child in self._children:
            child.process.join(max(0.0, until - time.monotonic()))
            child.kill()
            with suppress(CatalogueError), writing(self._engine) as session:
                jobs.release_job(session, child.claim)
        self._children.clear()

    def turn(self) -> bool:
        """See to the processes, and begin a job if one waits and there is room; tell whether one was begun.

        Raises:
            CatalogueError: the database cannot be read or written.
        """
        self._bury()
        self._end_unwanted()
        waiting_for = [child for child in self._children if not child.is_long()]
        if waiting_for or len(self._children) >= MOST_AT_ONCE:
            return False
        mine = [child.claim.job_id for child in self._children]
        claim = jobs.claim_job(self._engine, self.name, lease=self._manner.lease, mine=mine)
        if claim is None:
            return False
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", OUTLASTS, "firstdrift_worker.job"])
        # Jobs that run beside each other share the cores.
        processes = max(1, self._manner.processes // (len(self._children) + 1))
        manner = replace(self._manner, processes=processes)
        process = context.Process(
            target=_do_in_child, args=(claim, manner, carried()), name=f"job {claim.job_id}"
        )
        try:
            process.start()
        except OSError as error:  # no more processes, or descriptors, may be had
            with writing(self._engine) as session:
                jobs.release_job(session, claim)
            raise CatalogueError(Message.of("worker.no_process", why=error.strerror)) from error
        self._children.append(_Child(claim, process))
        return True

    def _bury(self) -> None:
        """Forget the processes that have ended; say of the jobs of those that died why."""
        for child in [child for child in self._children if not child.process.is_alive()]:
            status = child.process.exitcode
            if status:
                why = why_it_ended(status)
                with about(job=child.claim.job_id, comparison=child.claim.comparison_id):
                    log.warning("process of job %d ended before it: %s", child.claim.job_id, text_of(why))
                with suppress(JobLostError), writing(self._engine) as session:
                    _try_again(session, child.claim, Message.of("worker.process_died", why=why))
            child.kill()
            self._children.remove(child)

    def _end_unwanted(self) -> None:
        """End the processes of jobs that were cancelled, or that are in other hands by now."""
        if not self._children:
            return
        with reading(self._engine) as session:
            standings = jobs.standings(session, [child.claim for child in self._children])
        for child in list(self._children):
            standing = standings[child.claim]
            is_overdue = child.is_overdue(standing)
            if not is_overdue and not child.is_lost(standing):
                continue
            child.kill()
            with suppress(JobLostError), writing(self._engine) as session:
                if is_overdue:
                    jobs.cancel_job(session, child.claim)
                else:
                    _try_again(session, child.claim, Message.of("worker.process_silent"))
            self._children.remove(child)


def _try_again(session: Session, claim: Claim, error: Message) -> None:
    jobs.fail_job(session, claim, error, "", retry_after=0.0)


def _do_in_child(claim: Claim, manner: Manner, logs: Carried) -> None:
    """Do a job: what a child process does."""
    take_over(logs, job=claim.job_id, comparison=claim.comparison_id)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whoever ends this process ends all that it starts with it.
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    be_first_to_go()
    collect_garbage_seldom()
    if manner.limits is not None:
        limit_memory(manner.limits.memory)
    confine_process(manner.roots)
    allow_mapping(allowed=True)
    from firstdrift_worker.job import do_job

    engine = open_engine(manner.database_url)
    try:
        with suppress(JobLostError):
            do_job(engine, claim, stopping, manner)
    finally:
        engine.dispose()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)
