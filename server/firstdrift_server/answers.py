"""How the server answers: JSON that keeps NaN, pages, and errors in one shape for both.

{"ok": false, "error": "what is wrong", "status": 404, "hint": "what to try", "message": {…}, "advice": {…}}

`error` and `hint` are texts in the language of the reader; `message` and `advice` say the same as data.
Every error of ours that a route or a view raises is answered so, whatever it is: pages do not list theirs.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response, StreamingResponse

from firstdrift.errors import (
    BusyError,
    CatalogueError,
    ConflictError,
    FirstdriftError,
    NoRoomError,
    NotInCatalogueError,
    PathOutsideRootsError,
    QuotaError,
)
from firstdrift.wording.message import Message, verbatim
from firstdrift.wording.text import text_of
from firstdrift_frontend import assets
from firstdrift_frontend.rendering import render
from firstdrift_server.asked import address_without_token, asked_address
from firstdrift_server.reader_language import VARY, language_of
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.traffic import requested
from firstdrift_server.validation import complaint
from firstdrift_server.visitors import standing_of, viewer_of

THEME_COOKIE = "firstdrift_theme"
"""Set by the page itself: which of the themes to show."""

THEMES = ("light", "dark")

RETRY_SECONDS = 5
"""When to ask again while the database is busy, full or away."""

HINTS: Mapping[int, Message] = {
    HTTPStatus.BAD_REQUEST: Message.of("server.open_printed_address"),
    HTTPStatus.UNAUTHORIZED: Message.of("server.open_printed_link"),
    HTTPStatus.FORBIDDEN: Message.of("server.open_firstdrift_itself"),
    HTTPStatus.NOT_FOUND: Message.of("server.mistyped_or_deleted"),
    HTTPStatus.METHOD_NOT_ALLOWED: Message.of("server.see_openapi"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Message.of("server.send_paths"),
    HTTPStatus.TOO_MANY_REQUESTS: Message.of("server.retry_after"),
    HTTPStatus.SERVICE_UNAVAILABLE: Message.of("server.try_again_or_check"),
    HTTPStatus.INTERNAL_SERVER_ERROR: Message.of("server.report_fault"),
}
"""What to try, where nothing better is known."""

NO_ROUTE: Mapping[int, Message] = {
    HTTPStatus.NOT_FOUND: Message.of("server.no_page"),
    HTTPStatus.METHOD_NOT_ALLOWED: Message.of("server.wrong_method"),
}
"""What is said of addresses that lead nowhere, of which the framework knows only the status."""


class MessageOut(BaseModel):
    """A message as data: which one, what stands in it, and its text in the language of the reader."""

    id: str
    arguments: dict[str, Any] = {}
    text: str


class ErrorOut(BaseModel):
    """What a client gets whenever something was not possible; `request` is its id in the log."""

    ok: bool = False
    error: str
    status: int
    hint: str = ""
    message: MessageOut
    advice: MessageOut | None = None
    request: str = ""


ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": ErrorOut, "description": description}
    for status, description in {
        401: "No token, or a wrong one",
        403: "The request came from another site, or from a member who changes nothing",
        404: "There is no such thing",
        422: "The request makes no sense",
        429: "Too many wrong tokens, or too much of what has a quota; Retry-After says when there is more",
        503: "The database is busy, full or away, or too many ask; Retry-After says when to ask again",
    }.items()
}


def described_file(*media_types: str) -> dict[int | str, dict[str, object]]:
    """Describe an answer that is a file of one of these types."""
    return {200: {"description": "The file", "content": {each.partition(";")[0]: {} for each in media_types}}}


def api_router(path: str, tag: str, **statuses: str) -> APIRouter:
    """Begin the routes of a part of the API: answers in strict JSON, and errors in the shape of all.

    `statuses` describes more errors, as in `s409="somebody else was faster"`.
    """
    more: dict[int | str, dict[str, object]] = {
        int(name[1:]): {"model": ErrorOut, "description": why} for name, why in statuses.items()
    }
    return APIRouter(
        prefix=f"/api/v1{path}",
        tags=[tag],
        responses=ERRORS | more,
        default_response_class=StrictJSONResponse,
    )


def wants_json(request: Request) -> bool:
    """Tell whether a client asked for data rather than for a page."""
    # `request.url` is made of the Host header too, in which a visitor may write a path.
    if request.scope["path"].startswith("/api/") or request.scope.get("firstdrift.json"):
        return True
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def answer(request: Request, template: str, view: object, status: int = HTTPStatus.OK) -> Response:
    """Give a view as data to those who asked for data, and as a page to everybody else."""
    if wants_json(request):
        return StrictJSONResponse(view, status)
    return HTMLResponse(_page(request, template, view), status, headers=_VARIES)


def answer_early(
    request: Request, template: str, view: Callable[[], object], scripts: Sequence[str]
) -> Response:
    """Begin to answer with a page before its view is there: browsers fetch meanwhile what the page needs.

    The page is known to be there; `scripts` are its files, beside those of every page.
    """
    if wants_json(request):
        return StrictJSONResponse(view())
    address = f"/static/{assets.build()}"
    needed = [f"<{address}/app.css>; rel=preload; as=style"]
    modules = dict.fromkeys(name for script in ("app.js", *scripts) for name in assets.modules(script))
    needed += [f"<{address}/{name}>; rel=modulepreload" for name in modules]

    def parts() -> Iterator[bytes]:
        yield b""  # sends the head of the answer
        try:
            yield _page(request, template, view())
        except FirstdriftError as error:  # the database, which was there a moment ago
            yield bytes(error_answer(request, status_of(error), error.message, error.advice).body)

    return StreamingResponse(parts(), media_type="text/html", headers=_VARIES | {"link": ", ".join(needed)})


_VARIES = {"vary": VARY}


def _page(request: Request, template: str, view: object) -> bytes:
    # What was shown in vain is not written into the page that says so.
    here = address_without_token if standing_of(request).is_refused else asked_address
    theme = request.cookies.get(THEME_COOKIE)
    around = {
        "here": _without_secret(here(request.scope)),
        "can_be_asked_again": request.method == "GET",
        "viewer": viewer_of(request),
        "theme": theme if theme in THEMES else None,  # which leaves it to the visitor's system
    }
    return render(template, language_of(request), view=view, **around).encode()


def _without_secret(address: str) -> str:
    # What leads nowhere, such as a link that was revoked, shows a page of its own.
    return "/" if address.startswith("/share/") else address


def error_answer(request: Request, status: int, error: Message, hint: Message | None = None) -> Response:
    """Say what is wrong and what to try, in the form the client reads."""
    advice = hint or HINTS.get(status)
    view = {
        "ok": False,
        "error": text_of(error, language_of(request)),
        "status": status,
        "hint": text_of(advice, language_of(request)) if advice is not None else "",
        "message": error,
        "advice": advice,
        "request": requested(request.scope).id,
    }
    response = answer(request, "error.html", view, status)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["retry-after"] = str(RETRY_SECONDS)
    return response


def located(error: FirstdriftError) -> Message:
    """Say what is wrong, and with which file."""
    if error.path is None:
        return error.message
    return Message.of("server.at_path", path=str(error.path), what=error.message)


def status_of(error: FirstdriftError) -> HTTPStatus:
    """Say which HTTP status stands for one of our errors."""
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), _UNPROCESSABLE)


_UNPROCESSABLE = HTTPStatus.UNPROCESSABLE_ENTITY
_STATUSES: Mapping[type[FirstdriftError], HTTPStatus] = {
    NotInCatalogueError: HTTPStatus.NOT_FOUND,
    PathOutsideRootsError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    NoRoomError: HTTPStatus.INSUFFICIENT_STORAGE,
    CatalogueError: HTTPStatus.SERVICE_UNAVAILABLE,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    QuotaError: HTTPStatus.TOO_MANY_REQUESTS,
}


def _said_by_framework(error: HTTPException) -> tuple[int, Message]:
    """Give the status and the message of an error; the framework itself says no more than a name."""
    if isinstance(error.detail, Message):
        return error.status_code, error.detail
    # A body that no parser could read: bytes that are no text, lists in lists in lists.
    if error.status_code == HTTPStatus.BAD_REQUEST and error.__cause__ is not None:
        return _UNPROCESSABLE, Message.of("server.body_unreadable")
    return error.status_code, NO_ROUTE.get(error.status_code) or verbatim(str(error.detail))


def explain_errors(app: FastAPI, methods_of: Callable[[str], str]) -> None:
    """Give every error, ours and the framework's, that one shape.

    Args:
        app: the application.
        methods_of: says what can be asked of a path, of which the framework knows the first route only.
    """

    @app.exception_handler(FirstdriftError)
    async def ours(request: Request, exc: FirstdriftError) -> Response:
        response = error_answer(request, status_of(exc), located(exc), exc.advice)
        if isinstance(exc, QuotaError):
            response.headers["retry-after"] = str(math.ceil(exc.seconds))
        return response

    @app.exception_handler(OverflowError)
    async def beyond_any_id(request: Request, _exc: OverflowError) -> Response:
        return error_answer(request, HTTPStatus.NOT_FOUND, Message.of("server.no_such_id"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, exc: HTTPException) -> Response:
        response = error_answer(request, *_said_by_framework(exc))
        response.headers.update(exc.headers or {})
        if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            response.headers["allow"] = methods_of(request.scope["path"])
        return response

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, exc: RequestValidationError) -> Response:
        return error_answer(request, _UNPROCESSABLE, complaint(exc.errors(), without=1))
