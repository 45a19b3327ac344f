"""Let few visitors at a time be answered, so that whoever has the token is answered soon.

A turn lasts until the answer is known; that of a file, until it has been sent, for it is read from the
database meanwhile. Who waits for a turn holds no thread and no connection; who goes away gives up waiting.
"""

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from threading import BoundedSemaphore

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer
from firstdrift_server.context import Context
from firstdrift_server.guards.origin import SAFE_METHODS
from firstdrift_server.visitors import Visit, kind_of_visit, viewer_of

WAIT_SECONDS = 10.0
_LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class TurnGuard:
    """Let visitors through one after the other; those with the token pass by."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on when it is its turn, or answer 503 if it is not soon."""
        if scope["type"] != "http" or viewer_of(Request(scope)).link is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        context: Context = request.app.state.context
        visit = kind_of_visit(scope["path"], scope["query_string"])
        turns = context.turns[visit]
        if not await _has_turn(turns, request):
            error, hint = Message.of("server.too_many_visitors"), Message.of("server.try_again_soon")
            response = error_answer(request, HTTPStatus.SERVICE_UNAVAILABLE, error, hint)
            await response(scope, receive, send)
            return
        with ExitStack() as held:
            held.callback(turns.release)

            async def send_on(message: Event) -> None:
                # Whoever takes a page slowly keeps nobody waiting.
                if message.get("body") and visit is not Visit.FILE:
                    held.close()
                await send(message)

            await self.app(scope, receive, send_on)


async def _has_turn(turns: BoundedSemaphore, request: Request) -> bool:
    until = time.monotonic() + WAIT_SECONDS
    while not turns.acquire(blocking=False):
        # What is written has a body, which looking for the end of the connection would take away.
        if time.monotonic() > until or (request.method in SAFE_METHODS and await request.is_disconnected()):
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True
