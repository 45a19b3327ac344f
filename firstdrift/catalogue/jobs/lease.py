"""What a worker holds a job by: a lease that its heartbeats extend."""

import threading
import time
from datetime import timedelta
from importlib.metadata import version
from typing import Self

from sqlalchemy import Engine, delete, insert, or_, update

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.jobs.queue import BEAT_SECONDS, LEASE_SECONDS, Claim, _held, _lost, log, stage_text
from firstdrift.catalogue.tables import JobEntry, WorkerEntry
from firstdrift.errors import CatalogueError, JobCancelledError, JobLostError
from firstdrift.wording.message import Message


def beat(engine: Engine, claim: Claim, lease: float, done: int, total: int, stage: Message | None) -> bool:
    """Extend the lease and write the progress; return whether the job should be cancelled."""
    with writing(engine) as session:
        answer = session.execute(
            update(JobEntry)
            .where(*_held(claim))
            .values(leased_until=Now(lease), done=done, total=total, stage=stage_text(stage))
            .returning(JobEntry.cancel_requested)
            .execution_options(synchronize_session=False)
        ).one_or_none()
    if answer is None:
        raise _lost(claim)
    return bool(answer.cancel_requested)


def worker_seen(engine: Engine, name: str) -> None:
    """Record that a worker is alive."""
    with writing(engine) as session:
        seen = update(WorkerEntry).where(WorkerEntry.name == name).values(seen_at=Now())
        if session.execute(seen.returning(WorkerEntry.name)).one_or_none() is None:
            session.execute(insert(WorkerEntry).values(name=name, version=version("firstdrift")))


def worker_gone(engine: Engine, name: str) -> None:
    """Record that a worker has stopped in an orderly way; forget those not seen for a week."""
    week = timedelta(days=7).total_seconds()
    with writing(engine) as session:
        gone = or_(WorkerEntry.name == name, WorkerEntry.seen_at < Now(-week))
        session.execute(delete(WorkerEntry).where(gone))


class Lease:
    """Holds a job while the block runs: heartbeats in a thread, progress out, cancellation in.

    with Lease(engine, claim) as lease:
        lease.progress(3, 10, "measuring token 3")
        lease.check()
    """

    def __init__(self, engine: Engine, claim: Claim, seconds: float = LEASE_SECONDS) -> None:
        """Prepare to hold a claimed job; `seconds` without a heartbeat, and others may take it."""
        self.claim = claim
        self._engine = engine
        self._seconds = seconds
        self._progress: tuple[int, int, Message | None] = (0, 0, None)
        self._error: CatalogueError | None = None
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"job {claim.job_id}", daemon=True)

    def __enter__(self) -> Self:
        """Start the heartbeats."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the heartbeats."""
        self._left.set()
        self._thread.join()

    def progress(self, done: int, total: int, stage: Message) -> None:
        """Say how far the job is; written with the next heartbeat."""
        self._progress = (done, total, stage)

    def check(self) -> None:
        """Return if the work should go on.

        Raises:
            JobCancelledError: a person asked for it to stop.
        """
        if self._error is not None:
            raise self._error

    def _keep(self) -> None:
        held_until = time.monotonic() + self._seconds
        while not self._left.wait(min(BEAT_SECONDS, self._seconds / 3)):
            began = time.monotonic()
            try:
                cancel = beat(self._engine, self.claim, self._seconds, *self._progress)
            except JobLostError as error:
                self._error = error
                return
            except CatalogueError as error:  # a full disk or a busy database may pass
                log.warning("job %d: no heartbeat: %s", self.claim.job_id, error)
                if time.monotonic() > held_until:
                    self._error = _lost(self.claim)
                    return
                continue
            held_until = began + self._seconds
            if cancel:
                self._error = JobCancelledError(Message.of("catalogue.job.cancelled"))
