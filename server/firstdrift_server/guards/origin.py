"""Refuse what another site's page asks of this server."""

from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class OriginGuard:
    """Let through requests from our own pages, links from elsewhere, and clients that are no browser."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] != "http" or is_own(scope["method"], Headers(scope=scope)):
            await self.app(scope, receive, send)
            return
        error = Message.of("server.other_site")
        response = error_answer(Request(scope), HTTPStatus.FORBIDDEN, error)
        await response(scope, receive, send)


def is_own(method: str, headers: Headers) -> bool:
    """Tell whether a request comes from our own pages, from a followed link or from no browser at all.

    | Sec-Fetch-Site    | Origin        | decided by                                            |
    | ----------------- | ------------- | ----------------------------------------------------- |
    | same-origin, none | any           | own: browsers do not let a page set this header       |
    | cross-site, ...   | any           | own only if it is a link somebody follows             |
    | absent            | present       | own if Origin names this host (browsers over http://) |
    | absent            | absent        | own: curl and scripts carry no login by themselves    |
    """
    site = headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):
        return True
    if site is not None:
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return method in SAFE_METHODS and is_link
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
