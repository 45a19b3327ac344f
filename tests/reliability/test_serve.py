"""`firstdrift serve` is three processes; however the one that was started ends, the others end too."""

import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from clients import Client
from running import running
from soak import record, rounds
from working import wait_until

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

SERVE = [sys.executable, "-m", "firstdrift.cli", "serve", "--port", "0"]


class Served(NamedTuple):
    """A running `firstdrift serve`, and all the processes that it has started."""

    command: subprocess.Popen[str]
    started: list[psutil.Process]
    address: str
    browser: urllib.request.OpenerDirector

    def end(self) -> tuple[int, str]:
        """Wait until all of them have ended; return the exit status and what was said."""
        _, errors = self.command.communicate(timeout=30)
        _, left = psutil.wait_procs(self.started, timeout=30)
        assert left == []
        return self.command.returncode, errors


def command_of(process: psutil.Process) -> list[str]:
    """Return how a process was started; [] if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_worker(process: psutil.Process) -> bool:
    return "worker" in command_of(process)


def is_web(process: psutil.Process) -> bool:
    return "serve" in command_of(process)


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    """Serve a folder; give the processes once a page has been answered."""
    command = [*SERVE, "--data-dir", str(folder / "data"), str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as started:
        try:
            assert started.stdout is not None
            address = next(line for line in started.stdout if line.startswith("open ")).split()[-1]
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(address, timeout=60) as answer:  # the token in it becomes a cookie
                assert answer.status == 200
            process = psutil.Process(started.pid)
            wait_until(lambda: any(map(is_worker, process.children())))
            yield Served(started, process.children(recursive=True), address, browser)
        finally:
            if started.poll() is None:
                started.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_command_ends_its_worker_too(tmp_path: Path, number: signal.Signals) -> None:
    with serve(tmp_path) as served:
        served.command.send_signal(number)
        status, errors = served.end()
    assert status == (128 + number if number == signal.SIGTERM else -number)
    assert "Traceback" not in errors


def test_control_c_ends_both_without_a_word(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        os.killpg(served.command.pid, signal.SIGINT)  # a terminal sends it to all of them at once
        status, errors = served.end()
    assert (status, errors) == (130, "")


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        (worker,) = filter(is_worker, served.started)
        worker.kill()
        process = psutil.Process(served.command.pid)
        wait_until(lambda: any(is_worker(child) and child != worker for child in process.children()))
        served.started[:] = process.children()
        served.command.terminate()
        status, errors = served.end()
    assert status == 128 + signal.SIGTERM
    assert f"the worker died ({text_of(Message.of('processes.ended.killed'))}) and is started again" in errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_a_web_process_that_died_is_started_again_at_the_same_address(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serve(tmp_path) as served:
        (web,) = filter(is_web, served.started)
        web.send_signal(number)
        process = psutil.Process(served.command.pid)
        wait_until(lambda: any(is_web(child) and child != web for child in process.children()))
        with served.browser.open(served.address.partition("?")[0], timeout=60) as answer:
            assert answer.status == 200  # and whoever was logged in still is
        served.started[:] = process.children(recursive=True)
        served.command.terminate()
        status, errors = served.end()
    assert status == 128 + signal.SIGTERM
    assert "the web process died" in errors


def test_a_web_process_that_cannot_start_again_is_tried_until_it_can(tmp_path: Path) -> None:
    database, away = tmp_path / "data" / "firstdrift.db", tmp_path / "away"
    with serve(tmp_path) as served:
        (web,) = filter(is_web, served.started)
        database.rename(away)
        database.mkdir()  # no database can be opened here, nor made
        web.kill()
        assert served.command.stderr is not None
        for why in (Message.of("processes.ended.killed"), Message.of("processes.ended.status", status=2)):
            said = f"the web process died ({text_of(why)})"
            while said not in (line := served.command.stderr.readline()):
                assert line
        database.rmdir()
        away.rename(database)
        address = served.address.partition("?")[0]
        wait_until(lambda: answers(served.browser, address))
        process = psutil.Process(served.command.pid)
        served.started[:] = process.children(recursive=True)
        served.command.terminate()
        assert served.end()[0] == 128 + signal.SIGTERM


def answers(browser: urllib.request.OpenerDirector, address: str) -> bool:
    try:
        with browser.open(address, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_serve_ends_when_it_is_told_to_while_its_web_process_is_started_again(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        (web,) = filter(is_web, served.started)
        web.kill()
        process = psutil.Process(served.command.pid)
        wait_until(lambda: any(is_web(child) and child != web for child in process.children()))
        served.started[:] = process.children(recursive=True)
        served.command.terminate()
        assert served.end()[0] == 128 + signal.SIGTERM


def test_a_server_that_cannot_start_says_why_and_ends(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "firstdrift.db").write_text(
        "this is no database, and it is long enough to tell" * 50
    )
    command = [*SERVE, "--data-dir", str(tmp_path / "data"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.startswith("firstdrift: ")
    assert "Traceback" not in ended.stderr


def test_a_server_is_ready_soon_and_small(tmp_path: Path) -> None:
    """How long it takes depends on the machine: only what must hold anywhere is asserted."""
    seconds: list[float] = []
    for number in range(rounds(1, 9)):
        (folder := tmp_path / str(number)).mkdir()
        began = time.monotonic()
        with running(folder, "serve", "--no-token") as server:
            assert Client(server.url).data("GET", "/health") == {"ok": True}
            seconds.append(time.monotonic() - began)
            web, worker = web_and_worker(server.process.pid)
            held = [one.memory_info().rss / MIB for one in (psutil.Process(server.process.pid), web, worker)]
            own = sum(one.memory_full_info().uss for one in (web, worker)) / MIB
    assert sum(held) < MOST_MEMORY
    record(
        "ready",
        f"/health is answered {statistics.median(seconds):.2f} s after the start of serve, with other work "
        f"(slowest of {len(seconds)}: {max(seconds):.2f} s); idle the web process holds {held[1]:.0f} MiB, "
        f"the worker {held[2]:.0f}, {own:.0f} MiB of them their own",
    )


MIB = 1 << 20
MOST_MEMORY = 500
"""MiB of all three, pages that they share counted for each."""


def web_and_worker(command: int) -> tuple[psutil.Process, psutil.Process]:
    """Wait until both are there."""
    process = psutil.Process(command)

    def both() -> bool:
        found = process.children()
        return any(map(is_web, found)) and any(map(is_worker, found))

    wait_until(both)
    time.sleep(2.0)  # they have loaded what they need
    (web,), (worker,) = (list(filter(which, process.children())) for which in (is_web, is_worker))
    return web, worker
