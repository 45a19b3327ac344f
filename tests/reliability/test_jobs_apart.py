"""Jobs are done in processes of their own: a dump that takes long, or kills, keeps nobody else waiting."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from messages import ids_of
from sqlalchemy import Engine, text
from working import ask_to_compare, wait_for_comparison, wait_until

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs.queue import request_cancel
from firstdrift.catalogue.tables import JobState

NODES = 150_000
"""Reading so many takes far longer than all that the tests do beside it."""

LEASE_SECONDS = 3.0
SHORT_LEASE = f"""
from firstdrift.catalogue.jobs import queue
queue.LEASE_SECONDS = {LEASE_SECONDS}
from firstdrift.cli import run
run()
"""


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump that is whole, and takes a long time."""
    return write_dump(tmp_path_factory.mktemp("heavy"), NODES)


def write_dump(folder: Path, nodes: int) -> Path:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 8], "Max": 1.0, "Min": -1.0}
    tensor |= {"Mean": 0.1, "Norm": 2.0, "requires_grad": False, "data_name": None}
    data = {
        f"Module.model.layers.{number}.mlp.down_proj.Linear.forward.0": {
            "input_args": [tensor],
            "input_kwargs": {},
            "output": [tensor],
        }
        for number in range(nodes)
    }
    rank = folder / "step0" / "rank0"
    rank.mkdir(parents=True)
    whole = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (rank / "dump.json").write_text(json.dumps(whole))
    return folder


@contextmanager
def worker(
    engine: Engine, *options: str, start: Sequence[str] = ("-m", "firstdrift.cli")
) -> Iterator[psutil.Process]:
    """Run the worker as `serve` does."""
    command = [sys.executable, *start, "worker", "--workers", "1", *options]
    environment = os.environ | {"FIRSTDRIFT_DATABASE_URL": engine.url.render_as_string()}
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def state_of(engine: Engine, comparison: int) -> JobState:
    with reading(engine) as session:
        return get_comparison(session, comparison).state


def job_processes(worker: psutil.Process) -> list[psutil.Process]:
    """Give the processes that lead a group, as those of jobs do."""
    found = []
    for process in worker.children(recursive=True):
        try:
            found += [process] if os.getpgid(process.pid) == process.pid else []
        except ProcessLookupError:
            continue
    return found


def test_a_job_that_is_cancelled_is_ended_at_once_whatever_it_does(engine: Engine, heavy: Path) -> None:
    with worker(engine) as process:
        comparison = ask_to_compare(engine, heavy, heavy)
        wait_until(lambda: bool(job_processes(process)))
        (doing,) = job_processes(process)
        time.sleep(1.0)
        with writing(engine) as session:
            request_cancel(session, get_comparison(session, comparison).job.id)
        doing.wait(10)
        wait_until(lambda: state_of(engine, comparison) is JobState.CANCELLED, 10)


def test_a_dump_that_takes_long_does_not_keep_the_next_comparison_waiting(
    engine: Engine, heavy: Path, tmp_path: Path
) -> None:
    small = write_dump(tmp_path / "small", 3)
    with worker(engine) as process:
        slow = ask_to_compare(engine, heavy, heavy)
        wait_until(lambda: bool(job_processes(process)))
        quick = wait_for_comparison(engine, ask_to_compare(engine, small, small))
        assert quick.state is JobState.DONE
        if state_of(engine, slow) is JobState.RUNNING:
            with writing(engine) as session:
                request_cancel(session, get_comparison(session, slow).job.id)
        first = wait_for_comparison(engine, slow)
    assert quick.finished_at is not None
    assert first.job.finished_at is not None
    assert quick.finished_at < first.job.finished_at


def test_a_process_that_is_killed_over_a_job_is_followed_by_another(engine: Engine, heavy: Path) -> None:
    with worker(engine) as process:
        comparison = ask_to_compare(engine, heavy, heavy)
        for _ in range(3):
            wait_until(lambda: bool(job_processes(process)))
            (doing,) = job_processes(process)
            doing.send_signal(signal.SIGKILL)
            doing.wait(10)
        found = wait_for_comparison(engine, comparison)
        assert process.is_running()
    assert found.state is JobState.FAILED
    assert set(ids_of(found.job.error)) == {"worker.process_died", "processes.ended.killed"}


def test_a_process_that_is_silent_for_longer_than_its_lease_is_not_taken_for_dead(
    engine: Engine, tmp_path: Path
) -> None:
    """One long call, a disk on the network: heartbeats may stay away for a while."""
    small = write_dump(tmp_path / "small", 8_000)
    with worker(engine, start=("-c", SHORT_LEASE)) as process:
        comparison = ask_to_compare(engine, small, small)
        wait_until(lambda: bool(job_processes(process)))
        (doing,) = job_processes(process)
        doing.suspend()
        time.sleep(LEASE_SECONDS + 2)
        assert [found.pid for found in job_processes(process)] == [doing.pid]
        doing.resume()
        found = wait_for_comparison(engine, comparison)
    assert (found.state, found.job.attempts) == (JobState.DONE, 1)


def test_a_dump_that_takes_more_processor_time_than_it_may_is_unreadable(engine: Engine, heavy: Path) -> None:
    os.environ["FIRSTDRIFT_READING_SECONDS"] = "1"
    try:
        with worker(engine):
            found = wait_for_comparison(engine, ask_to_compare(engine, heavy, heavy))
    finally:
        del os.environ["FIRSTDRIFT_READING_SECONDS"]
    assert found.state is JobState.FAILED
    assert set(ids_of(found.job.error)) >= {"processes.long_reading", "processes.hint.reading_seconds"}


def test_a_dump_that_takes_more_memory_than_there_may_be_is_unreadable(engine: Engine, heavy: Path) -> None:
    os.environ["FIRSTDRIFT_JOB_MEMORY"] = "256MiB"
    try:
        with worker(engine) as process:
            found = wait_for_comparison(engine, ask_to_compare(engine, heavy, heavy))
            assert process.is_running()
    finally:
        del os.environ["FIRSTDRIFT_JOB_MEMORY"]
    assert found.state is JobState.FAILED
    assert "worker.reading_takes_memory" in ids_of(found.job.error)


def test_a_worker_reads_nothing_outside_its_directories_whatever_it_is_asked_to(
    engine: Engine, tmp_path: Path
) -> None:
    mine, theirs = write_dump(tmp_path / "mine", 3), write_dump(tmp_path / "theirs", 3)
    with worker(engine, str(tmp_path / "mine")):
        found = wait_for_comparison(engine, ask_to_compare(engine, mine, theirs))
        well = wait_for_comparison(engine, ask_to_compare(engine, mine, mine))
    assert (found.state, well.state) == (JobState.FAILED, JobState.DONE)
    with reading(engine) as session:
        assert session.scalar(text("SELECT sum(nodes) FROM slices")) == 3
