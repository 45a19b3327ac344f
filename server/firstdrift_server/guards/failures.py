"""Answer what nobody expected, in the shape of every other error."""

import logging
from http import HTTPStatus

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firstdrift_server.answers import error_answer

log = logging.getLogger("firstdrift.server")


class FailureGuard:
    """Log a fault with its traceback and tell the visitor only that there was one.

    The framework's own net hangs outside the other guards, where an answer would lack their headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Guard an application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and answer 500 if it fails before an answer has begun."""
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            if begun or scope["type"] != "http":
                raise
            request = Request(scope)
            log.exception("%s %s failed", request.method, request.url.path)
            response = error_answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong here")
            await response(scope, receive, send)
