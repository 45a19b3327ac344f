"""Ask for the token, where one is set.

/c/7?token=SECRET        ─▶  a cookie, and on to /c/7 (the secret leaves the address bar)
Authorization: Bearer …  ─▶  let through (scripts)
the cookie               ─▶  let through
the cookie of a link     ─▶  let through to the comparison that the link is for (guards/share.py)
anything else            ─▶  401, with a form for people
wrong ones, many         ─▶  429, and when to try again (brake.py)
"""

import math
from http import HTTPStatus

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift.wording.message import Message
from firstdrift_server.answers import answer, error_answer, wants_json
from firstdrift_server.asked import TOKEN, address_without_token
from firstdrift_server.guards import share
from firstdrift_server.sessions import Attempt, Sessions
from firstdrift_server.visitors import standing_of

OPEN_PATHS = frozenset({"/health", "/ready", "/login", share.HELP})
OPEN_FOLDER = "/static/"
"""What anybody may see: whether the server lives, the form, and the files that make the form look well."""

NOTHING_SHOWN = Attempt(right=False, shown=False)


class LoginGuard:
    """Let through visitors who have shown the token."""

    def __init__(self, app: ASGIApp, sessions: Sessions | None) -> None:
        """Guard an application; without sessions, it stands open."""
        self.app = app
        self.sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with a form, an error or a cookie."""
        response = None
        if scope["type"] == "http" and self.sessions is not None:
            request = Request(scope)
            response = _stop(request, self.sessions)
            is_asked_of_links = response is not None or request.scope["path"] == share.HELP
            if is_asked_of_links and share.has_links(request, self.sessions.cookie):
                visitor = (request, self.sessions.cookie, response)
                response = await run_in_threadpool(share.stop_visitor, *visitor)
        await (response or self.app)(scope, receive, send)


def login_form(
    request: Request, wanted: str, attempt: Attempt = NOTHING_SHOWN, *, gone: bool = False, left: bool = False
) -> Response:
    """Ask for the token.

    Args:
        request: that is answered so.
        wanted: where the visitor was going.
        attempt: what came of the token they showed.
        gone: they had a link once.
        left: they have just logged out.
    """
    standing_of(request).is_refused = True
    wait = math.ceil(attempt.wait)
    if wait and wants_json(request):
        return _too_early(request, wait)
    view = {"wanted": wanted, "failed": attempt.shown, "wait": wait, "gone": gone, "left": left}
    status = HTTPStatus.TOO_MANY_REQUESTS if wait else HTTPStatus.UNAUTHORIZED
    return _asking_again(answer(request, "login.html", view, status), wait)


def local_address(wanted: str) -> str:
    """Return an address if it is one on this server, else the front page."""
    is_local = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_local else "/"


def _stop(request: Request, sessions: Sessions) -> Response | None:
    """Answer in place of the application, or give None to let the request through."""
    path = request.scope["path"]
    is_open = path in OPEN_PATHS or path.startswith((OPEN_FOLDER, share.OPEN_FOLDER))
    session = sessions.session_of(request)
    bearer = NOTHING_SHOWN if session is not None or is_open else _bearer(request, sessions)
    is_in = session is not None or bearer.right
    standing = standing_of(request)
    standing.session, standing.has_token = session, is_in
    attempt = _token_in_address(request, sessions, is_in=is_in)
    wanted = local_address(address_without_token(request.scope))
    if attempt.right:
        return sessions.welcome(request, wanted)
    wait = max(bearer.wait, attempt.wait)
    if is_in or (is_open and not wait):
        return None
    if wants_json(request) or request.method != "GET":
        standing.is_refused = True
        return _too_early(request, math.ceil(wait)) if wait else _unauthorized(request)
    # This is the answer to visitors only where their links open nothing any more.
    gone = share.has_links(request, sessions.cookie)
    shown = Attempt(right=False, wait=wait, shown=attempt.shown or wait > 0)
    return login_form(request, wanted, shown, gone=gone)


def _token_in_address(request: Request, sessions: Sessions, *, is_in: bool) -> Attempt:
    shown = request.query_params.get(TOKEN)
    if shown is None or request.method != "GET":
        return NOTHING_SHOWN
    # Who is in already guesses nothing: on /new, a parameter of this name says something else.
    return Attempt(sessions.is_token(shown)) if is_in else sessions.attempt(request, shown)


def _unauthorized(request: Request) -> Response:
    is_wrong = request.headers.get("authorization", "")
    error = Message.of("server.wrong_token") if is_wrong else Message.of("server.token_required")
    return error_answer(request, HTTPStatus.UNAUTHORIZED, error, Message.of("server.log_in"))


def _bearer(request: Request, sessions: Sessions) -> Attempt:
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    shown = credentials.strip() if kind.lower() == "bearer" else ""
    return sessions.attempt(request, shown) if shown else NOTHING_SHOWN


def _too_early(request: Request, wait: int) -> Response:
    error = Message.of("server.too_many_wrong_tokens")
    return _asking_again(error_answer(request, HTTPStatus.TOO_MANY_REQUESTS, error), wait)


def _asking_again(response: Response, wait: int) -> Response:
    if wait:
        response.headers["retry-after"] = str(wait)
    return response
