"""The job table: what workers are to do, which one does it, and how far it is.

    queued ──claim──▶ running ──finish──▶ done
       ▲                │  │ └──fail────▶ failed        the error is kept
       └── release ─────┘  └──cancelled─▶ cancelled     asked for by a person

A worker holds a job under a lease that its heartbeat extends. When the heartbeats stop, another worker
may claim the job. Clocks may be set, so what the clock says is not enough: who claims a job has seen by a
stopwatch of its own that no heartbeat came, for the length of the lease, or for some beats where the clock
says that the lease has run out.

When a job is claimed, the number of the attempt counts up, and whatever the first worker still writes
under the old number is refused (`JobLostError`).

Who changes a job and its comparison in one transaction changes the job first: with one order for all,
nobody waits for another who waits for them.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Double,
    Engine,
    and_,
    case,
    event,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.lookup import added, record_of, required
from firstdrift.catalogue.tables import JobEntry, JobState, WorkerEntry
from firstdrift.errors import JobLostError
from firstdrift.wording.message import Message, verbatim

log = logging.getLogger(__name__)

INTERACTIVE: Final = 10
"""Priority of what somebody waits for on a page, such as other rules, or a dump that is looked at."""

ORDINARY: Final = 0
"""Priority of comparing, and of what a growing dump brings: they are taken in the order they were asked for.

With a higher one, a dump that changes without end would keep all that people ask for waiting.
"""

COMPARE = "compare"
INDEX = "index"
"""Read a dump into the catalogue: all its slices, nodes and tensors."""
COMPUTE = "compute"
"""The same, and compute the statistics of tensors that were saved without them."""
FOLLOW = "follow"
"""Look whether there is more of a dump that is still being written; put back after each look."""
SLICE_STEPS = 1000
"""Steps of a job that compares, for each pair of slices: `Job.total` tells how many pairs there are."""
LEASE_SECONDS = 15.0
BEAT_SECONDS = 1.0
SILENT_SECONDS = 2 * BEAT_SECONDS
"""A worker whose lease has run out by the clock is looked at for so long before its job is taken."""
LONGEST_WAIT = 600.0
"""No job is told to wait for longer; one that is to has been told so before the clock was set back."""
_AT_ONCE = datetime.fromtimestamp(0, UTC)
_QUEUED = "queued"
"""Where a session keeps the jobs that its transaction has queued."""


class Clock(Protocol):
    """What waiting goes by: the module `time`, but for tests."""

    def monotonic(self) -> float:
        """Return the seconds of a stopwatch."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class Job(Struct, frozen=True):
    """A job as pages show it.

    Attributes:
        comparison_id: what it works on, if that is a comparison.
        path: where the dump lies, if it works on one dump.
        done: steps done, of `total`; both 0 before it began.
        stage: what is being done; None before and after.
        error: what went wrong, for a person; `traceback` for a bug report.
    """

    id: int
    kind: str
    comparison_id: int | None
    path: str | None
    state: JobState
    priority: int
    attempts: int
    max_attempts: int
    worker: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    done: int
    total: int
    stage: Message | None
    cancel_requested: bool
    error: Message | None
    traceback: str | None

    @property
    def is_over(self) -> bool:
        """True when nothing more will happen to it by itself."""
        return self.state not in (JobState.QUEUED, JobState.RUNNING)

    @property
    def share_done(self) -> float:
        """How much of it is done, 0 to 1."""
        return self.done / self.total if self.total else float(self.state is JobState.DONE)


class Claim(Struct, frozen=True):
    """A job in the hands of a worker; `attempt` proves that it still is."""

    job_id: int
    attempt: int
    kind: str
    comparison_id: int | None
    path: str | None


class Standing(Struct, frozen=True):
    """Whether a job that was claimed is still in those hands.

    Attributes:
        is_held: it is.
        is_cancelled: a person asked for it to stop.
        leased_until: changes with each heartbeat.
    """

    is_held: bool = False
    is_cancelled: bool = False
    leased_until: datetime | None = None


class Worker(Struct, frozen=True):
    """A worker that is, or was, alive: "host:pid", its version, and when it was last seen."""

    name: str
    version: str
    started_at: datetime
    seen_at: datetime
    seconds_since_seen: float


