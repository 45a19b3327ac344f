"""A worker that compares slices side by side keeps what it would keep one after the other."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import dask_cluster
from databases import new_postgresql_database
from sqlalchemy import Engine, text
from working import ask_to_compare, compare_with_worker, wait_for_comparison, wait_until, worker

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.measurements import KEY_BYTES
from firstdrift.catalogue.comparisons.records import Comparison, cancel_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.side_by_side import Judged
from firstdrift_worker import comparing
from firstdrift_worker.storage import CatalogueStorage

Dumps = tuple[Path, Path]
STEPS = 6


@pytest.fixture(autouse=True)
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slices be shared, however few and small they are."""
    monkeypatch.setattr(comparing, "_WORTH_LANES", 0.0)


@pytest.fixture
def steps(unpacked: Callable[[str], Path], tmp_path: Path) -> Dumps:
    """Some steps of one run, of which each is the same, and all of the target have one fault."""
    dump = unpacked("msprobe/llama_stat_mix_perturb")
    for side in ("golden", "target"):
        for step in range(STEPS):
            shutil.copytree(dump / side / "step0", tmp_path / side / f"step{step}")
    return tmp_path / "golden", tmp_path / "target"


def kept(url: str, comparison: Comparison) -> list[Any]:
    """Return all that the catalogue says of a comparison, but for how long it took."""
    engine = open_engine(url)
    with reading(engine) as session:
        found: list[Any] = [comparison.findings, comparison.counts, comparison.golden, comparison.target]
        for pair in slice_pairs_of(session, comparison.id):
            found += [pair.verdict, pair.judgement, pair.notes]
            found += [*tree.all_rows(session, pair.id), *tree.all_pairs(session, pair.id)]
    engine.dispose()
    return found


