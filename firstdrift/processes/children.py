"""Processes that answer questions about dumps, so that the process that asks reads none itself.

with Children(2, Limits(memory=2 << 30, seconds=60)) as children:
    children.ask([root], read_stacks, dump, listing)      # runs in a child; returns, or raises, what it does

A question is a function of a module and its arguments, all of which can be pickled. A child that dies, or
takes too long, is replaced; whoever asked learns why.
"""

import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from firstdrift.errors import BusyError, FirstdriftError, LimitError
from firstdrift.files import allow_mapping, confine_process
from firstdrift.logs import Carried, carried, set_up
from firstdrift.processes.endings import why_it_ended
from firstdrift.processes.forked import Forked
from firstdrift.processes.limits import GIB, Limits, be_first_to_go, limit_memory, limit_processor_time
from firstdrift.wording.message import Message

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

OUTLASTS: Final = "firstdrift.processes.outlasts"
"""What every process that children are forked from is to import."""

_WAIT_SECONDS: Final = 30.0
"""So long somebody waits for a child that others have."""

_WAIT_FOR_EACH: Final = 4
"""So many wait for each child; others are told at once that all are busy."""

_PATIENCE: Final = 3.0
"""A question may take so many times its processor time: disks and other processes make it wait."""

_IDLE_SECONDS: Final = 300.0
"""A child that nobody has asked for so long ends."""

_LARGEST_IDLE: Final = 256 * 2**20
"""Bytes of memory with which a child is not kept for the next question."""


class Children(AbstractContextManager["Children"]):
    """At most so many processes, each of which answers one question at a time."""

    def __init__(
        self, most: int, limits: Limits, preload: Sequence[str] = (), idle: float = _IDLE_SECONDS
    ) -> None:
        """Prepare; nothing starts before the first question.

        Args:
            most: how many questions are answered at once.
            limits: of each process.
            preload: modules that answers need; imported once, for all children.
            idle: seconds after which a child that nobody asks ends.
        """
        self._limits, self._idle_seconds = limits, idle
        self._preload = ["__main__", OUTLASTS, __name__, *preload]
        self._free = threading.BoundedSemaphore(most)
        self._waiting = threading.BoundedSemaphore(_WAIT_FOR_EACH * most)
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def __exit__(self, *_: object) -> None:
        """End all that are idle; others end with their question."""
        self.close()

    def close(self) -> None:
        """End all that are idle; others end with their question."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def prepare(self) -> None:
        """Import what children need beforehand, in the process that they are forked from."""
        multiprocessing.get_context("forkserver").set_forkserver_preload(self._preload)
        forkserver.ensure_running()

    def ask(
        self,
        roots: Sequence[Path] | None,
        question: Callable[Given, Answer],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Answer:
        """Have a function called in a child; return what it returns.

        Args:
            roots: real paths of the directories outside of which the child opens nothing; None for no bounds.
            question: the function.
            given: what it is given.
            named: what it is given by name.

        Raises:
            BusyError: all children are busy, and stay so.
            LimitError: it needed more memory or time than it may have, or the child died.
            Exception: what the function raised.
        """
        with self._turn():
            try:
                answer = self._ask_one(self._take(), (roots, question, given, named))
            except _EndedError as error:
                raise LimitError(error.message) from error
        if answer.is_error:
            raise answer.value
        found: Answer = answer.value
        return found

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for a child to be free, where not too many wait already: whoever waits holds a thread."""
        is_busy = BusyError(Message.of("processes.busy"), hint=Message.of("processes.hint.try_again"))
        if not self._waiting.acquire(blocking=False):
            raise is_busy
        try:
            is_mine = self._free.acquire(timeout=_WAIT_SECONDS)
        finally:
            self._waiting.release()
        if not is_mine:
            raise is_busy
        try:
            yield
        finally:
            self._free.release()

    def _ask_one(self, child: "_Child", question: "_Question") -> "_Answer":
        try:
            answer = child.ask(question)
        except _GoneError:  # it had waited for too long, and was about to end; a new one never did
            child.end()
            return self._ask_one(self._new(), question)
        except BaseException:
            child.end()
            raise
        if not (answer.stays and self._keep(child)):
            child.end()
        return answer

    def _take(self) -> "_Child":
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._new()

    def _new(self) -> "_Child":
        return _Child(self._limits, self._idle_seconds, self._preload)

    def _keep(self, child: "_Child") -> bool:
        with self._lock:
            if not self._is_closed:
                self._idle.append(child)
            return not self._is_closed


