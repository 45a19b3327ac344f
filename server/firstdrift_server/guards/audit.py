"""Keep in the audit log what a request has done, unless that was written with the change itself.

What changes files alone, and who has logged in, is kept before the answer goes out; wrong tokens once it has,
so that whoever shows them learns nothing by how long it takes, and all that come meanwhile together, so that
they take one thread however many there are.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.people.audit import Act, Actor, Deed, Who, enter
from firstdrift.errors import CatalogueError
from firstdrift_server.context import Context
from firstdrift_server.doing import address_of, begun, who_asks
from firstdrift_server.visitors import standing_of

log = logging.getLogger("firstdrift.server")

_REFUSED = 400
"""From this status on, a request has done nothing."""


class AuditGuard:
    """Write the entries that are left."""

    def __init__(self, app: ASGIApp) -> None:
        """Guard an application."""
        self.app = app
        self._refused = Counter[str]()
        self._is_writing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and write what it has done."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)

        async def send_on(message: Event) -> None:
            if message["type"] == "http.response.start" and (
                done := Counter(_done(request, message["status"]))
            ):
                await run_in_threadpool(_keep, request, done)
            await send(message)

        await self.app(scope, receive, send_on)
        if standing_of(request).has_failed:
            self._refused[address_of(request)] += 1
            await self._keep_refused(request)

    async def _keep_refused(self, request: Request) -> None:
        if self._is_writing:
            return
        self._is_writing = True
        try:
            while refused := self._refused:
                self._refused = Counter[str]()
                await run_in_threadpool(_keep_counted, request, refused)
        finally:
            self._is_writing = False


def _done(request: Request, status: int) -> Iterator[Deed]:
    """List what is not in the log yet."""
    if standing_of(request).has_entered:
        yield Deed(Act.LOGGED_IN, who_asks(request), address_of(request))
    doing = begun(request.scope)
    if doing is not None and status < _REFUSED and not doing.is_entered:
        doing.is_entered = True
        yield doing.deed


def _keep_counted(request: Request, refused: Counter[str]) -> None:
    stranger = Who(Actor.STRANGER)
    _keep(request, {Deed(Act.REFUSED, stranger, address): times for address, times in refused.items()})


def _keep(request: Request, deeds: Mapping[Deed, int]) -> None:
    context: Context = request.app.state.context
    try:
        with writing(context.engine) as session:
            for deed, times in deeds.items():
                enter(session, deed, times)
    except CatalogueError as error:
        # It is done, and cannot be undone for want of a line: whoever runs the server finds it here.
        log.warning("the audit log cannot be written (%s): %r", error, dict(deeds))