def enqueue(
    session: Session,
    kind: str,
    comparison_id: int | None = None,
    *,
    path: str | None = None,
    priority: int = ORDINARY,
    after: float | None = None,
) -> int:
    """Add a job that works on a comparison, or on the dump at a path; return its id.

    It is ready at once, or `after` so many seconds.
    """
    job = JobEntry(
        kind=kind,
        comparison_id=comparison_id,
        path=path,
        priority=priority,
        ready_at=_AT_ONCE if after is None else Now(after),
    )
    made = added(session, job)
    session.info.setdefault(_QUEUED, []).append(job)
    if not event.contains(session, "after_commit", _tell_queued):
        event.listen(session, "after_commit", _tell_queued)
    return made


def has_queued(session: Session) -> bool:
    """Tell whether a transaction has queued a job, but for those in parts that were rolled back."""
    return any(job in session for job in session.info.get(_QUEUED, ()))


def _tell_queued(session: Session) -> None:
    """Say which jobs a transaction has queued, now that they are there for all to see."""
    if session.in_nested_transaction():
        return  # only a part of it is over, and all of it may still be rolled back
    for job in session.info.pop(_QUEUED, ()):
        if job in session:  # not of a transaction, or a part of one, that was rolled back
            facts = {"job": job.id, "comparison": job.comparison_id, "kind": job.kind}
            # The request that asked for it is known here, and the job wherever it is done: this has both.
            log.info("job %d is queued", job.id, extra=facts)


def get_job(session: Session, job_id: int) -> Job:
    """Look up a job."""
    absence = Message.of("catalogue.no_job", job=job_id)
    return job_record(required(session.get(JobEntry, job_id), absence))


def list_jobs(session: Session, *, only_open: bool = False, limit: int = 100) -> tuple[Job, ...]:
    """List jobs, the newest first; with `only_open` those queued or running."""
    which = (JobEntry.state.in_((JobState.QUEUED, JobState.RUNNING)),) if only_open else ()
    found = session.scalars(select(JobEntry).where(*which).order_by(JobEntry.id.desc()).limit(limit))
    return tuple(map(job_record, found))


def jobs_before(session: Session, job: Job) -> int:
    """Count the jobs that will be taken before a queued one."""
    sooner = or_(
        JobEntry.priority > job.priority, and_(JobEntry.priority == job.priority, JobEntry.id < job.id)
    )
    queued = (JobEntry.state == JobState.QUEUED, JobEntry.kind != FOLLOW)
    waiting = select(func.count()).where(*queued, sooner)
    return session.scalar(waiting) or 0 if job.state is JobState.QUEUED else 0


def request_cancel(session: Session, job_id: int) -> None:
    """Ask for a job to stop: at once if no worker has it, else as soon as its worker hears of it."""
    session.execute(
        update(JobEntry)
        .where(JobEntry.id == job_id, JobEntry.state == JobState.QUEUED)
        .values(state=JobState.CANCELLED, cancel_requested=True, finished_at=Now(), stage="")
    )
    session.execute(
        update(JobEntry)
        .where(JobEntry.id == job_id, JobEntry.state == JobState.RUNNING)
        .values(cancel_requested=True)
    )


def worker_name() -> str:
    """Name this process as a worker: "host:pid"."""
    return f"{socket.gethostname()}:{os.getpid()}"


def list_workers(session: Session) -> tuple[Worker, ...]:
    """List workers, the last seen first."""
    age = type_coerce(Now(), Double) - type_coerce(WorkerEntry.seen_at, Double)
    found = session.execute(select(WorkerEntry, age).order_by(WorkerEntry.seen_at.desc()))
    return tuple(record_of(Worker, entry, seconds_since_seen=seconds) for entry, seconds in found)


