"""compare and inspect survive what they read, and a crash is never taken for an answer."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

CRASH = """
import os, signal, sys, time
from firstdrift import cli
def wait():
    while True:  # a signal that comes just before a pause would not end it
        time.sleep(0.1)
def main():
    {0}
cli.main = main
sys.argv = ["firstdrift", {1!r}]
cli.run()
"""


@pytest.mark.parametrize("command", ["compare", "check"])
def test_a_fault_of_firstdrift_has_an_exit_status_of_its_own(command: str) -> None:
    script = CRASH.format("{}['missing']", command)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 70
    assert "KeyError: 'missing'" in ended.stderr
    assert "Please report it" in ended.stderr


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, Message.of("processes.ended.killed")),
        (signal.SIGSEGV, Message.of("processes.ended.signal", name="SIGSEGV")),
    ],
)
def test_a_process_that_is_killed_over_a_dump_is_no_answer_either(
    number: signal.Signals, said: Message
) -> None:
    script = CRASH.format(f"os.kill(os.getpid(), {int(number)})", "compare")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 70
    assert ended.stderr == f"firstdrift: the command did not end well: {text_of(said)}.\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_command_ends_the_process_that_reads(number: signal.Signals, status: int) -> None:
    script = CRASH.format("print('here', flush=True); wait()", "compare")
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "here\n"
        (child,) = psutil.Process(started.pid).children()
        started.send_signal(number)
        _, errors = started.communicate(timeout=30)
    assert (started.returncode, errors) == (status, "")
    assert not psutil.pid_exists(child.pid)


def test_an_interrupt_that_was_lost_can_be_repeated() -> None:
    losing = "try:\n wait()\nexcept KeyboardInterrupt:\n print(2, flush=True)\n wait()"
    script = CRASH.format(f"print(1, flush=True); exec({losing!r})", "compare")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        for number in ("1\n", "2\n"):
            assert started.stdout.readline() == number
            time.sleep(0.6)
            started.send_signal(signal.SIGINT)
        assert started.wait(60) == 130


def test_an_interrupt_that_was_lost_is_repeated_by_somebody_who_presses_fast() -> None:
    losing = "try:\n wait()\nexcept KeyboardInterrupt:\n print(2, flush=True)\n wait()"
    script = CRASH.format(f"print(1, flush=True); exec({losing!r})", "compare")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "1\n"
        until = time.monotonic() + 60
        while started.poll() is None and time.monotonic() < until:
            started.send_signal(signal.SIGINT)
            time.sleep(0.1)
        started.kill()
        # One that is pressed when all is over ends the command by itself.
        assert started.wait() in (130, -signal.SIGINT)


def test_the_process_that_reads_ends_when_the_command_is_killed() -> None:
    script = CRASH.format("print('here', flush=True); wait()", "compare")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "here\n"
        (child,) = psutil.Process(started.pid).children()
        started.kill()
        child.wait(30)


def test_a_dump_that_is_cut_short_while_it_is_compared_spoils_that_tensor_alone(
    tmp_path: Path, firstdrift: Callable[..., object]
) -> None:
    for side in ("golden", "target"):
        (tmp_path / side).mkdir()
        for name in ("model.a", "model.b"):
            np.save(tmp_path / side / f"{name}.npy", np.ones((256, 1024), "float32"))
    cut = tmp_path / "golden" / "model.a.npy"
    # What another run that dumps into the same folder does, at the worst of moments.
    (tmp_path / "cut.py").write_text(
        "import os\n"
        "def look(golden, target):\n"
        f"    os.truncate({str(cut)!r}, 1000)\n"
        "    return float(golden.sum() + target.sum()), ''\n"
    )
    given = [tmp_path / "golden", tmp_path / "target", "--algorithm", f"{tmp_path / 'cut.py'}:look", "--json"]
    ended = firstdrift("compare", *given)
    assert ended.status == 2, ended.err  # type: ignore[attr-defined]
    answer = json.loads(ended.out)  # type: ignore[attr-defined]
    assert (answer["counts"]["pass"], answer["counts"]["incomparable"]) == (1, 1)
