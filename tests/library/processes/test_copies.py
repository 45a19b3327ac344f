"""Work that is shared with copies of this process is done as if it were not, whatever happens to them."""

import faulthandler
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from msgspec import Struct

from firstdrift.processes.copies import allow_copies, share_in_rounds, share_work
from firstdrift.wording.message import Message


class Done(Struct, frozen=True):
    at: int
    process: int
    file: Path
    size: float | None
    said: Message | None = None


@pytest.fixture(autouse=True)
def copies() -> Iterator[None]:
    allow_copies(2)
    yield
    allow_copies(0)


def do(at: int) -> Done:
    sizes = {0: None, 1: math.inf, 2: -math.inf}
    return Done(
        at, os.getpid(), Path("/a") / str(at), sizes.get(at, at / 7), Message.of("x", at=at, of=("a", 2))
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_what_is_found_comes_back_in_order_from_all_processes(count: int) -> None:
    told: list[int] = []
    found = share_work(do, Done, count, told.append)
    here = os.getpid()
    assert [one.at for one in found] == list(range(count))
    assert [(one.file, one.size, one.said) for one in found] == [
        (one.file, one.size, one.said) for one in map(do, range(count))
    ]
    assert len({one.process for one in found}) == min(count, 3)
    assert told == sorted(told)
    assert told[-1:] == [count][: bool(count)]
    assert all(one.process == here for one in found[::3])


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_rounds_give_the_same_and_begin_no_more_than_there_are_processes(count: int) -> None:
    found = share_in_rounds(do, Done, count)
    assert [one.at for one in found] == list(range(count))
    first = next(share_in_rounds(do, Done, 7))
    assert (first.at, first.process) == (0, os.getpid())


def test_nothing_is_shared_unless_it_is_allowed() -> None:
    allow_copies(0)
    assert {one.process for one in share_work(do, Done, 9)} == {os.getpid()}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS, signal.SIGTERM])
def test_what_a_copy_that_died_was_to_do_is_done_here(number: signal.Signals) -> None:
    here = os.getpid()

    def die(at: int) -> Done:
        if os.getpid() != here and at > 3:
            faulthandler.disable()
            os.kill(os.getpid(), number)
        return do(at)

    found = share_work(die, Done, 10)
    assert [one.at for one in found] == list(range(10))
    assert {one.process for one in found} == {here}


def test_where_no_process_can_be_started_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert {one.process for one in share_work(do, Done, 9)} == {os.getpid()}


def test_an_error_arises_here_and_leaves_no_process_behind() -> None:
    def fail(at: int) -> Done:
        if at == 4:
            raise ZeroDivisionError(at)
        return do(at)

    before = psutil.Process().children()
    with pytest.raises(ZeroDivisionError):
        share_work(fail, Done, 10)
    assert psutil.Process().children() == before


def test_what_cannot_be_sent_is_found_here() -> None:
    assert share_work(lambda at: {"process": os.getpid(), "of": complex(at)}, dict, 4) == [
        {"process": os.getpid(), "of": complex(at)} for at in range(4)
    ]


def test_copies_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from pathlib import Path\n"
        "from firstdrift.processes.copies import allow_copies, share_work\n"
        "def wait(at):\n"
        "    Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(60)\n"
        "allow_copies(2); share_work(wait, None, 3)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path]) as started:
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.05)
        started.kill()
    running = [
        psutil.Process(int(file.name)) for file in tmp_path.iterdir() if psutil.pid_exists(int(file.name))
    ]
    _, alive = psutil.wait_procs(running, timeout=30)
    assert [one.status() for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