def lanes() -> Iterator[psutil.Process]:
    """Give the lanes that work for this process: they are forked by a server of its own."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.ppid() != os.getpid() and "forkserver" in " ".join(child.cmdline()):
                yield child


@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_lanes_keeps_the_same(
    sqlite_url: str, tmp_path: Path, steps: Dumps, processes: int
) -> None:
    alone = kept(sqlite_url, compare_with_worker(sqlite_url, *steps))
    other = f"sqlite:///{tmp_path}/other.db"
    together = compare_with_worker(other, *steps, processes=processes)
    assert kept(other, together) == alone
    assert together.job.share_done == 1


def test_a_cluster_keeps_the_same_wherever_it_works(
    sqlite_url: str, tmp_path: Path, steps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = kept(sqlite_url, compare_with_worker(sqlite_url, *steps))
    other = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setattr(ComparisonSession, "look_at", lambda *_: 1 / 0)
    with dask_cluster(tmp_path, 2) as cluster:
        together = compare_with_worker(other, *steps, cluster=cluster.address)
    assert kept(other, together) == alone


KEPT = ("node_blocks", "measurement_blocks", "row_blocks", "pair_blocks", "overviews", "plans")


def test_a_cluster_sends_no_more_than_is_kept(
    sqlite_url: str, tmp_path: Path, steps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    add = CatalogueStorage.add

    def weighed(self: CatalogueStorage, answer: Judged) -> None:
        sent.append(len(answer.kept))
        add(self, answer)

    monkeypatch.setattr(CatalogueStorage, "add", weighed)
    with dask_cluster(tmp_path, 1) as cluster:
        compare_with_worker(sqlite_url, *steps, cluster=cluster.address)
    engine = open_engine(sqlite_url)
    with reading(engine) as session:
        kept = sum(session.scalars(text(f"SELECT sum(length(content)) FROM {name}")).one() for name in KEPT)  # noqa: S608
        pairs = session.scalars(text("SELECT sum(pairs) FROM slice_pairs")).one()
    engine.dispose()
    assert len(sent) == STEPS
    assert sum(sent) < kept + 2 * KEY_BYTES * pairs + 10_000 * STEPS


def test_where_the_cluster_is_gone_the_worker_compares_by_itself(
    sqlite_url: str, tmp_path: Path, steps: Dumps, caplog: pytest.LogCaptureFixture
) -> None:
    alone = kept(sqlite_url, compare_with_worker(sqlite_url, *steps))
    other = f"sqlite:///{tmp_path}/other.db"
    assert kept(other, compare_with_worker(other, *steps, cluster="tcp://127.0.0.1:9")) == alone
    assert "compared here instead: no scheduler of a Dask cluster answers" in caplog.text


def test_a_cluster_that_is_lost_on_the_way_costs_no_result(
    engine: Engine, sqlite_url: str, tmp_path: Path, steps: Dumps
) -> None:
    alone = f"sqlite:///{tmp_path}/alone.db"
    expected = kept(alone, compare_with_worker(alone, *steps))
    comparison_id = ask_to_compare(engine, *steps)

    def is_under_way() -> bool:
        with reading(engine) as session:
            return any(slice_pairs_of(session, comparison_id))

    with dask_cluster(tmp_path, 1) as cluster, worker(sqlite_url, cluster=cluster.address):
        wait_until(is_under_way)
        cluster.scheduler.kill()
        comparison = wait_for_comparison(engine, comparison_id)
    assert comparison.state is JobState.DONE, comparison.job.traceback
    assert kept(sqlite_url, comparison) == expected


def test_a_worker_that_is_killed_leaves_the_rest_to_the_next(
    engine: Engine, sqlite_url: str, tmp_path: Path, steps: Dumps
) -> None:
    alone = f"sqlite:///{tmp_path}/alone.db"
    expected = kept(alone, compare_with_worker(alone, *steps))
    comparison_id = ask_to_compare(engine, *steps)
    code = (
        "import sys; from firstdrift_worker.main import work_until_signal; "
        "work_until_signal(sys.argv[1], processes=2, cluster=sys.argv[2])"
    )

    def is_under_way() -> bool:
        with reading(engine) as session:
            return any(slice_pairs_of(session, comparison_id))

    with dask_cluster(tmp_path, 1) as cluster:
        first = subprocess.Popen([sys.executable, "-c", code, sqlite_url, cluster.address])
        wait_until(is_under_way)
        first.kill()
        first.wait()
        with worker(sqlite_url, cluster=cluster.address):
            comparison = wait_for_comparison(engine, comparison_id, 120)
    assert comparison.state is JobState.DONE, comparison.job.traceback
    assert kept(sqlite_url, comparison) == expected


def test_on_postgresql_too(postgresql: str, sqlite_url: str, steps: Dumps) -> None:
    alone = kept(sqlite_url, compare_with_worker(sqlite_url, *steps))
    url = new_postgresql_database(postgresql)
    assert kept(url, compare_with_worker(url, *steps, processes=2)) == alone


def test_lanes_that_are_killed_lose_nothing(
    engine: Engine, sqlite_url: str, tmp_path: Path, steps: Dumps
) -> None:
    alone = f"sqlite:///{tmp_path}/alone.db"
    expected = kept(alone, compare_with_worker(alone, *steps))
    comparison_id = ask_to_compare(engine, *steps)

    def kill() -> bool:
        found = list(lanes())
        for lane in found:
            with suppress(psutil.NoSuchProcess):
                os.kill(lane.pid, signal.SIGKILL)
        return bool(found)

    with worker(sqlite_url, processes=3):
        wait_until(kill)
        comparison = wait_for_comparison(engine, comparison_id)
    assert comparison.state is JobState.DONE, comparison.job.traceback
    assert comparison.job.attempts == 1
    assert kept(sqlite_url, comparison) == expected


def test_lanes_end_when_the_job_is_cancelled(engine: Engine, sqlite_url: str, steps: Dumps) -> None:
    comparison_id = ask_to_compare(engine, *steps)
    with worker(sqlite_url, processes=2, lease=0.3):
        wait_until(lambda: any(lanes()))
        with writing(engine) as session:
            cancel_comparison(session, comparison_id)
        comparison = wait_for_comparison(engine, comparison_id)
        wait_until(lambda: not any(lanes()))
    assert comparison.state in (JobState.CANCELLED, JobState.DONE)


def test_damaged_slices_are_told_once(sqlite_url: str, tmp_path: Path, steps: Dumps) -> None:
    for step in (2, 4):
        (file,) = steps[1].glob(f"step{step}/rank0/dump.json")
        file.write_text("{", "utf-8")
    alone = f"sqlite:///{tmp_path}/alone.db"
    expected = compare_with_worker(alone, *steps)
    comparison = compare_with_worker(sqlite_url, *steps, processes=2)
    assert comparison.unreadable == expected.unreadable == 2
    assert kept(sqlite_url, comparison) == kept(alone, expected)
