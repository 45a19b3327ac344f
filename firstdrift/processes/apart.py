"""Run a command of the terminal in a process of its own, which may die of the dumps that it reads.

A file that is mapped and becomes shorter ends the process that reads it (SIGBUS), as does the want of memory.
The process that was started stays out of that: it tells what happened, and after a file became shorter
the command is run once more with files read instead of mapped, where that is the fault of one tensor.
"""

import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from firstdrift.errors import FirstdriftError
from firstdrift.exits import CRASHED, UNUSABLE
from firstdrift.files import allow_mapping
from firstdrift.processes.endings import why_it_ended
from firstdrift.processes.limits import limit_memory, memory_of_machine
from firstdrift.wording.text import text_of

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHARE_OF_MEMORY: Final = 0.9
_SAME_SECONDS: Final = 0.5
"""What arrives within these of one that was heard is the same Ctrl-C; one that was lost can be repeated."""


def run_apart(command: Callable[[], int]) -> int:
    """Run a command, which writes and reads as this process does; return the exit status.

    To be called before other threads are started.
    """
    status = _run(command, maps=True)
    if status == -signal.SIGBUS:
        status = _run(command, maps=False)
    if status >= 0:
        return status
    if -status in _PASSED_ON:
        return 128 - status
    why = text_of(why_it_ended(status))
    print(f"firstdrift: the command did not end well: {why}.", file=sys.stderr)  # noqa: T201
    return CRASHED


def status_of(work: Callable[[], object]) -> int:
    """Do something that a command consists of; return its exit status.

    A fault of firstdrift is shown with where it arose, and is no answer: its status is one of its own.
    """
    try:
        work()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
            return UNUSABLE
        return int(end.code or 0)
    except FirstdriftError as error:
        print(f"firstdrift: {error}", file=sys.stderr)  # noqa: T201
        return UNUSABLE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception:  # noqa: BLE001 - whatever it is, it must not look like an answer
        traceback.print_exc()
        said = "firstdrift: this is a fault of firstdrift itself. Please report it with the lines above."
        print(said, file=sys.stderr)  # noqa: T201
        return CRASHED
    return 0


def _run(command: Callable[[], int], *, maps: bool) -> int:
    """Return the exit status; less than 0 for a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    ended, alive = os.pipe()
    kept = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    # Until there is somebody to pass them on to, signals wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, kept)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, kept)
        os.close(alive)
        status = 128 + signal.SIGINT  # what it is where somebody presses once more at the very end
        try:
            status = _in_child(command, ended, maps=maps)
        finally:
            os._exit(status)
    os.close(ended)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    before = {number: signal.signal(number, pass_on) for number in kept}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, kept)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(alive)
    return os.waitstatus_to_exitcode(status)


def _in_child(command: Callable[[], int], ended: int, *, maps: bool) -> int:
    threading.Thread(target=end_with_parent, args=(ended,), daemon=True).start()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _Interrupts())
    allow_mapping(allowed=maps)
    limit_memory(int(_SHARE_OF_MEMORY * memory_of_machine()))
    try:
        return command()
    except KeyboardInterrupt:  # once more, while it was ending
        return 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001 - nothing of this process may run on as if it were its parent
        traceback.print_exc()
        return CRASHED
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # whoever read it is gone
                stream.flush()


class _Interrupts:
    """Interrupts the work at each Ctrl-C, which arrives twice: a terminal sends it to the parent, too."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last > _SAME_SECONDS:
            self._last = now
            raise KeyboardInterrupt


def end_with_parent(ended: int) -> None:
    """Wait until the parent has closed its end of a pipe, however it ended, and stop as SIGTERM does."""
    os.read(ended, 1)
    os.kill(os.getpid(), signal.SIGTERM)
