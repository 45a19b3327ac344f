"""Web servers, workers and a cluster on one PostgreSQL: what is killed on the way costs no answer."""

import http.client
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clusters import DaskCluster, dask_cluster
from databases import new_postgresql_database
from running import FIRSTDRIFT, Running, running
from sqlalchemy import Engine, text
from working import compare_with_worker, wait_until

from firstdrift.catalogue.comparisons.measurements import KEY_BYTES
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.catalogue.jobs.queue import list_jobs
from firstdrift.comparison.report import Options

STEPS = 16
PATIENCE = 180.0
RULES = (None, "bitwise")
"""The same dumps by each: what is measured for one holds for the other, whoever is sooner."""


class Asked(NamedTuple):
    """A comparison that was asked for: dumps and rules."""

    golden: Path
    target: Path
    rules: str | None

    @property
    def body(self) -> dict[str, str]:
        body = {"golden": str(self.golden), "target": str(self.target)}
        return body | ({"rules": self.rules} if self.rules else {})

    @property
    def options(self) -> Options:
        return Options(rules=self.rules) if self.rules else Options()


@pytest.fixture
def asked(unpacked: Callable[[str], Path], tmp_path: Path) -> list[Asked]:
    """Comparisons of some steps of a run, there and back."""
    dump = unpacked("msprobe/llama_stat_mix_perturb")
    sides = tmp_path / "golden", tmp_path / "target"
    for side in sides:
        for step in range(STEPS):
            shutil.copytree(dump / side.name / "step0", side / f"step{step}")
    return [Asked(*pair, rules) for pair in (sides, sides[::-1]) for rules in RULES]


def everything(engine: Engine, comparison_id: int) -> list[Any]:
    """Return all that the catalogue says of a comparison, but for how long it took."""
    with reading(engine) as session:
        comparison = get_comparison(session, comparison_id)
        said: list[Any] = [comparison.findings, comparison.counts, comparison.golden, comparison.target]
        for pair in slice_pairs_of(session, comparison_id):
            said += [pair.verdict, pair.judgement, pair.notes]
            said += [*all_rows(session, pair.id), *all_pairs(session, pair.id)]
    return said


def request(server: Running, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Ask a server over HTTP; give the status and what it answers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    sent = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, sent, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def workers(count: int, folder: Path, environment: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run some `firstdrift worker` while the block runs."""
    command = [*FIRSTDRIFT, "worker", "--workers", "1", "--data-dir", str(folder / "data"), str(folder)]
    started = [subprocess.Popen(command, env=os.environ | environment) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


class Deployment(NamedTuple):
    """What runs: a catalogue, two servers and two workers on it, and a cluster of two."""

    engine: Engine
    servers: tuple[Running, Running]
    workers: list[subprocess.Popen[bytes]]
    cluster: DaskCluster

    def at_work(self) -> dict[str, int]:
        """Say how many slices are kept of the comparisons that each worker is at, and has not ended."""
        with reading(self.engine) as session:
            jobs = [job for job in list_jobs(session, only_open=True) if job.worker is not None]
            kept = {job.id: len(list(slice_pairs_of(session, job.comparison_id or 0))) for job in jobs}
        return {str(job.worker): kept[job.id] for job in jobs if kept[job.id]}


@contextmanager
def deployment(url: str, folder: Path) -> Iterator[Deployment]:
    variables = {"FIRSTDRIFT_DATABASE_URL": url}
    with ExitStack() as stack:
        cluster = stack.enter_context(dask_cluster(folder, 2))
        servers = [stack.enter_context(running(folder, "server", "--no-token", **variables)) for _ in "12"]
        of_cluster = variables | {"FIRSTDRIFT_CLUSTER": cluster.address}
        started = stack.enter_context(workers(2, folder, of_cluster))
        engine = open_engine(url)
        stack.callback(engine.dispose)
        yield Deployment(engine, (servers[0], servers[1]), started, cluster)


def kill_one_of_each(here: Deployment) -> None:
    """Kill a web server, a worker and a worker of the cluster, all of which are at work."""
    wait_until(lambda: len(here.at_work()) == len(here.workers), PATIENCE)
    os.kill(here.servers[0].process.pid, signal.SIGKILL)
    os.kill(here.workers[0].pid, signal.SIGKILL)
    os.kill(here.cluster.worker_processes()[0].pid, signal.SIGKILL)


@pytest.mark.timeout(600)
def test_one_of_each_is_killed_and_no_answer_is_lost(
    postgresql: str, tmp_path: Path, asked: Sequence[Asked]
) -> None:
    expected = [alone(tmp_path / f"alone{number}", one) for number, one in enumerate(asked)]
    with deployment(new_postgresql_database(postgresql), tmp_path) as here:
        first, second = here.servers
        made = []
        for number, one in enumerate(asked):
            status, answer = request(here.servers[number % 2], "POST", "/api/v1/comparisons", one.body)
            assert status == http.HTTPStatus.CREATED, answer
            made.append(answer["id"])
        assert len(set(made)) == len(asked)
        kill_one_of_each(here)
        first.process.wait()

        def is_over(comparison: int) -> bool:
            status, answer = request(second, "GET", f"/api/v1/comparisons/{comparison}")
            assert status == http.HTTPStatus.OK
            return answer["job"]["state"] not in ("queued", "running")

        for comparison in made:
            wait_until(lambda at=comparison: is_over(at), PATIENCE)
        with reading(here.engine) as session:
            jobs = list_jobs(session)
        assert [(job.state, job.traceback) for job in jobs] == [("done", None)] * len(asked)
        assert max(job.attempts for job in jobs) > 1, "the worker that was killed had no job in hand"
        differing = [
            (one, at)
            for one, comparison, known in zip(asked, made, expected, strict=True)
            for at, said in enumerate(everything(here.engine, comparison))
            if said != known[at]
        ]
        assert differing == []
        assert_nothing_twice(here.engine)


def alone(folder: Path, one: Asked) -> list[Any]:
    """Return all that one process says, on a catalogue of its own."""
    url = f"sqlite:///{folder}.db"
    comparison = compare_with_worker(url, one.golden, one.target, one.options)
    engine = open_engine(url)
    said = everything(engine, comparison.id)
    engine.dispose()
    return said


def assert_nothing_twice(engine: Engine) -> None:
    def number(query: str) -> int:
        with reading(engine) as session:
            return session.scalar(text(f"SELECT {query}")) or 0

    ways = 2
    assert number("count(*) FROM dumps") == 2
    assert number("count(*) FROM slices") == 2 * STEPS
    assert number("count(*) FROM slice_pairs") == STEPS * ways * len(RULES)
    assert number("count(*) FROM slice_pairs WHERE NOT complete") == 0
    assert number("sum(length(names)) / 4 FROM node_blocks") == number("sum(nodes) FROM slices")
    measured = number(f"sum(length(keys)) / {KEY_BYTES} FROM measurement_blocks")
    assert measured == number("sum(pairs) FROM slice_pairs") / len(RULES)
