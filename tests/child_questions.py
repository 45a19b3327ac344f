"""Questions that the tests ask of child processes: what is to be imported there."""

import ctypes
import mmap
import os
import signal
import time
from pathlib import Path

from firstdrift.errors import DumpUnreadableError
from firstdrift.files import open_regular
from firstdrift.wording.message import verbatim


def who() -> int:
    return os.getpid()


def complain(path: Path) -> None:
    raise DumpUnreadableError(verbatim("cannot be read"), path=path, hint=verbatim("Look elsewhere"))


def make_a_mistake() -> None:
    raise ZeroDivisionError("of ours")


def take_memory(size: int) -> int:
    return len(bytearray(size))


def burn() -> None:
    while True:
        pass


def burn_in_one_call() -> int:
    return sum(range(10**12))


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def crash() -> None:
    ctypes.string_at(0)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cut_short_while_mapped(file: Path) -> int:
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    os.truncate(file, 0)
    return mapped[-1]


def beginning(file: Path) -> str:
    try:
        with open_regular(file) as opened:
            return opened.read(5).decode()
    except OSError as error:
        return str(error.strerror)
