"""Refuse request bodies that are larger than anything firstdrift asks for."""

from http import HTTPStatus

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firstdrift_server.answers import error_answer


class BodyGuard:
    """Count the bytes of a body, whatever its declared length."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        """Accept bodies of up to `largest` bytes."""
        self.app, self.largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a counted body, or answer 413 before reading it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self.largest:
            response = error_answer(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.complaint)
            await response(scope, receive, send)
            return
        await self.app(scope, self._counted(receive), send)

    @property
    def complaint(self) -> str:
        """What is said to whoever sends too much."""
        return f"the request body is larger than {self.largest:,} bytes"

    def _counted(self, receive: Receive) -> Receive:
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.largest:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.complaint)
            return message

        return counted
