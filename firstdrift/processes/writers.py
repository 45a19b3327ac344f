"""Processes that write something piece by piece, for a process that must live and have time for others.

    writers = Writers(4, Limits(memory=1 << 30, seconds=3600))
    with writers.begin(pieces_of, "sqlite:///firstdrift.db", 1) as written:
        written.whole()

    this process ◀── errors, and whether it is whole ── writer      whoever takes slowly makes it wait;
                 ◀── what is written, a pipe ──────────             it ends when nobody takes any more

A writer makes way for other processes, should they want the processor, and opens no file of a dump.
"""

import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, ParamSpec
from weakref import WeakSet

from firstdrift.errors import BusyError, FirstdriftError, LimitError
from firstdrift.files import allow_mapping, confine_process
from firstdrift.logs import Carried, carried, take_over
from firstdrift.processes.children import OUT_OF_MEMORY, OUTLASTS, portable, reason_of
from firstdrift.processes.forked import Forked
from firstdrift.processes.limits import (
    Limits,
    be_first_to_go,
    limit_memory,
    limit_processor_time,
    processor_time,
)
from firstdrift.wording.message import Message

Given = ParamSpec("Given")

MOST_BYTES: Final = 1 << 18
"""So much is taken at a time, and may wait to be taken."""

_STILL_SECONDS = 60.0
"""So long a writer may do nothing at all until it has something to say; it works as long as it has to."""

_NICENESS: Final = 5
"""Of 0 to 19: how far a writer stands back behind whoever wants the processor."""

_RESIZE_PIPE: Final = getattr(fcntl, "F_SETPIPE_SZ", None)


class Writers:
    """At most so many processes, each of which writes one thing and ends."""

    def __init__(self, most: int, limits: Limits, preload: Sequence[str] = ()) -> None:
        """Prepare; nothing starts before something is to be written.

        Args:
            most: how many write at a time.
            limits: of each.
            preload: modules that writing needs; imported once, for all.
        """
        self._most, self._limits = most, limits
        self._preload = ["__main__", OUTLASTS, __name__, *preload]
        self._at_work: WeakSet[Written] = WeakSet()
        self._lock = threading.Lock()

    @property
    def at_work(self) -> int:
        """How many write."""
        return sum(one.is_at_work for one in [*self._at_work])

    def begin(
        self, write: Callable[Given, Iterator[bytes]], *given: Given.args, **named: Given.kwargs
    ) -> "Written":
        """Have a process write what a function of a module yields, once it has yielded something.

        Raises:
            BusyError: as many as may be write already.
            LimitError: it needed more memory or time than it may have, or ended.
            Exception: what the function raised before it yielded anything.
        """
        written = Written(self._limits)
        with self._lock:
            if self.at_work >= self._most:
                busy = Message.of("processes.busy_writing", count=self._most)
                raise BusyError(busy, hint=Message.of("processes.hint.when_one_is_written"))
            self._at_work.add(written)
        try:
            written.start(self._preload, write, given, named)
        except BaseException:
            written.end()
            raise
        return written


class Written(AbstractContextManager["Written"]):
    """What a process writes, from the side of whoever takes it."""

    def __init__(self, limits: Limits) -> None:
        """Begin without a process."""
        self._limits = limits
        self._process: Forked | None = None
        self._line, self._their_line = Pipe()
        self._pieces, self._their_pieces = Pipe(duplex=False)
        self.is_at_work = True

    def __exit__(self, *_: object) -> None:
        """End the process, if it has not ended yet."""
        self.end()

    @property
    def process(self) -> int | None:
        """The number of the process, by which the system knows it."""
        return None if self._process is None else self._process.number

    def start(
        self,
        preload: Sequence[str],
        write: Callable[..., Iterator[bytes]],
        given: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        """Start the process, and wait until there is something to take; raises as `Writers.begin` does."""
        theirs = self._their_line, self._their_pieces
        os.set_blocking(self._pieces.fileno(), False)
        if _RESIZE_PIPE is not None:
            with suppress(OSError):  # one user may have so many pages of pipes
                fcntl.fcntl(self._pieces.fileno(), _RESIZE_PIPE, MOST_BYTES)
        self._process = Forked(preload, _write, *theirs, self._limits, (write, given, named), carried())
        for end in theirs:
            end.close()
        self._hear()

    def fileno(self) -> int:
        """Return the descriptor that can be read from when there is something to take."""
        return self._pieces.fileno()

    def read(self) -> bytes:
        """Take what is there; nothing is there any more once all has been written.

        Raises:
            BlockingIOError: there is nothing yet.
            LimitError: the process needed more memory or time than it may have, or ended.
            Exception: what kept it from writing the rest.
        """
        piece = os.read(self._pieces.fileno(), MOST_BYTES)
        if not piece:
            self._hear()
        return piece

    def whole(self) -> bytes:
        """Wait for all of it; raises as `read` does."""
        pieces = []
        while True:
            wait([self._pieces])
            pieces.append(self.read())
            if not pieces[-1]:
                return b"".join(pieces)

    def end(self) -> None:
        """End the process, if it has not ended yet."""
        for end in (self._line, self._pieces, self._their_line, self._their_pieces):
            end.close()
        process, self._process = self._process, None
        if process is not None:
            process.end()
        self.is_at_work = False

    def _hear(self) -> None:
        """Wait until the process says that all is well, as long as it works, however little it may.

        Raises:
            Exception: what it says instead.
        """
        worked = -1.0
        while not self._line.poll(_STILL_SECONDS):
            until_now = processor_time(self.process)
            if until_now <= worked:
                raise LimitError(Message.of("processes.took_long", seconds=_STILL_SECONDS))
            worked = until_now
        try:
            error = self._line.recv()
        except (EOFError, OSError) as ended:
            status = None if self._process is None else self._process.wait()
            raise LimitError(reason_of(status, self._limits)) from ended
        if error is not None:
            raise error


def _write(
    line: Connection,
    pieces: Connection,
    limits: Limits,
    question: tuple[Callable[..., Iterator[bytes]], tuple[Any, ...], dict[str, Any]],
    logs: Carried,
) -> None:
    """Write what a function yields: what a writer does."""
    take_over(logs)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    os.nice(_NICENESS)
    be_first_to_go()
    limit_memory(limits.memory)
    limit_processor_time(limits.seconds)
    allow_mapping(allowed=False)
    confine_process(())
    said = _written(line, pieces, *question)
    line.send(said)
    pieces.close()  # whoever sees the end of the pieces need not wait for what is said of it


def _written(
    line: Connection,
    pieces: Connection,
    write: Callable[..., Iterator[bytes]],
    given: tuple[Any, ...],
    named: dict[str, Any],
) -> Exception | None:
    """Write all; return what went wrong."""
    try:
        rest = write(*given, **named)
        first = next(rest, b"")
        line.send(None)
        with os.fdopen(os.dup(pieces.fileno()), "wb", MOST_BYTES) as stream:
            stream.writelines(chain([first], rest))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BrokenPipeError:  # nobody takes it any more
        os._exit(os.EX_OK)
    except FirstdriftError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a mistake of ours is one where the answer was asked for
        return portable(error)
    return None


def _end_with(line: Connection) -> None:
    """Wait until whoever takes what is written closes the line, or ends, and end at once."""
    with suppress(EOFError, OSError):
        line.recv_bytes()
    os._exit(os.EX_OK)
