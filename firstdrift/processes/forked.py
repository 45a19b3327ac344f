"""A process that is forked from the one which is kept for that, whatever threads this one has."""

import multiprocessing
import multiprocessing.connection
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

_ENDING_SECONDS: Final = 10.0
"""So long a process that was killed, or has closed its line, may take to end."""


class Forked:
    """One process, which ends with this one at the latest."""

    _one_at_a_time = threading.Lock()
    """multiprocessing asks for the status of all children whenever one starts, from whatever thread."""

    def __init__(self, preload: Sequence[str], target: Callable[..., object], *given: Any) -> None:  # noqa: ANN401
        """Have it call a function; `preload` are modules that are imported once, for all of them."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(preload))
        with self._one_at_a_time:
            self._process = context.Process(target=target, args=given, daemon=True)
            self._process.start()

    @property
    def number(self) -> int | None:
        """By which the system knows it."""
        return self._process.pid

    def wait(self) -> int | None:
        """Wait until it has ended, for a while; return its status."""
        sentinel = self._process.sentinel
        multiprocessing.connection.wait([sentinel], _ENDING_SECONDS)
        with self._one_at_a_time:
            self._process.join(_ENDING_SECONDS)
            return self._process.exitcode

    def end(self) -> None:
        """End it, and forget it."""
        with self._one_at_a_time:
            self._process.kill()
        self.wait()
        with self._one_at_a_time:
            self._process.close()
