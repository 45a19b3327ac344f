"""Do something in a process forked from this one, which has imported what is heavy."""

import json
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from planting import NotHereError

SECONDS: Final = 60

Answer = dict[str, Any]


def forked(do: Callable[[], Answer], log: Path, seconds: int = SECONDS) -> Answer:
    """Do something in a process of its own, and return what it answers; {"failed": …} if it does not."""
    return _end(*_begin(do, log, seconds))


def forked_together(dos: Sequence[Callable[[], Answer]], log: Path, seconds: int = SECONDS) -> list[Answer]:
    """Do several things at once, each in a process of its own, and return what they answer."""
    begun = [_begin(do, log, seconds) for do in dos]
    return [_end(*one) for one in begun]


def _begin(do: Callable[[], Answer], log: Path, seconds: int) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(do, writing, log, seconds)
    os.close(writing)
    return child, reading


def _end(child: int, reading: int) -> Answer:
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text:
        answer: Answer = json.loads(text)
        return answer
    ended = os.waitstatus_to_exitcode(status)
    return {"failed": "too slow" if ended == -signal.SIGALRM else f"ended by {ended}"}


def _answer(do: Callable[[], Answer], writing: int, log: Path, seconds: int) -> None:
    signal.alarm(seconds)
    try:
        with log.open("a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                answer = do()
            except NotHereError:
                answer = {"failed": "no place for it"}
            except Exception as error:  # noqa: BLE001 (whatever it is, it is counted)
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"[:300]}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
    finally:
        os._exit(0)