_Question = tuple[Sequence[Path] | None, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""The roots, the function, and what it is given."""


class _Answer(NamedTuple):
    """What a child sends: a value or an error, and whether it waits for the next question."""

    is_error: bool
    value: Any
    stays: bool


class _EndedError(Exception):
    """A child ended in place of an answer."""

    def __init__(self, message: Message) -> None:
        super().__init__(message)
        self.message = message


class _GoneError(_EndedError):
    """A child that had answered before ended of itself."""


class _Child:
    """One process, from the side of whoever asks."""

    def __init__(self, limits: Limits, idle: float, preload: Sequence[str]) -> None:
        self._limits = limits
        self._has_answered = False
        self._line, theirs = Pipe()
        self._process = Forked(preload, _answer, theirs, limits, idle, carried())
        theirs.close()

    def ask(self, question: _Question) -> _Answer:
        """Send a question and wait for the answer.

        Raises:
            _EndedError: there is none, and why.
        """
        try:
            self._line.send(question)
            if not self._line.poll(_PATIENCE * self._limits.seconds):
                raise _EndedError(Message.of("processes.took_long", seconds=_PATIENCE * self._limits.seconds))
            answer: _Answer = self._line.recv()
        except (EOFError, OSError) as error:
            status = self._process.wait()
            kind = _GoneError if status == 0 and self._has_answered else _EndedError
            raise kind(reason_of(status, self._limits)) from error
        self._has_answered = True
        return answer

    def end(self) -> None:
        self._line.close()
        self._process.end()


OUT_OF_MEMORY: Final = 71
"""Exit status of a child that had not the memory; what it holds is worth nothing any more."""


def reason_of(status: int | None, limits: Limits) -> Message:
    """Say in a clause why a process with limits ended."""
    if status == OUT_OF_MEMORY:
        return Message.of("processes.much_memory", gib=limits.memory / GIB)
    if status == -signal.SIGXCPU:
        return Message.of("processes.much_processor_time", seconds=limits.seconds)
    return why_it_ended(status)


def _answer(line: Connection, limits: Limits, idle: float, logs: Carried) -> None:
    """Answer questions until nobody asks any more: what a child does."""
    set_up(logs[0])  # the next question comes with another request
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    be_first_to_go()
    limit_memory(limits.memory)
    allow_mapping(allowed=True)
    with line:
        stays = True
        while stays and line.poll(idle):
            try:
                roots, question, given, named = line.recv()
            except EOFError:
                return
            limit_processor_time(limits.seconds)
            confine_process(roots)
            is_error, value = _answer_to(question, given, named)
            stays = _most_memory() <= _LARGEST_IDLE
            line.send(_Answer(is_error, value, stays))


def _answer_to(
    question: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[bool, Any]:
    """Return whether the answer is an error, and the answer."""
    try:
        return False, question(*given, **named)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except FirstdriftError as error:
        return True, error
    except Exception as error:  # noqa: BLE001 - a mistake of ours is one where the question was asked
        return True, portable(error)


def portable(error: Exception) -> Exception:
    """Return an error that can be sent, with where it arose."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever a foreign class does
        return RuntimeError("".join(error.__notes__))
    return error


def _most_memory() -> int:
    """Return the most bytes of memory that this process had at a time."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
