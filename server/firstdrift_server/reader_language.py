"""The language of whoever asks, known wherever an answer is written."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift_frontend.languages import SOURCE, choose_language

LANGUAGE_COOKIE: Final = "firstdrift_language"

VARY: Final = "Accept, Accept-Language, Cookie"
"""By what of a request the form and the language of its answer are chosen."""

_language: Final = ContextVar("language", default=SOURCE)


def language_of(request: Request) -> str:
    """Return the language that a visitor reads: the one chosen on a page, else what the browser asks for."""
    return choose_language(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))


def language_now() -> str:
    """Return the language of whoever asked for what is being answered; English outside of an answer."""
    return _language.get()


@dataclass(frozen=True, slots=True)
class LanguageOfReader:
    """Remember the language while a request is answered."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            _language.set(language_of(Request(scope)))
        await self.app(scope, receive, send)
