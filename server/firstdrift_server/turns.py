"""Turns: so many are answered at a time, and the others wait, first come, first served.

Who waits holds no thread and no connection to the database, is woken when it is their turn, and gives up when
whoever asked has gone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from threading import Lock
from weakref import WeakValueDictionary

MOST_WAITING = 400
"""So many wait; whoever comes then is told at once to come again."""

_LOOK_SECONDS = 1.0
"""How often somebody who waits is looked for."""


class Turns:
    """A number of turns; they are taken and given back in any thread."""

    def __init__(self, most: int) -> None:
        """Have so many."""
        self._most = self._free = most
        self._queue: deque[asyncio.Future[None]] = deque()
        self._lock = Lock()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._most - self._free

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._queue)

    def take(self) -> bool:
        """Take one if one is free and nobody waits for it; tell whether it was."""
        with self._lock:
            is_free = self._free > 0 and not self._queue
            self._free -= is_free
        return is_free

    def give_back(self, count: int = 1) -> None:
        """Give some back, to those who wait first."""
        for _ in range(count):
            with self._lock:
                first = self._queue.popleft() if self._queue else None
                self._free += first is None
            if first is not None:
                first.get_loop().call_soon_threadsafe(self._hand_over, first)

    async def wait(self, seconds: float, is_gone: Callable[[], Awaitable[bool]]) -> bool:
        """Take one as soon as it is free, or tell that it was not in so many seconds, or too many wait."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._free > 0 and not self._queue:
                self._free -= 1
                return True
            if len(self._queue) >= MOST_WAITING:
                return False
            self._queue.append(mine)
        until = loop.time() + seconds
        try:
            while not mine.done() and loop.time() < until and not await is_gone():
                await asyncio.wait({mine}, timeout=min(_LOOK_SECONDS, max(0.0, until - loop.time())))
        except BaseException:
            self._withdraw(mine)
            raise
        return mine.done() or self._withdraw(mine)

    def _hand_over(self, to: "asyncio.Future[None]") -> None:
        if to.done():  # it waits no more
            self.give_back()
        else:
            to.set_result(None)

    def _withdraw(self, mine: "asyncio.Future[None]") -> bool:
        """Wait no more; False, for there is no turn."""
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
        if mine.done():
            self.give_back()
        mine.cancel()
        return False


class TurnsOfEach:
    """A number of turns for each of those who ask: whoever holds all of theirs keeps nobody else waiting."""

    def __init__(self, most: int) -> None:
        """Let each have so many."""
        self._most = most
        self._of = WeakValueDictionary[Hashable, Turns]()

    def of(self, who: Hashable) -> Turns:
        """Give the turns of one of them, which are known while one is held or awaited; for the loop alone."""
        found = self._of.get(who)
        if found is None:
            found = self._of[who] = Turns(self._most)
        return found
