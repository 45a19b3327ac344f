"""Questions that the tests ask of child processes: what is to be imported there."""

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Iterator
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


def pieces(count: int, size: int, told: Path | None = None) -> Iterator[bytes]:
    """Yield pieces that begin with who wrote them; tell a file how many so far."""
    for number in range(count):
        if told is not None:
            told.write_text(str(number + 1))
        yield f"{os.getpid()} {os.nice(0)} ".encode().ljust(size, b".")


def pieces_and_a_mistake(error: Exception, count: int) -> Iterator[bytes]:
    yield from pieces(count, 100_000)
    raise error


def pieces_and_the_end(status: int) -> Iterator[bytes]:
    yield from pieces(2, 10)
    os._exit(status)


def pieces_for_ever(told: Path) -> Iterator[bytes]:
    yield b"begun"
    told.write_text(str(os.getpid()))
    burn()


def pieces_of_much_memory(size: int) -> Iterator[bytes]:
    yield b"begun"
    yield bytes(size)


def pieces_after_work(seconds: float) -> Iterator[bytes]:
    while time.process_time() < seconds:
        pass
    yield b"begun"


def pieces_after_sleep(seconds: float) -> Iterator[bytes]:
    time.sleep(seconds)
    yield b"begun"
