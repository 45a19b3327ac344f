"""`firstdrift serve` is two processes; however the one that was started ends, the other ends too."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

SERVE = [sys.executable, "-m", "firstdrift.cli", "serve", "--port", "0"]


class Served(NamedTuple):
    """A running `firstdrift serve`, and all the processes that it has started."""

    command: subprocess.Popen[str]
    started: list[psutil.Process]

    def end(self) -> tuple[int, str]:
        """Wait until all of them have ended; return the exit status and what was said."""
        _, errors = self.command.communicate(timeout=30)
        _, left = psutil.wait_procs(self.started, timeout=30)
        assert left == []
        return self.command.returncode, errors


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    """Serve a folder; give the processes once a page has been answered."""
    command = [*SERVE, "--data-dir", str(folder / "data"), str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as started:
        try:
            assert started.stdout is not None
            address = started.stdout.readline().split()[-1]
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(address, timeout=60) as answer:  # the token in it becomes a cookie
                assert answer.status == 200
            children = psutil.Process(started.pid).children(recursive=True)
            assert any("worker" in child.cmdline() for child in children)
            yield Served(started, children)
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
        (worker,) = served.started
        worker.kill()
        worker.wait(10)
        process = psutil.Process(served.command.pid)
        while not (children := process.children()):
            assert served.command.poll() is None
        served.started[:] = children
        served.command.terminate()
        assert served.end()[0] == 128 + signal.SIGTERM
