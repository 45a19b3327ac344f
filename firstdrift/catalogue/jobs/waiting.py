"""How the jobs stand as a whole: how many there are, how long they wait, and whether anybody takes them."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from sqlalchemy import Double, case, func, select, type_coerce
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.jobs.queue import FOLLOW, Worker, has_queued, list_workers
from firstdrift.catalogue.tables import JobEntry, JobState
from firstdrift.errors import BusyError
from firstdrift.wording.message import Message

SILENT_SECONDS: Final = 20.0
"""A worker says every few seconds that it is alive; after so many without a word it is taken for gone."""

STUCK_SECONDS: Final = 60.0
"""Where nothing is being done, a job that could be done is taken within a second by a worker that is well."""

MOST_OPEN: Final = 1000
"""So many jobs may be queued or running at a time; members leave the last fifth of them to the owner."""

MOST_OF_MEMBERS: Final = MOST_OPEN * 4 // 5

_COUNTED: Final = (JobState.QUEUED, JobState.RUNNING, JobState.FAILED)


class Standing(Struct, frozen=True):
    """How the jobs stand.

    Attributes:
        counts: how many there are, by kind and state: those queued, running and failed.
        waiting: seconds that the oldest of those that could be done has waited; None where none waits.
        workers: that are alive.
    """

    counts: Mapping[tuple[str, str], int]
    waiting: float | None
    workers: tuple[str, ...]

    @property
    def is_stuck(self) -> bool:
        """Whether workers are alive, and yet none takes what there is to do."""
        running = sum(count for (_, state), count in self.counts.items() if state == JobState.RUNNING)
        return bool(self.workers) and not running and (self.waiting or 0.0) > STUCK_SECONDS


def standing(session: Session) -> Standing:
    """Look how the jobs stand."""
    return Standing(_counts(session), _waiting(session), alive(list_workers(session)))


def require_room(session: Session, *, for_member: bool) -> None:
    """Make sure, within the transaction that has queued a job, that there are not too many.

    Raises:
        BusyError: there are.
    """
    if not has_queued(session):
        return
    most = MOST_OF_MEMBERS if for_member else MOST_OPEN
    waiting = (JobEntry.state.in_((JobState.QUEUED, JobState.RUNNING)), JobEntry.kind != FOLLOW)
    if (session.scalar(select(func.count()).where(*waiting)) or 0) > most:
        raise BusyError(
            Message.of("catalogue.job.many", most=most), hint=Message.of("catalogue.hint.when_some_are_done")
        )


def alive(workers: Iterable[Worker]) -> tuple[str, ...]:
    """Name those of some workers that are alive."""
    return tuple(one.name for one in workers if abs(one.seconds_since_seen) < SILENT_SECONDS)


def _counts(session: Session) -> dict[tuple[str, str], int]:
    wanted = select(JobEntry.kind, JobEntry.state, func.count()).where(JobEntry.state.in_(_COUNTED))
    found = session.execute(wanted.group_by(JobEntry.kind, JobEntry.state))
    return {(kind, state): count for kind, state, count in found}


def _waiting(session: Session) -> float | None:
    ready, created, now = (
        type_coerce(one, Double) for one in (JobEntry.ready_at, JobEntry.created_at, Now())
    )
    since = func.min(case((ready > created, ready), else_=created))
    could = (JobEntry.state == JobState.QUEUED, JobEntry.kind != FOLLOW, ready <= now)
    found = session.scalar(select(now - since).where(*could))
    # A clock that was set back, or forward, says nothing of how long a job waits.
    return None if found is None else min(max(0.0, found), _LONGEST)


_LONGEST: Final = 366 * 24 * 3600.0
