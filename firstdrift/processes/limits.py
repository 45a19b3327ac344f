"""How much memory and processor time a process may use; the operating system sees to it.

Memory is what a process has for itself (Linux: RLIMIT_DATA): files that are mapped for reading do not count,
for the system takes their memory back whenever it needs it.
"""

import gc
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from msgspec import Struct

from firstdrift.errors import LimitError
from firstdrift.wording.message import Message

GIB: Final = 1 << 30

_ONE_GROUP: Final = "/sys/fs/cgroup/memory.max"
_OLD_GROUP: Final = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
_CORES_OF_GROUP: Final = "/sys/fs/cgroup/cpu.max"
_FIRST_TO_GO: Final = "500"
"""Of -1000 to 1000: where the machine runs out of memory, such a process is ended before those at 0."""

_OBJECTS_BETWEEN: Final = 200_000


class Limits(Struct, frozen=True):
    """What a process may use.

    Attributes:
        memory: bytes of memory of its own.
        seconds: processor time for one task.
    """

    memory: int
    seconds: float


def memory_of_machine() -> int:
    """Return how many bytes of memory the processes here may use: the machine's, or those of a container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in (_ONE_GROUP, _OLD_GROUP):
        with suppress(OSError, ValueError):  # no such file; the word "max"
            total = min(total, int(Path(file).read_text("ascii")))
    return total


def usable_cores() -> int:
    """Return how many processor cores the processes here may use: the machine's, or those of a container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file; the word "max"
        quota, period = map(int, Path(_CORES_OF_GROUP).read_text("ascii").split())
        cores = min(cores, max(1, quota // period))
    return cores


def limit_memory(most: int) -> None:
    """Let this process have so many bytes of memory more than it has now; what goes beyond is a MemoryError.

    Processes that it starts inherit the limit.
    """
    _limit(resource.RLIMIT_DATA, _memory_held() + most)


def collect_garbage_seldom() -> None:
    """Let this process look for cycles among its objects seldom.

    A comparison makes millions of small records, and no cycles among them: to look for some as often as
    Python does takes a fifth of the time.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN, 20, 100)


def limit_processor_time(seconds: float) -> None:
    """Let this process use so much processor time from now on; it is ended by SIGXCPU after that."""
    _limit(resource.RLIMIT_CPU, _from_now(seconds))


def processor_time(process: int | None) -> float:
    """Return the seconds of processor time that another process has had; 0 where the system does not say."""
    try:
        said = Path(f"/proc/{process}/stat").read_text("ascii", "replace")
        spent = said.rpartition(")")[2].split()[_SPENT]
    except (OSError, IndexError):
        return 0.0
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


_SPENT: Final = slice(11, 13)
"""Places of the time in the program and in the system among what follows the name in /proc/PROCESS/stat."""


@contextmanager
def reading_time(seconds: float) -> Iterator[None]:
    """Give the block, which reads a dump, so much processor time of this process.

    Only the main thread of a process can be interrupted: elsewhere, the block takes as long as it takes.

    Raises:
        LimitError: it needed more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise LimitError(
            Message.of("processes.long_reading", seconds=seconds),
            hint=Message.of("processes.hint.reading_seconds"),
        )

    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    before = signal.signal(signal.SIGXCPU, end)
    _limit(resource.RLIMIT_CPU, _from_now(seconds))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        signal.signal(signal.SIGXCPU, before)


def be_first_to_go() -> None:
    """Let the system end this process before others, should the machine run out of memory."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, "ascii")


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _memory_held() -> int:
    """Return how many bytes count already, where the system says so."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[_DATA_PAGES])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


_DATA_PAGES: Final = 5
"""Place of "data + stack" among the numbers of /proc/self/statm."""


def _from_now(seconds: float) -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime + used.ru_stime + seconds) + 1
