"""Clocks are set on and back by hours while real processes work, and nobody is stopped, or let in, by it.

A file sets the clock of each process, and of its SQLite (`tests/set_clock`): no other program is needed.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from clients import Client
from running import Browser, Running, running
from soak import record, rounds
from working import wait_until

HOUR = 3600.0
JUMPS = (5 * HOUR, -5 * HOUR, 30 * HOUR, 0.0, -30 * HOUR, 1 * HOUR)
HERE = Path(__file__).parent.parent
TOKEN = "the token of this server"  # noqa: S105
pytestmark = pytest.mark.timeout(rounds(600, 7200))


class Clock:
    """What all processes of a server take for the time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Set it on, or back, against the real one."""
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds), "ascii")
        new.replace(self.file)

    @contextmanager
    def served(self, folder: Path, command: str, *options: str, **variables: str) -> Iterator[Running]:
        """Run a server whose processes have this clock."""
        path = os.pathsep.join([str(HERE / "set_clock"), *filter(None, [os.environ.get("PYTHONPATH")])])
        known = {"PYTHONPATH": path, "FIRSTDRIFT_TEST_CLOCK": str(self.file), **variables}
        with running(folder, command, *options, **known) as server:
            yield server


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@pytest.fixture
def dumps(unpacked: Callable[[str], Path]) -> list[str]:
    return [str(unpacked("msit/llama4_golden_fp32")), str(unpacked("msit/llama4_perturb_L2_T3"))]


def asked(client: Client, dumps: list[str], count: int) -> list[int]:
    said = {"golden": dumps[0], "target": dumps[1]}
    return [client.data("POST", "/api/v1/comparisons", said)["id"] for _ in range(count)]


def told(client: Client, comparison: int) -> dict[str, object]:
    found: dict[str, object] = client.data("GET", f"/api/v1/comparisons/{comparison}")
    return found


def test_jobs_are_done_while_the_clock_is_set(tmp_path: Path, clock: Clock, dumps: list[str]) -> None:
    jobs, jumps = rounds(2, 20), 0
    with clock.served(tmp_path, "serve", *dumps, "--workers", "1", "--no-token") as server:
        client = Client(server.url)
        (calm,) = asked(client, dumps, 1)
        wait_until(lambda: told(client, calm)["state"] == "done", 120)
        made = asked(client, dumps, jobs)
        for seconds in itertools.cycle(JUMPS):
            clock.set(seconds)
            jumps += 1
            time.sleep(0.3)
            if all(told(client, one)["state"] == "done" for one in made):
                break
            assert jumps < 400, [told(client, one)["state"] for one in made]
        for one in made:
            found = told(client, one)
            assert found["job"]["attempts"] == 1  # type: ignore[index]
            assert found["summary"] == told(client, calm)["summary"]
            assert found["counts"] == told(client, calm)["counts"]
    record("clock", f"{jumps} jumps of up to 60 hours while {jobs} jobs ran: each done at its first attempt")


@pytest.mark.parametrize("seconds", [-30 * HOUR, 30 * HOUR])
def test_the_job_of_a_dead_worker_is_taken_over_though_the_clock_was_set(
    tmp_path: Path, clock: Clock, dumps: list[str], seconds: float
) -> None:
    with clock.served(tmp_path, "serve", *dumps, "--workers", "1", "--no-token") as server:
        client = Client(server.url)
        made = asked(client, dumps, 4)
        wait_until(lambda: any(told(client, one)["state"] == "running" for one in made))
        (worker,) = (one for one in psutil.Process(server.process.pid).children() if is_worker(one))
        worker.kill()
        clock.set(seconds)
        began = time.monotonic()
        wait_until(lambda: all(told(client, one)["state"] == "done" for one in made), 120)
    took = time.monotonic() - began
    record(
        "clock", f"worker killed, clock set by {seconds / HOUR:+.0f} h: its job is done {took:.0f} s later"
    )


def is_worker(process: psutil.Process) -> bool:
    return "worker" in process.cmdline()


def test_links_and_sessions_last_as_long_as_they_should(
    tmp_path: Path, clock: Clock, dumps: list[str]
) -> None:
    with clock.served(tmp_path, "server", *dumps, FIRSTDRIFT_TOKEN=TOKEN) as server:
        owner = Browser()
        assert owner.open(f"{server.url}login", f"token={TOKEN}".replace(" ", "+").encode())[0] == 200
        assert not owner.open(server.url)[1].endswith("/login")
        for days, status in ((29, 200), (31, 401), (-1, 200), (0, 200)):
            clock.set(days * 24 * HOUR)
            assert owner.open(f"{server.url}version")[0] == status, days
        headers = {"Authorization": f"Bearer {TOKEN}"}
        client = Client(server.url, headers)
        (made,) = asked(client, dumps, 1)
        link = client.data("POST", f"/api/v1/comparisons/{made}/links", {"hours": 2})["address"]
        for hours, status in ((1, 200), (3, 404), (-3, 200), (0, 200)):
            clock.set(hours * HOUR)
            assert Browser().open(link)[0] == status, hours
    record(
        "clock", "a session lasts 30 days and a link its hours, by whatever clock; set back, both open again"
    )
