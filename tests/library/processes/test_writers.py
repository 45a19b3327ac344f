"""What another process writes arrives whole or with the reason, and nothing of it stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

import child_questions as questions
import psutil
import pytest
from messages import refuses
from working import wait_until

from firstdrift.errors import BusyError, DumpUnreadableError, LimitError
from firstdrift.processes import writers as module
from firstdrift.processes.limits import Limits
from firstdrift.processes.writers import MOST_BYTES, Writers, Written
from firstdrift.wording.message import Message, verbatim
from firstdrift.wording.text import text_of

LIMITS = Limits(memory=600 * 2**20, seconds=60.0)


@pytest.fixture
def writers() -> Writers:
    return Writers(1, LIMITS)


@pytest.fixture
def endless(writers: Writers, tmp_path: Path) -> Iterator[Written]:
    with writers.begin(questions.pieces_for_ever, tmp_path / "told") as written:
        yield written


def taken(written: Written) -> Iterator[bytes]:
    while True:
        wait([written.fileno()], 60)
        piece = written.read()
        if not piece:
            return
        yield piece


def is_gone(process: int | None) -> bool:
    assert process is not None
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    return True


def test_all_is_written_in_a_process_that_makes_way_for_this_one(writers: Writers) -> None:
    with writers.begin(questions.pieces, 7, 100_001) as written:
        process = written.process
        found = b"".join(taken(written))
    assert len(found) == 7 * 100_001
    assert found.startswith(f"{process} {os.nice(0) + 5} ".encode())
    assert process != os.getpid()
    assert is_gone(process)


def test_nothing_at_all_can_be_written(writers: Writers) -> None:
    with writers.begin(questions.pieces, 0, 0) as written:
        assert written.whole() == b""


def test_whoever_takes_nothing_makes_the_writer_wait(writers: Writers, tmp_path: Path) -> None:
    told, size = tmp_path / "told", 1 << 16
    with writers.begin(questions.pieces, 1000, size, told) as written:
        wait_until(lambda: psutil.Process(written.process).status() == psutil.STATUS_SLEEPING)
        wait_until(lambda: int(told.read_text() or 0) * size >= MOST_BYTES)
        assert int(told.read_text()) * size <= 4 * MOST_BYTES
        assert len(written.whole()) == 1000 * size


@pytest.mark.parametrize("count", [0, 20])
def test_what_went_wrong_arrives_at_whatever_time(writers: Writers, count: int) -> None:
    error = DumpUnreadableError(verbatim("cannot be read"), path="/somewhere")
    with (
        pytest.raises(DumpUnreadableError, match="cannot be read"),
        writers.begin(questions.pieces_and_a_mistake, error, count) as written,
    ):
        assert len(written.whole()) < 0
    with pytest.raises(ZeroDivisionError) as caught, writers.begin(*mistake(count)) as written:
        written.whole()
    assert "pieces_and_a_mistake" in "".join(caught.value.__notes__)


def mistake(count: int) -> tuple[object, ...]:
    return questions.pieces_and_a_mistake, ZeroDivisionError(), count


@pytest.mark.parametrize("status", [0, 3])
def test_a_writer_that_ends_before_all_is_written_is_no_end(writers: Writers, status: int) -> None:
    with (
        refuses(LimitError, "processes.ended.status"),
        writers.begin(questions.pieces_and_the_end, status) as written,
    ):
        written.whole()


def test_a_writer_may_have_so_much_memory(writers: Writers) -> None:
    with (
        refuses(LimitError, "processes.much_memory"),
        writers.begin(questions.pieces_of_much_memory, 2 * LIMITS.memory) as written,
    ):
        written.whole()


def test_a_writer_that_is_killed_says_so_to_the_reader(endless: Written) -> None:
    assert endless.process is not None
    os.kill(endless.process, signal.SIGKILL)
    with refuses(LimitError, "processes.ended.killed"):
        endless.whole()


def test_more_than_may_be_written_at_a_time_are_refused_until_one_has_ended(
    writers: Writers, endless: Written
) -> None:
    with pytest.raises(BusyError) as caught:
        writers.begin(questions.pieces, 1, 10)
    assert text_of(caught.value.message) == "1 file is being written already"
    assert text_of(Message.of("processes.busy_writing", count=4)) == "4 files are being written already"
    endless.end()
    assert len(writers.begin(questions.pieces, 1, 10).whole()) == 10
    assert len(writers.begin(questions.pieces, 1, 10).whole()) == 10  # of whom nobody holds on to the first


def test_a_writer_in_the_midst_of_its_work_ends_when_nobody_takes_it_any_more(endless: Written) -> None:
    process = endless.process
    endless.end()
    assert is_gone(process)


def test_a_writer_may_take_long_to_begin_so_long_as_it_works(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STILL_SECONDS", 1.0)
    with writers.begin(questions.pieces_after_work, 4.0) as written:
        assert written.whole() == b"begun"


def test_a_writer_that_does_nothing_at_all_is_not_waited_for(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STILL_SECONDS", 0.5)
    with refuses(LimitError, "processes.took_long"):
        writers.begin(questions.pieces_after_sleep, 60.0)


def test_whoever_sees_the_end_need_not_wait_for_what_is_said_of_it(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a writer that stands back behind others would hold up all who are answered in one thread."""
    with writers.begin(questions.pieces, 1, 10) as written:
        monkeypatch.setattr(module, "_STILL_SECONDS", 0.0)
        assert len(b"".join(taken(written))) == 10


PARENT = """
import os, sys, time
from pathlib import Path
import child_questions
from firstdrift.processes import writers as module
from firstdrift.processes.limits import Limits
from firstdrift.processes.writers import Writers

if __name__ == "__main__":
    writers = Writers(1, Limits(memory=1 << 29, seconds=60))
    written = writers.begin(child_questions.pieces_for_ever, Path(sys.argv[1]))
    print(written.process, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_writer_does_not_outlive_who_started_it(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, tmp_path / "told"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **pipes) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        assert not is_gone(process)
        parent.send_signal(number)
    wait_until(lambda: is_gone(process))
