"""Answer what nobody expected, in the shape of every other error."""

import logging
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer
from firstdrift_server.traffic import UNKNOWN, requested

log = logging.getLogger("firstdrift.server")


@dataclass(frozen=True, slots=True)
class FailureGuard:
    """Log a fault with its traceback and tell the visitor only that there was one.

    The framework's own net hangs outside the other guards, where an answer would lack their headers.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and answer 500 if it fails before an answer has begun.

        Of a page that was begun early, and of which nothing is there but its head, the error is what follows.
        """
        begun = has_room = False

        async def send_and_note(message: Event) -> None:
            nonlocal begun, has_room
            begun = True
            if message["type"] == "http.response.start":
                has_room = Headers(raw=message["headers"]).get("content-type", "").startswith("text/html")
            elif message.get("body") or not message.get("more_body"):
                has_room = False
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            if (begun and not has_room) or scope["type"] != "http":
                raise
            request = Request(scope)
            log.exception("%s %s failed", request.method, _route_of(scope))
            response = error_answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, Message.of("server.fault"))
            if begun:
                await send({"type": "http.response.body", "body": response.body})
            else:
                await response(scope, receive, send)
        finally:
            requested(scope).route = _route_of(scope)


def _route_of(scope: Scope) -> str:
    """Return the template of the route that a request has reached."""
    return getattr(scope.get("route"), "path", UNKNOWN)