def claim_job(
    engine: Engine,
    worker: str,
    *,
    lease: float = LEASE_SECONDS,
    mine: Collection[int] = (),
    clock: Clock = time,
) -> Claim | None:
    """Take the first job that is ready, or whose worker has not been heard of; None if there is none.

    Jobs that workers died of too often are given up on the way.

    Args:
        engine: where the jobs are.
        worker: who takes it.
        lease: seconds after which another worker may take it over.
        mine: ids of jobs that this worker has in hand: whether they go on, it knows better than any clock.
        clock: by which other workers are silent.
    """
    silent = _silent(engine, lease, mine, clock)
    if silent is None:
        return None
    with writing(engine) as session:
        _give_up(session, silent)
        first = (
            select(JobEntry.id)
            .where(_still(silent) | _ready())
            .order_by(JobEntry.priority.desc(), JobEntry.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        taken = session.execute(
            update(JobEntry)
            .where(JobEntry.id == first.scalar_subquery())
            .values(
                state=JobState.RUNNING,
                worker=worker,
                attempts=JobEntry.attempts + 1,
                started_at=func.coalesce(JobEntry.started_at, Now()),
                leased_until=Now(lease),
            )
            .returning(JobEntry.id, JobEntry.attempts, JobEntry.kind, JobEntry.comparison_id, JobEntry.path)
            .execution_options(synchronize_session=False)
        ).one_or_none()
    return None if taken is None else Claim(*taken)


def standings(session: Session, claims: Sequence[Claim]) -> dict[Claim, Standing]:
    """Tell of each claimed job whether it is still in those hands."""
    known = session.scalars(select(JobEntry).where(JobEntry.id.in_({claim.job_id for claim in claims})))
    held = {
        (job.id, job.attempts): Standing(
            is_held=True, is_cancelled=job.cancel_requested, leased_until=job.leased_until
        )
        for job in known
        if job.state is JobState.RUNNING
    }
    return {claim: held.get((claim.job_id, claim.attempt), Standing()) for claim in claims}


def confirm(session: Session, claim: Claim) -> None:
    """Make sure, within the transaction that writes results, that the job is still in these hands."""
    held = select(JobEntry.id).where(*_held(claim)).with_for_update()
    if session.scalar(held) is None:
        raise _lost(claim)


def finish_job(session: Session, claim: Claim) -> None:
    """Record that a job is done."""
    _end(session, claim, state=JobState.DONE, done=JobEntry.total, error=None, traceback=None)


def fail_job(
    session: Session, claim: Claim, error: Message, traceback: str, *, retry_after: float | None
) -> None:
    """Record what went wrong; with `retry_after` seconds the job is tried again, if it may be."""
    entry = session.get(JobEntry, claim.job_id)
    if entry is None:
        raise _lost(claim)
    if retry_after is not None and claim.attempt < entry.max_attempts:
        again = {"state": JobState.QUEUED, "ready_at": Now(retry_after), "finished_at": None}
        _end(session, claim, error=error, traceback=traceback, **again)
    else:
        _end(session, claim, state=JobState.FAILED, error=error, traceback=traceback)


def cancel_job(session: Session, claim: Claim) -> None:
    """Record that a job was stopped because a person asked for it."""
    _end(session, claim, state=JobState.CANCELLED)


def release_job(session: Session, claim: Claim) -> None:
    """Put a job back, because its worker stops; the attempt does not count."""
    back = {"state": JobState.QUEUED, "finished_at": None, "max_attempts": JobEntry.max_attempts + 1}
    _end(session, claim, **back)


def put_back(session: Session, claim: Claim, after: float) -> None:
    """Let a job be done again after so many seconds, unless a person asked for it to stop."""
    state = case((JobEntry.cancel_requested, JobState.CANCELLED), else_=JobState.QUEUED)
    again = {"finished_at": None, "ready_at": Now(after), "max_attempts": JobEntry.max_attempts + 1}
    _end(session, claim, state=state, error=None, traceback=None, **again)


def job_record(entry: JobEntry) -> Job:
    """Give the record of a row of the job table."""
    return record_of(Job, entry, stage=_stage_of(entry.stage))


class _Held(NamedTuple):
    """A job that a worker holds; each heartbeat changes when its lease runs out (seconds since 1970)."""

    job_id: int
    attempt: int
    leased_until: float


class _Watch:
    """Remembers since when, by the stopwatch of this process, no heartbeat has come for which job."""

    def __init__(self) -> None:
        self._since: dict[_Held, float] = {}
        self._lock = threading.Lock()

    def silent_for(self, held: Iterable[_Held], now: float) -> dict[_Held, float]:
        """Say for how many seconds nothing has been heard of the workers of jobs."""
        with self._lock:
            self._since = {each: self._since.get(each, now) for each in held}
            return {each: now - since for each, since in self._since.items()}


_watches: WeakKeyDictionary[Engine, _Watch] = WeakKeyDictionary()


def _silent(engine: Engine, lease: float, mine: Collection[int], clock: Clock) -> tuple[_Held, ...] | None:
    """Return the jobs that may be taken from their workers; None if no job may be taken at all.

    Where nothing else is to do, it waits to see whether a worker whose lease has run out is silent.
    """
    watch = _watches.setdefault(engine, _Watch())
    enough = min(SILENT_SECONDS, lease)
    patience = {True: enough, False: lease}
    until = clock.monotonic() + 2 * enough
    while True:
        with reading(engine) as session:  # looking costs no lock
            is_ready = bool(session.scalar(select(exists().where(_ready()))))
            known = _running(session, mine)
        silent = watch.silent_for(known, clock.monotonic())
        found = tuple(each for each, over in known.items() if silent[each] >= patience[over])
        if found or is_ready:
            return found
        suspected = [enough - silent[each] for each, over in known.items() if over]
        if not suspected or clock.monotonic() > until:
            return None
        clock.sleep(max(0.0, min(suspected)))


def _running(session: Session, mine: Collection[int]) -> dict[_Held, bool]:
    """Say of the jobs of other workers whether their lease has run out by the clock."""
    until_when = type_coerce(JobEntry.leased_until, Double)
    running = select(JobEntry.id, JobEntry.attempts, until_when, JobEntry.leased_until < Now()).where(
        JobEntry.state == JobState.RUNNING, JobEntry.id.not_in(mine)
    )
    return {_Held(*held): over for *held, over in session.execute(running)}


def _still(held: Iterable[_Held]) -> ColumnElement[bool]:
    """Tell of which of some jobs no heartbeat has come since they were looked at."""
    leased_until = type_coerce(JobEntry.leased_until, Double)
    each = [
        and_(JobEntry.id == one.job_id, JobEntry.attempts == one.attempt, leased_until == one.leased_until)
        for one in held
    ]
    return and_(JobEntry.state == JobState.RUNNING, or_(false(), *each))


def _ready() -> ColumnElement[bool]:
    in_time = or_(JobEntry.ready_at <= Now(), JobEntry.ready_at > Now(LONGEST_WAIT))
    return and_(JobEntry.state == JobState.QUEUED, in_time)


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return (
        JobEntry.id == claim.job_id,
        JobEntry.attempts == claim.attempt,
        JobEntry.state == JobState.RUNNING,
    )


_DIED: Final = Message.of("worker.gave_up")


def _lost(claim: Claim) -> JobLostError:
    return JobLostError(Message.of("catalogue.job.lost", job=claim.job_id))


def _give_up(session: Session, silent: Iterable[_Held]) -> None:
    session.execute(
        update(JobEntry)
        .where(_still(silent), or_(JobEntry.cancel_requested, JobEntry.attempts >= JobEntry.max_attempts))
        .values(
            state=case((JobEntry.cancel_requested, JobState.CANCELLED), else_=JobState.FAILED),
            error=case(
                (JobEntry.cancel_requested, None),
                else_=func.coalesce(JobEntry.error, literal(_DIED, JobEntry.error.type)),
            ),
            finished_at=Now(),
            leased_until=None,
        )
        .execution_options(synchronize_session=False)
    )


def _end(session: Session, claim: Claim, **values: Any) -> None:  # noqa: ANN401 (columns of the job table)
    ended = {"finished_at": Now(), "leased_until": None, "stage": "", **values}
    answer = session.execute(
        update(JobEntry)
        .where(*_held(claim))
        .values(**ended)
        .returning(JobEntry.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if answer is None:
        raise _lost(claim)


def stage_text(stage: Message | None) -> str:
    """Write what a worker is doing as the table of jobs holds it."""
    return "" if stage is None else to_text(stage)


def _stage_of(text: str) -> Message | None:
    if not text:
        return None
    # A worker of an earlier version writes a sentence.
    return from_text(Message, text) if text.startswith("{") else verbatim(text)
