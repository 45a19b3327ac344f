"""Share work with copies of this process: they have all that it has, and what they find comes back.

    0 1 2 3 4 5 6    with 2 copies    this process does 0 3 6, they do 1 4 and 2 5

What a copy could not do, however it ended, this process does itself, and so whatever is wrong with it shows
here. Copies are allowed where no other thread may hold a lock that the work needs: a command of the
terminal, not a notebook or a server.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Final, Generic, NoReturn, TypeVar

from msgspec import DecodeError, ValidationError

from firstdrift.processes.apart import end_with_parent
from firstdrift.processes.packed import pack, unpack

Found = TypeVar("Found")

_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_most_copies = 0


def allow_copies(most: int) -> None:
    """Let this process share its work with so many copies from now on: at first, with none."""
    global _most_copies  # noqa: PLW0603 (of the process, as what it may open)
    _most_copies = most


def copies_allowed() -> int:
    """Return with how many copies this process may share its work."""
    return _most_copies


def share_work(
    work: Callable[[int], Found],
    kind: Any,  # noqa: ANN401 (a type)
    count: int,
    done: Callable[[int], None] = lambda _: None,
) -> list[Found]:
    """Call a function with 0, 1, ... `count` - 1 in as many processes as may be; return what it returns.

    Args:
        work: the function; it changes nothing that is needed afterwards.
        kind: the type of what it returns: records, as msgspec has them, or built-in types.
        count: how often it is called.
        done: is told now and then how much of the work is done.
    """
    processes = min(_most_copies + 1, count)
    shares = [range(first, count, processes) for first in range(processes)]
    copies: list[_Copy[Found]] = []
    found: dict[int, Found] = {}
    try:
        with suppress(OSError):  # there may be no more processes
            copies.extend(_Copy(work, share, kind) for share in shares[1:])
        for at in shares[0] if shares else ():
            found[at] = work(at)
            done(min(count, len(shares) * len(found)))
        for copy, share in zip_longest(copies, shares[1:]):
            answers = None if copy is None else copy.answers()
            found.update(zip(share, map(work, share) if answers is None else answers, strict=True))
    finally:
        for copy in copies:
            copy.end()
    return [found[at] for at in range(count)]


def share_in_rounds(
    work: Callable[[int], Found],
    kind: Any,  # noqa: ANN401 (a type)
    count: int,
) -> Iterator[Found]:
    """Yield what `share_work` returns, in order, where all of it at once would take too much memory."""
    size = copies_allowed() + 1
    for first in range(0, count, size):
        yield from share_work(_from(work, first), kind, min(size, count - first))


def _from(work: Callable[[int], Found], first: int) -> Callable[[int], Found]:
    return lambda at: work(first + at)


class _Copy(Generic[Found]):
    """A copy of this process that does a share of the work."""

    def __init__(self, work: Callable[[int], Found], share: Sequence[int], kind: Any) -> None:  # noqa: ANN401
        self._kind = kind
        ended, self._alive = os.pipe()
        self._line, answers = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._alive)
            os.close(self._line)
            _work_and_end(work, share, ended, answers)
        os.close(ended)
        os.close(answers)

    def answers(self) -> list[Found] | None:
        """Wait for what the copy found; None if it did not get so far."""
        with os.fdopen(os.dup(self._line), "rb") as line:
            written = line.read()
        try:
            found: list[Found] = unpack(list[self._kind], written)  # type: ignore[name-defined]
        except (DecodeError, ValidationError):
            return None
        return found

    def end(self) -> None:
        """End the copy, if it has not ended yet."""
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._line)
        os.close(self._alive)


def _work_and_end(work: Callable[[int], object], share: Iterable[int], ended: int, answers: int) -> NoReturn:
    status = 1
    try:
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=end_with_parent, args=(ended,), daemon=True).start()
        written = pack(list(map(work, share)))
        with os.fdopen(answers, "wb") as line:
            line.write(written)
        status = 0
    finally:
        os._exit(status)
