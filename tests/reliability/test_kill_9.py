"""Processes are killed at random moments; nothing acknowledged is lost, nothing is counted twice."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psutil
import pytest
from soak import record, rounds
from sqlalchemy import Engine, text
from working import ask_to_compare, wait_for_comparison, wait_until

from firstdrift.catalogue.comparisons.measurements import KEY_BYTES
from firstdrift.catalogue.comparisons.records import get_comparison, list_comparisons
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.jobs.queue import list_jobs
from firstdrift.catalogue.matches.match_sets import add_edits, create_match_set
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.compare import compare
from firstdrift.matching.manual.edits import Edit, match

ROUNDS = rounds(1, 20)
KILLS = rounds(3, 5)
"""Of workers in each round, with one process and with two: 200 in a whole run."""

WORK = """
import sys, threading
from firstdrift_worker import measuring
from firstdrift_worker.main import run
measuring.CHUNK_PAIRS, measuring.WORTH_A_POOL = 40, 0
run(sys.argv[1], processes=int(sys.argv[2]), until=threading.Event(), lease=1.5)
"""
WORK_SLOWLY = """
import sys, threading, time
from firstdrift.catalogue.comparisons import results
from firstdrift_worker import measuring
from firstdrift_worker.main import run
measuring.CHUNK_PAIRS, measuring.WORTH_A_POOL = 2, 0
keep = results.add_measurements
results.add_measurements = lambda *what: (time.sleep(0.2), keep(*what))[1]
run(sys.argv[1], processes=int(sys.argv[2]), until=threading.Event(), lease=1.5)
"""
CREATE = """
import sys
from pathlib import Path
from firstdrift.catalogue.comparisons.records import create_comparison
from firstdrift.catalogue.engine import open_engine, writing
from firstdrift.comparison.report import Options
engine = open_engine(sys.argv[1])
while True:
    with writing(engine, durable=True) as session:
        made = create_comparison(session, Path("/golden"), Path("/target"), Options())
    print(made, flush=True)
