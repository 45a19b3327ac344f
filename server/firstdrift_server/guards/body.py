"""Refuse request bodies that are larger than anything firstdrift asks for."""

import re
from http import HTTPStatus

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from firstdrift.matching.manual.thresholds import LARGEST_FILE
from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer

UPLOADS = "/api/v1/uploads"
LARGEST_CHUNK = 16 << 20
"""Bytes of a chunk of an upload, and of the list of its files."""

LARGEST_IMPORT = 3 * LARGEST_FILE + (1 << 20)
"""Bytes in which a mapping file is sent: as a field of a form, most signs but letters take three each."""

_IMPORT = re.compile("/c/[0-9]+/s/[0-9]+/match/import|/api/v1/match-sets/[0-9]+/import")
_MOST_DIGITS = 18


class BodyGuard:
    """Count the bytes of a body, whatever its declared length."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        """Accept bodies of up to `largest` bytes, chunks of uploads, and mapping files."""
        self.app, self.largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a counted body, or answer 413 before reading it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        declared = request.headers.get("content-length", "0")
        largest = self._largest_for(scope["path"])
        is_length = declared.isdecimal() and len(declared) <= _MOST_DIGITS
        if not is_length or int(declared) > largest:
            response = error_answer(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _complaint(largest))
            await response(scope, receive, send)
            return
        await self.app(scope, _counted(receive, largest), send)

    def _largest_for(self, path: str) -> int:
        if _IMPORT.fullmatch(path):
            return max(LARGEST_IMPORT, self.largest)
        is_upload = path == UPLOADS or path.startswith(f"{UPLOADS}/")
        return max(LARGEST_CHUNK, self.largest) if is_upload else self.largest


def _complaint(largest: int) -> Message:
    return Message.of("server.large_body", most=largest)


def _counted(receive: Receive, largest: int) -> Receive:
    total = 0

    async def counted() -> Event:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > largest:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _complaint(largest))
        return message

    return counted
