"""Connections over which nothing comes are closed, so that they take nobody's place.

connected ─▶ head of a request ─▶ body ─▶ answer ─▶ head of the next request ─▶ ...
              in HEAD_SECONDS      so many bytes each BODY_SECONDS

Of those that wait for a head, the ones that have waited longest are closed when there are too many. Whoever
takes nothing of an answer for TAKE_SECONDS is cut off, and what waited for them is forgotten.
"""

import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import socket

HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 10.0
LEAST_BYTES: Final = 2048
"""Of a body, at least so many bytes come in BODY_SECONDS, or the rest of it."""

TAKE_SECONDS: Final = 60.0
"""Of an answer that is being taken, at least LEAST_BYTES go out within that."""

MOST_CONNECTIONS: Final = 2000
"""So many connections there may be in all; beyond, new ones are closed at once."""

MOST_WAITING: Final = 400
"""So many connections may wait for the head of a request, browsers' idle ones among them."""

SWITCH_SECONDS: Final = 0.0005
"""How soon a thread that tries rules or matches lets others go on: a page waits many times for that."""

ANSWERS_SECONDS: Final = 5
"""So long answers that are being given may take when the server is told to stop."""

LEAVE_SECONDS: Final = 9.0
"""So long after that the process ends, whatever its threads wait for."""


class Connection(H11Protocol):
    """A connection that is closed when what is to come does not."""

    waiting: dict["Connection", None]
    """Those that wait for the head of a request, in the order in which they began to."""

    opened: set["Connection"]
    """All there are."""

    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, if there are not too many connections."""
        super().connection_made(transport)
        if len(self.opened) >= MOST_CONNECTIONS:
            transport.abort()
            return
        self.opened.add(self)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self.opened.discard(self)
        self._stop_waiting()
        self._stop_looking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes."""
        self._received += len(data)
        super().data_received(data)

    def pause_writing(self) -> None:
        """See whether anything is taken of what waits to be sent."""
        super().pause_writing()
        self._look_at_taking(None)

    def resume_writing(self) -> None:
        """Go on: nearly all of it was taken."""
        self._stop_looking()
        super().resume_writing()

    def handle_events(self) -> None:
        """See whether the head of a request is there; its body may follow."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()
            self._wait_for_body()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be there already."""
        self._wait_for_head()
        super().on_response_complete()

    def leave(self) -> None:
        """Close the connection; what was answered still gets through."""
        self._stop_waiting()
        self.transport.close()

    def _look_at_taking(self, before: int | None) -> None:
        left = self.transport.get_write_buffer_size()
        if before is not None and before - left < LEAST_BYTES:
            self.transport.abort()
        else:
            self._taking = self.loop.call_later(TAKE_SECONDS, self._look_at_taking, left)

    def _stop_looking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        self.waiting[self] = None
        self._timer = self.loop.call_later(HEAD_SECONDS, self.leave)
        while len(self.waiting) > MOST_WAITING:
            next(iter(self.waiting)).leave()

    def _wait_for_body(self) -> None:
        if self.cycle.more_body and not self.cycle.response_complete:
            self._received = 0
            self._timer = self.loop.call_later(BODY_SECONDS, self._look_at_body)

    def _look_at_body(self) -> None:
        # Where reading is paused, it is the server that is slow.
        if self._received < LEAST_BYTES and self.cycle.more_body and not self.flow.read_paused:
            self.leave()
        else:
            self._wait_for_body()

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server that ends soon after it is told to, whatever its visitors do."""

    async def shutdown(self, sockets: Any = None) -> None:  # noqa: ANN401 (as it is declared there)
        """Let the answers that are being given be given, for a while."""
        # A thread that waits for what never comes would keep the process from ending.
        leaving = Timer(LEAVE_SECONDS, os._exit, [128 + signal.SIGTERM])
        leaving.daemon = True
        leaving.start()
        await super().shutdown(sockets)


def serve(app: ASGIApp, listener: "socket.socket") -> None:
    """Serve an application until the process is told to stop, which then ends within LEAVE_SECONDS."""
    allow_many_files()
    sys.setswitchinterval(SWITCH_SECONDS)
    connection = type("Connection", (Connection,), {"waiting": {}, "opened": set()})
    # No access log: an address may hold the token, once, before it becomes a cookie. Else it logs as we do.
    config = uvicorn.Config(
        app,
        http=connection,
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=ANSWERS_SECONDS,
    )
    Server(config).run(sockets=[listener])


def allow_many_files() -> None:
    """Let this process have as many files and connections open as the system allows it to."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
