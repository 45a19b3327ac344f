import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, text
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import create_comparison
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs import queue as jobs
from firstdrift.catalogue.jobs.lease import Lease, beat, worker_gone, worker_seen
from firstdrift.catalogue.jobs.queue import (
    COMPARE,
    LEASE_SECONDS,
    Claim,
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
from firstdrift.errors import JobCancelledError, JobLostError, NotInCatalogueError
from firstdrift.wording.message import Message


@pytest.fixture
def comparison(engine: Engine) -> int:
    """Make a comparison; its job is the first one."""
    with writing(engine) as session:
        return create_comparison(session, Path("/a"), Path("/b"), Options())


def now(engine: Engine, job_id: int) -> Job:
    with reading(engine) as session:
        return get_job(session, job_id)


def claimed(engine: Engine, *, lease: float = 60.0) -> Claim:
    claim = claim_job(engine, "host:1", lease=lease)
    assert claim is not None
    return claim


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
def test_a_job_whose_worker_is_silent_is_taken_over_and_the_first_worker_is_refused(engine: Engine) -> None:
    dead = claimed(engine, lease=0.05)
    time.sleep(0.1)
    alive = claimed(engine)
    assert (alive.job_id, alive.attempt) == (dead.job_id, 2)
    for record in (confirm, finish_job, cancel_job, release_job):
        with pytest.raises(JobLostError), writing(engine) as session:
            record(session, dead)
    with pytest.raises(JobLostError), writing(engine) as session:
        fail_job(session, dead, "too late", "", retry_after=None)
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
def test_what_a_worker_writes_after_it_lost_the_job_is_not_kept(engine: Engine) -> None:
    lost = claimed(engine, lease=0.05)
    time.sleep(0.1)
    claimed(engine)
    with pytest.raises(JobLostError), writing(engine) as session:
        write_and_confirm(session, lost)
    with reading(engine) as session:
        assert session.scalar(text("SELECT note FROM comparisons")) == ""


@pytest.mark.usefixtures("comparison")
def test_a_job_that_kills_its_workers_is_given_up(engine: Engine) -> None:
    for attempt in (1, 2, 3):
        assert claimed(engine, lease=0.05).attempt == attempt
        time.sleep(0.1)
    assert claim_job(engine, "host:4") is None
    with reading(engine) as session:
        (job,) = list_jobs(session)
    assert job.state is JobState.FAILED
    assert job.error == "the worker died each time it tried"


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
def test_a_dead_worker_s_job_is_taken_over_however_the_clock_was_set(engine: Engine, seconds: float) -> None:
    dead = claimed(engine, lease=0.5)
    set_clock(engine, seconds)
    until = time.monotonic() + 60
    while (again := claim_job(engine, "host:2", lease=0.5)) is None:
        assert time.monotonic() < until, "nobody takes the job"
        time.sleep(0.05)
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
        fail_job(session, first, "busy", "", retry_after=5.0)
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
    claim = claimed(engine, lease=0.3)
    with Lease(engine, claim, 0.3) as lease:
        lease.progress(3, 10, Message.of("stage.measuring", left=7))
        time.sleep(0.8)
        assert claim_job(engine, "host:2") is None
        lease.check()
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
        asked = time.monotonic()
        while time.monotonic() - asked < LEASE_SECONDS:
            try:
                lease.check()
            except JobCancelledError:
                break
            time.sleep(0.01)
        with pytest.raises(JobCancelledError):
            lease.check()
    with writing(engine) as session:
        cancel_job(session, claim)
    assert now(engine, claim.job_id).state is JobState.CANCELLED


@pytest.mark.usefixtures("comparison")
def test_a_worker_that_lost_its_job_hears_of_it(engine: Engine) -> None:
    claim = claimed(engine)
    with Lease(engine, claim, 0.3) as lease:
        with writing(engine) as session:
            session.execute(text("UPDATE jobs SET attempts = attempts + 1"))
        time.sleep(0.5)
        with pytest.raises(JobLostError):
            lease.check()


@pytest.mark.usefixtures("comparison")
def test_a_cancelled_job_whose_worker_died_is_not_begun_again(engine: Engine) -> None:
    claim = claimed(engine, lease=0.05)
    with writing(engine) as session:
        request_cancel(session, claim.job_id)
    time.sleep(0.1)
    assert claim_job(engine, "host:2") is None
    assert now(engine, claim.job_id).state is JobState.CANCELLED


@pytest.mark.usefixtures("comparison")
def test_a_passing_error_is_tried_again_and_stays_visible(engine: Engine) -> None:
    claim = claimed(engine)
    with writing(engine) as session:
        fail_job(session, claim, "the disk is full", "Traceback ...", retry_after=0.2)
    job = now(engine, claim.job_id)
    assert (job.state, job.error, job.traceback) == (JobState.QUEUED, "the disk is full", "Traceback ...")
    assert claim_job(engine, "host:2") is None
    time.sleep(0.3)
    again = claimed(engine)
    with writing(engine) as session:
        finish_job(session, again)
    assert now(engine, claim.job_id).error is None


@pytest.mark.usefixtures("comparison")
def test_an_error_that_stays_is_final(engine: Engine) -> None:
    claim = claimed(engine)
    with writing(engine) as session:
        fail_job(session, claim, "no dump there", "", retry_after=None)
    job = now(engine, claim.job_id)
    assert (job.state, job.error) == (JobState.FAILED, "no dump there")
    assert job.finished_at is not None
    assert claim_job(engine, "host:2") is None


@pytest.mark.parametrize("retry_after", [None, 0.2])
def test_of_a_job_that_was_deleted_a_worker_hears_when_it_fails(
    engine: Engine, comparison: int, retry_after: float | None
) -> None:
    claim = claimed(engine)
    with writing(engine) as session:
        session.execute(delete(ComparisonEntry).where(ComparisonEntry.id == comparison))
    with writing(engine) as session, pytest.raises(JobLostError, match="deleted"):
        fail_job(session, claim, "no dump there", "", retry_after=retry_after)


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
