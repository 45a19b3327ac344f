import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from messages import like
from sqlalchemy import Engine, delete, text
from sqlalchemy.orm import Session
from working import wait_until

from firstdrift.catalogue.comparisons.records import create_comparison
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs import queue as jobs
from firstdrift.catalogue.jobs.lease import Lease, beat, worker_gone, worker_seen
from firstdrift.catalogue.jobs.queue import (
    COMPARE,
    LEASE_SECONDS,
    Claim,
    Clock,
    Job,
    cancel_job,
    claim_job,
    confirm,
    enqueue,
    fail_job,
    finish_job,
    get_job,
    jobs_before,
    list_jobs,
    list_workers,
    release_job,
    request_cancel,
)
from firstdrift.catalogue.tables import ComparisonEntry, JobState
from firstdrift.comparison.report import Options
from firstdrift.errors import CatalogueError, JobCancelledError, JobLostError, NotInCatalogueError
from firstdrift.wording.message import Message, verbatim


@pytest.fixture
def comparison(engine: Engine) -> int:
    """Make a comparison; its job is the first one."""
    with writing(engine) as session:
        return create_comparison(session, Path("/a"), Path("/b"), Options())


def now(engine: Engine, job_id: int) -> Job:
    with reading(engine) as session:
        return get_job(session, job_id)


