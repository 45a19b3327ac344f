"""Processes that answer one question after the other, until they are ended.

    this process ── question ──▶ lane        a lane holds on to what it has made: the next question
                 ◀── answers ───             may be about it

A copy of this process has all that this one has. As with `firstdrift.processes.copies`, no other thread may
hold a lock that the work needs.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Final, NoReturn, Protocol

from firstdrift.processes.apart import end_with_parent

_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lane(Protocol):
    """A process, and the line to it.

    Attributes:
        line: carries questions there and answers here; ends (EOFError) when the process does, however it
            does.
    """

    line: Connection

    def end(self) -> None:
        """End the process, if it has not ended yet."""


class CopyLane(Lane):
    """A copy of this process."""

    def __init__(self, serve: Callable[[Connection], object]) -> None:
        """Start it: it calls a function with its end of the line, and ends when that returns.

        Raises:
            OSError: there may be no more processes.
        """
        self.line, there = Pipe()
        ended, self._alive = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            self.line.close()
            os.close(self._alive)
            _serve_and_end(serve, there, ended)
        there.close()
        os.close(ended)

    def end(self) -> None:
        """End the copy, if it has not ended yet."""
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        self.line.close()
        os.close(self._alive)


def _serve_and_end(serve: Callable[[Connection], object], line: Connection, ended: int) -> NoReturn:
    try:
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=end_with_parent, args=(ended,), daemon=True).start()
        with suppress(EOFError, OSError):
            serve(line)
    finally:
        os._exit(0)
