"""How the jobs stand, and how much a link may still write, on both kinds of database."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.jobs import queue, waiting
from firstdrift.catalogue.jobs.lease import worker_seen
from firstdrift.catalogue.jobs.queue import COMPARE, COMPUTE, FOLLOW, INDEX, enqueue, has_queued, list_jobs
from firstdrift.catalogue.jobs.waiting import require_room, standing
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.sharing.notes import _require_room_of_link
from firstdrift.catalogue.tables import JobEntry, JobState
from firstdrift.errors import BusyError


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = open_engine(database)
    upgrade(engine)
    yield engine
    engine.dispose()


def test_an_empty_database_has_nothing_to_do(engine: Engine) -> None:
    with reading(engine) as session:
        found = standing(session)
    assert (found.counts, found.waiting, found.workers, found.is_stuck) == ({}, None, (), False)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_worker_is_stuck_where_none_works_and_one_could(engine: Engine, *, is_running: bool) -> None:
    worker_seen(engine, "here:1")
    with writing(engine) as session:
        job = insert(JobEntry)
        session.execute(job.values(kind=COMPARE, created_at=Now(-100), ready_at=Now(-100)))
        session.execute(job.values(kind=INDEX, created_at=Now(-500), ready_at=Now(100)))
        session.execute(job.values(kind=FOLLOW, created_at=Now(-900), ready_at=Now(-900)))
        session.execute(job.values(kind=INDEX, state=JobState.DONE))
        if is_running:
            session.execute(job.values(kind=INDEX, state=JobState.RUNNING))
    with reading(engine) as session:
        found = standing(session)
    assert 99 < (found.waiting or 0) < 400, "not those that wait for a moment to come"
    assert found.counts[COMPARE, JobState.QUEUED] == 1
    assert (INDEX, JobState.DONE) not in found.counts
    assert found.is_stuck is not is_running


def test_what_is_refused_is_not_queued(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_OPEN", 3)
    monkeypatch.setattr(waiting, "MOST_OF_MEMBERS", 2)

    def ask(*, for_member: bool) -> None:
        with writing(engine) as session:
            enqueue(session, COMPARE)
            require_room(session, for_member=for_member)

    ask(for_member=True)
    ask(for_member=True)
    with pytest.raises(BusyError):
        ask(for_member=True)
    ask(for_member=False)
    with pytest.raises(BusyError):
        ask(for_member=False)
    with writing(engine) as session:
        require_room(session, for_member=True)  # nothing new is asked for
    with reading(engine) as session:
        assert standing(session).counts == {(COMPARE, JobState.QUEUED): 3}


def test_a_link_that_wrote_nothing_may_write(engine: Engine) -> None:
    with reading(engine) as session:
        _require_room_of_link(session, 1, 4000)


def test_no_job_is_said_to_be_queued_that_was_rolled_back(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", queue.__name__)
    with Session(engine.execution_options(writes=True), expire_on_commit=False) as session:
        enqueue(session, COMPARE)
        session.rollback()
        session.commit()
        with session.begin():
            assert not has_queued(session)
            kept = enqueue(session, INDEX)
            part = session.begin_nested()
            enqueue(session, FOLLOW)
            part.rollback()
            with session.begin_nested():
                inner = enqueue(session, COMPUTE)
            assert not caplog.records, "a part that is over may still be rolled back"
            assert has_queued(session)
        session.commit()
    said = [(getattr(line, "kind", ""), getattr(line, "job", 0)) for line in caplog.records]
    assert said == [(INDEX, kept), (COMPUTE, inner)]
    with reading(engine) as session:
        assert {job.id for job in list_jobs(session)} == {kept, inner}