"""


@contextmanager
def process(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a process of its own, which is killed at the end of the block at the latest."""
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def kill(worker: subprocess.Popen[str]) -> None:
    """Kill a process, and see that all those it started end by themselves."""
    try:
        started = psutil.Process(worker.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    os.kill(worker.pid, signal.SIGKILL)
    _, left = psutil.wait_procs(started, timeout=10)
    assert left == []


def everything(engine: Engine, comparison_id: int) -> str:
    """Give all that is said of a comparison, as text."""
    said = []
    with reading(engine) as session:
        comparison = get_comparison(session, comparison_id)
        said += [comparison.findings, comparison.counts, comparison.golden, comparison.target]
        for pair in slice_pairs_of(session, comparison_id):
            said += [pair.golden, pair.target, pair.judgement, pair.unmatched_golden, pair.unmatched_target]
            said += all_rows(session, pair.id)
            said += all_pairs(session, pair.id)
    return "\n".join(map(repr, said))


class Undisturbed(NamedTuple):
    """A comparison whose worker nobody killed: dumps, catalogue, id, all that is said, seconds it took."""

    dumps: tuple[Path, Path]
    folder: Path
    comparison_id: int
    said: str
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Undisturbed:
    golden, target = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    folder = tmp_path_factory.mktemp("undisturbed")
    with catalogue(folder) as engine:
        comparison_id = ask_to_compare(engine, golden, target)
        with process(WORK, url_of(engine), "1") as worker:
            wait_until_at_work(engine, worker.pid)
            begin = time.monotonic()
            comparison = wait_for_comparison(engine, comparison_id)
        seconds = time.monotonic() - begin
        said = everything(engine, comparison_id)
    assert comparison.state is JobState.DONE, comparison.job.traceback
    assert comparison.findings == compare(golden, target).findings
    return Undisturbed((golden, target), folder, comparison_id, said, seconds)


@pytest.mark.timeout(120 + 20 * KILLS * ROUNDS)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_comparison_whose_worker_is_killed_again_and_again_comes_out_the_same(
    tmp_path: Path, undisturbed: Undisturbed, processes: int
) -> None:
    chance = random.Random(processes)  # noqa: S311 (moments to kill at are no secrets)
    at_work = 0
    for number in range(ROUNDS):
        with catalogue(tmp_path / str(number)) as engine:
            comparison_id = ask_to_compare(engine, *undisturbed.dumps)
            allow_many_attempts(engine)
            kill_when_measuring(engine, processes)
            assert not is_over(engine, comparison_id)
            for _ in range(KILLS - 1):
                with process(WORK, url_of(engine), str(processes)) as worker:
                    wait_until_at_work(engine, worker.pid)
                    time.sleep(chance.uniform(0, undisturbed.seconds / 2))
                    kill(worker)
                at_work += not is_over(engine, comparison_id)
            with process(WORK, url_of(engine), str(processes)):
                comparison = wait_for_comparison(engine, comparison_id)
            assert comparison.state is JobState.DONE, comparison.job.traceback
            assert everything(engine, comparison_id) == undisturbed.said
            assert_whole_and_nothing_twice(engine)
    record(
        "killed_worker",
        f"{ROUNDS * KILLS} kills of a worker with {processes} processes, {at_work + ROUNDS} in the midst of "
        f"a job, {ROUNDS} comparisons: 0 results differ, 0 are there twice, 0 processes left over",
    )


@pytest.mark.timeout(300)
def test_an_edit_whose_worker_is_killed_leaves_the_version_before_it_as_it_was(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    edits = (match("root.model.layers.1.mlp", "root.model.layers.2.mlp"),)
    for name in ("calm", "killed"):
        shutil.copytree(undisturbed.folder, tmp_path / name)
    comparison_id, before = undisturbed.comparison_id, undisturbed.said
    with catalogue(tmp_path / "calm") as engine, process(WORK, url_of(engine), "1"):
        known = edit_in(engine, comparison_id, *edits)
        assert wait_for_comparison(engine, known).state is JobState.DONE
        expected = everything(engine, known)
    assert before != expected
    with catalogue(tmp_path / "killed") as engine:
        results = edit_in(engine, comparison_id, *edits)
        allow_many_attempts(engine)
        for _ in range(KILLS):
            kill_when_measuring(engine, processes=1)
            assert not is_over(engine, results)
            assert everything(engine, comparison_id) == before
        with process(WORK, url_of(engine), "1"):
            assert wait_for_comparison(engine, results).state is JobState.DONE
        assert everything(engine, results) == expected
        assert everything(engine, comparison_id) == before
        with reading(engine) as session:
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []
            assert session.scalar(text("SELECT count(*) FROM slice_pairs WHERE NOT complete")) == 0
    record("killed_worker", f"{KILLS} kills while an edit is measured: the version before it is as it was")


@contextmanager
def catalogue(folder: Path) -> Iterator[Engine]:
    engine = open_engine(database_url(folder))
    upgrade(engine)
    yield engine
    engine.dispose()


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string()


def edit_in(engine: Engine, comparison_id: int, *edits: Edit) -> int:
    """Lay edits over a comparison; give the id of the comparison that holds the results."""
    with writing(engine, durable=True) as session:
        match_set = create_match_set(session, comparison_id, f"set {uuid4()}")
        return add_edits(session, match_set, 0, edits).results() or 0


def kill_when_measuring(engine: Engine, processes: int) -> None:
    """Let a worker work slowly, and kill it as soon as it has measured something."""
    before = number_of_measurements(engine)
    with process(WORK_SLOWLY, url_of(engine), str(processes)) as worker:
        wait_until(lambda: number_of_measurements(engine) > before)
        kill(worker)


def number_of_measurements(engine: Engine) -> int:
    with reading(engine) as session:
        return session.scalar(text("SELECT count(*) FROM measurement_blocks")) or 0


def is_over(engine: Engine, comparison_id: int) -> bool:
    with reading(engine) as session:
        return get_comparison(session, comparison_id).job.is_over


def wait_until_at_work(engine: Engine, pid: int) -> None:
    """Wait until a process has taken the job, or the job is over."""

    def at_work() -> bool:
        with reading(engine) as session:
            job = list_jobs(session)[0]
        return job.is_over or (job.worker or "").endswith(f":{pid}")

    wait_until(at_work)


def allow_many_attempts(engine: Engine) -> None:
    with writing(engine) as session:
        session.execute(text("UPDATE jobs SET max_attempts = 1000"))


def assert_whole_and_nothing_twice(engine: Engine) -> None:
    def number(query: str) -> int:
        with reading(engine) as session:
            return session.scalar(text(f"SELECT {query}")) or 0

    with reading(engine) as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        assert session.execute(text("PRAGMA foreign_key_check")).all() == []
    assert number("count(*) FROM dumps") == 2
    assert number("count(*) FROM slice_pairs WHERE NOT complete") == 0
    assert number(f"sum(length(keys)) / {KEY_BYTES} FROM measurement_blocks") == number(
        "sum(pairs) FROM slice_pairs"
    )
    assert number("sum(length(names)) / 4 FROM node_blocks") == number("sum(nodes) FROM slices")
    with reading(engine) as session:
        for pair in slice_pairs_of(session, 1):
            assert len(list(all_rows(session, pair.id))) == pair.rows
            assert len(list(all_pairs(session, pair.id))) == pair.pairs


@pytest.mark.timeout(120)
def test_a_comparison_that_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    chance = random.Random(1)  # noqa: S311
    acknowledged: list[int] = []
    with catalogue(tmp_path) as engine:
        for _ in range(ROUNDS):
            with process(CREATE, url_of(engine)) as creator:
                assert creator.stdout is not None
                acknowledged += [int(creator.stdout.readline()) for _ in range(2)]
                time.sleep(chance.uniform(0, 0.2))
                creator.kill()
                acknowledged += [int(line) for line in creator.stdout.read().split("\n")[:-1]]
        with reading(engine) as session:
            there = {comparison.id for comparison in list_comparisons(session, limit=1_000_000)}
            assert session.scalar(text("PRAGMA integrity_check")) == "ok"
    assert len(acknowledged) > ROUNDS
    assert there >= set(acknowledged)
    lost = len(set(acknowledged) - there)
    record("killed_worker", f"{ROUNDS} kills of who asks, {len(acknowledged)} acknowledged: {lost} lost")