class Stopwatch:
    """A clock that runs only when it is told to, or waited by."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float, /) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> Stopwatch:
    return Stopwatch()


def claimed(engine: Engine, *, lease: float = LEASE_SECONDS, clock: Clock = time) -> Claim:
    claim = claim_job(engine, "host:1", lease=lease, clock=clock)
    assert claim is not None
    return claim


def pass_time(engine: Engine, clock: Stopwatch, seconds: float = LEASE_SECONDS + 1) -> None:
    """Let time pass, by the clock of the database and by the stopwatch of those who look for work."""
    set_clock(engine, seconds)
    clock.sleep(seconds)


def test_a_job_goes_to_one_worker_only(engine: Engine, comparison: int) -> None:
    claim = claimed(engine)
    assert claim.comparison_id == comparison
    assert claim_job(engine, "host:2") is None
    job = now(engine, claim.job_id)
    assert (job.state, job.worker, job.attempts) == (JobState.RUNNING, "host:1", 1)


def test_many_workers_at_once_never_take_the_same_job(engine: Engine, comparison: int) -> None:
    with writing(engine) as session:
        for _ in range(40):
            enqueue(session, COMPARE, comparison)

    def take_all(name: str) -> list[int]:
        taken = []
        while claim := claim_job(engine, name):
            taken.append(claim.job_id)
            with writing(engine) as session:
                finish_job(session, claim)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [job for jobs_ in pool.map(take_all, "abcd") for job in jobs_]
    assert len(taken) == len(set(taken)) == 41


def test_the_most_urgent_job_is_taken_first_then_the_oldest(engine: Engine, comparison: int) -> None:
    with writing(engine) as session:
        later = enqueue(session, COMPARE, comparison)
        urgent = enqueue(session, COMPARE, comparison, priority=10)
    with reading(engine) as session:
        before = [jobs_before(session, get_job(session, job)) for job in (urgent, later)]
    assert before == [0, 2]
    order = [claimed(engine).job_id for _ in range(3)]
    assert order[0] == urgent
    assert order[2] == later


@pytest.mark.usefixtures("comparison")
def test_a_job_whose_worker_is_silent_is_taken_over_and_the_first_worker_is_refused(
    engine: Engine, clock: Stopwatch
) -> None:
    dead = claimed(engine, clock=clock)
    pass_time(engine, clock)
    alive = claimed(engine, clock=clock)
    assert (alive.job_id, alive.attempt) == (dead.job_id, 2)
    for record in (confirm, finish_job, cancel_job, release_job):
        with pytest.raises(JobLostError), writing(engine) as session:
            record(session, dead)
    with pytest.raises(JobLostError), writing(engine) as session:
        fail_job(session, dead, verbatim("too late"), "", retry_after=None)
    with pytest.raises(JobLostError):
        beat(engine, dead, 60, 1, 2, "")
    with writing(engine) as session:
        confirm(session, alive)
        finish_job(session, alive)
    assert now(engine, alive.job_id).state is JobState.DONE


def write_and_confirm(session: Session, claim: Claim) -> None:
    session.execute(text("UPDATE comparisons SET note = 'from the dead'"))
    confirm(session, claim)


@pytest.mark.usefixtures("comparison")
def test_what_a_worker_writes_after_it_lost_the_job_is_not_kept(engine: Engine, clock: Stopwatch) -> None:
    lost = claimed(engine, clock=clock)
    pass_time(engine, clock)
    claimed(engine, clock=clock)
    with pytest.raises(JobLostError), writing(engine) as session:
        write_and_confirm(session, lost)
    with reading(engine) as session:
        assert session.scalar(text("SELECT note FROM comparisons")) == ""


@pytest.mark.usefixtures("comparison")
def test_a_job_that_kills_its_workers_is_given_up(engine: Engine, clock: Stopwatch) -> None:
    for attempt in (1, 2, 3):
        assert claimed(engine, clock=clock).attempt == attempt
        pass_time(engine, clock)
    assert claim_job(engine, "host:4", clock=clock) is None
    with reading(engine) as session:
        (job,) = list_jobs(session)
    assert job.state is JobState.FAILED
    assert job.error == Message.of("worker.gave_up")


def held_until(engine: Engine) -> float:
    """Return when the lease of the only job runs out, by the clock of the database."""
    with reading(engine) as session:
        return float(session.execute(text("SELECT leased_until FROM jobs")).scalar_one())


def refuses(lease: Lease) -> bool:
    """Tell whether a lease lets its worker go on no more."""
    try:
        lease.check()
    except CatalogueError:
        return True
    return False


def set_clock(engine: Engine, seconds: float) -> None:
    """Leave behind what was written before the clock was set on by so many seconds, or back."""
    with writing(engine) as session:
        for change in (
            "UPDATE jobs SET ready_at = ready_at - :seconds, leased_until = leased_until - :seconds",
            "UPDATE workers SET seen_at = seen_at - :seconds",
        ):
            session.execute(text(change), {"seconds": seconds})


@pytest.mark.usefixtures("comparison")
@pytest.mark.parametrize("seconds", [-86400.0, -30.0, 86400.0])
def test_a_dead_worker_s_job_is_taken_over_however_the_clock_was_set(
    engine: Engine, seconds: float, clock: Stopwatch
) -> None:
    dead = claimed(engine, clock=clock)
    set_clock(engine, seconds)
    while (again := claim_job(engine, "host:2", clock=clock)) is None:
        assert clock.seconds <= LEASE_SECONDS, "nobody takes the job"
        clock.sleep(1.0)
    assert (again.job_id, again.attempt) == (dead.job_id, 2)


@pytest.mark.usefixtures("comparison")
@pytest.mark.parametrize("seconds", [-86400.0, 86400.0])
def test_a_living_worker_keeps_its_job_however_the_clock_is_set(engine: Engine, seconds: float) -> None:
    claim = claimed(engine, lease=1.5)
    with Lease(engine, claim, 1.5) as lease:
        for _ in range(3):
            set_clock(engine, seconds)
            assert claim_job(engine, "host:2", lease=1.5) is None
        time.sleep(1.6)
        assert claim_job(engine, "host:2", lease=1.5) is None
        lease.check()
    with writing(engine) as session:
        finish_job(session, claim)


@pytest.mark.usefixtures("comparison")
def test_a_job_that_waits_is_taken_though_the_clock_was_set_back(engine: Engine) -> None:
    set_clock(engine, -86400.0)
    first = claimed(engine)
    with writing(engine) as session:
        fail_job(session, first, verbatim("busy"), "", retry_after=5.0)
    set_clock(engine, -86400.0)
    assert claimed(engine).attempt == 2


@pytest.mark.usefixtures("comparison")
def test_a_worker_that_stops_puts_its_job_back_and_the_attempt_does_not_count(engine: Engine) -> None:
    for _ in range(10):
        claim = claimed(engine)
        with writing(engine) as session:
            release_job(session, claim)
    job = now(engine, claim.job_id)
    assert job.state is JobState.QUEUED
    assert job.max_attempts - job.attempts == 3


@pytest.mark.usefixtures("comparison")
def test_heartbeats_keep_the_job_and_carry_the_progress(engine: Engine) -> None:
    claim = claimed(engine)
    leased_until = held_until(engine)
    with Lease(engine, claim) as lease:
        lease.progress(3, 10, Message.of("stage.measuring", left=7))
        wait_until(lambda: now(engine, claim.job_id).done == 3)
        assert claim_job(engine, "host:2") is None
        lease.check()
    assert held_until(engine) > leased_until
    job = now(engine, claim.job_id)
    assert (job.done, job.total, job.stage, job.share_done) == (
        3,
        10,
        Message.of("stage.measuring", left=7),
        0.3,
    )


@pytest.mark.usefixtures("comparison")
def test_a_running_job_hears_with_its_next_heartbeat_that_it_is_cancelled(engine: Engine) -> None:
    claim = claimed(engine)
    with Lease(engine, claim) as lease:
        with writing(engine) as session:
            request_cancel(session, claim.job_id)
        wait_until(lambda: refuses(lease), LEASE_SECONDS)
        with pytest.raises(JobCancelledError):
            lease.check()
    with writing(engine) as session:
        cancel_job(session, claim)
    assert now(engine, claim.job_id).state is JobState.CANCELLED


@pytest.mark.usefixtures("comparison")
def test_a_worker_that_lost_its_job_hears_of_it(engine: Engine) -> None:
    claim = claimed(engine)
    with Lease(engine, claim) as lease:
        with writing(engine) as session:
            session.execute(text("UPDATE jobs SET attempts = attempts + 1"))
        wait_until(lambda: refuses(lease), LEASE_SECONDS)
        with pytest.raises(JobLostError):
            lease.check()


@pytest.mark.usefixtures("comparison")
def test_a_cancelled_job_whose_worker_died_is_not_begun_again(engine: Engine, clock: Stopwatch) -> None:
    claim = claimed(engine, clock=clock)
    with writing(engine) as session:
        request_cancel(session, claim.job_id)
    pass_time(engine, clock)
    assert claim_job(engine, "host:2", clock=clock) is None
    assert now(engine, claim.job_id).state is JobState.CANCELLED


@pytest.mark.usefixtures("comparison")
def test_a_passing_error_is_tried_again_and_stays_visible(engine: Engine, clock: Stopwatch) -> None:
    claim = claimed(engine)
    with writing(engine) as session:
        fail_job(session, claim, verbatim("the disk is full"), "Traceback ...", retry_after=5.0)
    job = now(engine, claim.job_id)
    assert (job.state, job.error, job.traceback) == (
        JobState.QUEUED,
        verbatim("the disk is full"),
        "Traceback ...",
    )
    assert claim_job(engine, "host:2") is None
    pass_time(engine, clock, 6.0)
    again = claimed(engine)
    with writing(engine) as session:
        finish_job(session, again)
    assert now(engine, claim.job_id).error is None


@pytest.mark.usefixtures("comparison")
def test_an_error_that_stays_is_final(engine: Engine) -> None:
    claim = claimed(engine)
    with writing(engine) as session:
        fail_job(session, claim, verbatim("no dump there"), "", retry_after=None)
    job = now(engine, claim.job_id)
    assert (job.state, job.error) == (JobState.FAILED, verbatim("no dump there"))
    assert job.finished_at is not None
    assert claim_job(engine, "host:2") is None


@pytest.mark.parametrize("retry_after", [None, 0.2])
def test_of_a_job_that_was_deleted_a_worker_hears_when_it_fails(
    engine: Engine, comparison: int, retry_after: float | None
) -> None:
    claim = claimed(engine)
    with writing(engine) as session:
        session.execute(delete(ComparisonEntry).where(ComparisonEntry.id == comparison))
    with writing(engine) as session, pytest.raises(JobLostError, match=like("catalogue.job.lost")):
        fail_job(session, claim, verbatim("no dump there"), "", retry_after=retry_after)


def test_open_jobs_can_be_listed_apart(engine: Engine, comparison: int) -> None:
    with writing(engine) as session:
        waiting = enqueue(session, COMPARE, comparison)
    claim = claimed(engine)
    with writing(engine) as session:
        finish_job(session, claim)
    with reading(engine) as session:
        assert [job.id for job in list_jobs(session, only_open=True)] == [waiting]
        assert [job.id for job in list_jobs(session)] == [waiting, claim.job_id]


def test_it_can_be_seen_which_workers_are_alive(engine: Engine) -> None:
    worker_seen(engine, "host:1")
    worker_seen(engine, "host:2")
    worker_seen(engine, "host:1")
    with reading(engine) as session:
        workers = list_workers(session)
    assert [worker.name for worker in workers] == ["host:1", "host:2"]
    assert all(-1 < worker.seconds_since_seen < 5 for worker in workers)
    worker_gone(engine, "host:1")
    with reading(engine) as session:
        assert [worker.name for worker in list_workers(session)] == ["host:2"]


def test_a_job_that_never_was_is_not_in_the_catalogue(engine: Engine) -> None:
    with reading(engine) as session, pytest.raises(NotInCatalogueError):
        get_job(session, 1)


def test_idle_workers_do_not_write(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "writing", None)
    assert claim_job(engine, "host:1") is None
