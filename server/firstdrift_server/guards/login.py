"""Ask for the token, the owner's or a member's, where one is set.

/c/7?token=SECRET        ─▶  a cookie, and on to /c/7 (the secret leaves the address bar)
Authorization: Bearer …  ─▶  let through (scripts)
the cookie               ─▶  let through
the cookie of a link     ─▶  let through to the comparison that the link is for (guards/share.py)
a member who only looks  ─▶  403 to whatever may change something
anything else            ─▶  401, with a form for people
wrong ones, many         ─▶  429, and when to try again (brake.py)
"""

import math
import time
from contextlib import suppress
from http import HTTPStatus

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.people.members import SEEN_EVERY, Member, member_of, note_member_seen
from firstdrift.errors import CatalogueError, FirstdriftError
from firstdrift.wording.message import Message
from firstdrift_server.answers import answer, error_answer, status_of, wants_json
from firstdrift_server.asked import TOKEN, address_without_token
from firstdrift_server.context import Context
from firstdrift_server.guards import share
from firstdrift_server.guards.origin import SAFE_METHODS
from firstdrift_server.guards.turns import has_turn
from firstdrift_server.sessions import Attempt, Sessions
from firstdrift_server.turns import Turns
from firstdrift_server.visitors import standing_of, viewer_of

OPEN_PATHS = frozenset({"/health", "/ready", "/login", share.HELP})
METRICS = "/metrics"
"""Open likewise where the operator says so."""

OPEN_FOLDER = "/static/"
"""What anybody may see: whether the server lives, the form, and the files that make the form look well."""

LOOKED_UP_AT_ONCE = 4
"""So many tokens that are not the owner's are looked up at a time."""

OF_LOOKERS = frozenset({"/logout", share.LANGUAGE})
"""What somebody who only looks may do all the same."""

NOTHING_SHOWN = Attempt(right=False, shown=False)


class LoginGuard:
    """Let through visitors who have shown the token."""

    def __init__(self, app: ASGIApp, sessions: Sessions | None, *, open_metrics: bool = False) -> None:
        """Guard an application; without sessions, it stands open."""
        self.app = app
        self.sessions = sessions
        self._seen: dict[int, float] = {}
        self._lookups = Turns(LOOKED_UP_AT_ONCE)
        self._open = OPEN_PATHS | ({METRICS} if open_metrics else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with a form, an error or a cookie."""
        response = None
        if scope["type"] == "http" and self.sessions is not None:
            request = Request(scope, receive)
            is_open = self._is_open(request.scope["path"])
            if _shows_another_token(request, self.sessions):
                response = await self._stop_in_turn(request, self.sessions, is_open=is_open)
            elif _is_member(request, self.sessions):
                response = await run_in_threadpool(_stop_known, request, self.sessions, is_open=is_open)
            else:
                response = _stop(request, self.sessions, is_open=is_open)
            is_asked_of_links = response is not None or request.scope["path"] == share.HELP
            if is_asked_of_links and share.has_links(request, self.sessions.cookie):
                response = await share.stop_in_turn(request, self.sessions.cookie, response)
        await (response or self.app)(scope, receive, send)
        member = standing_of(Request(scope)).member if scope["type"] == "http" else None
        if member is not None:
            await self._keep_seen(Request(scope), member)

    async def _stop_in_turn(self, request: Request, sessions: Sessions, *, is_open: bool) -> Response | None:
        """Look up whose token is shown, for few at a time: who guesses must not take all threads."""
        if not await has_turn(self._lookups, request):
            error, hint = Message.of("server.too_many_visitors"), Message.of("server.try_again_soon")
            return error_answer(request, HTTPStatus.SERVICE_UNAVAILABLE, error, hint)
        try:
            return await run_in_threadpool(_stop_known, request, sessions, is_open=is_open)
        finally:
            self._lookups.give_back()

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith((OPEN_FOLDER, share.OPEN_FOLDER))

    async def _keep_seen(self, request: Request, member: Member) -> None:
        """Keep that a member was here, now and then, once they have their answer."""
        now = time.monotonic()
        if now - self._seen.get(member.id, -math.inf) >= SEEN_EVERY.total_seconds():
            self._seen[member.id] = now
            await run_in_threadpool(_note_seen, request.app.state.context, member.id)


def _note_seen(context: Context, number: int) -> None:
    # Who cannot be told when somebody was here last is told less: nobody is turned away for that.
    with suppress(CatalogueError), writing(context.engine) as session:
        note_member_seen(session, number)


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


def _shows_another_token(request: Request, sessions: Sessions) -> bool:
    """Tell whether the database has to be asked whose token is shown: that of the owner is known here."""
    shown = [request.query_params.get(TOKEN), _shown_in_header(request)]
    return any(token is not None and not sessions.is_token(token) for token in shown)


def _is_member(request: Request, sessions: Sessions) -> bool:
    """Tell whether the database has to be asked whether somebody is a member still."""
    is_file = request.scope["path"].startswith(OPEN_FOLDER)
    return not is_file and sessions.number_of(sessions.session_of(request)) is not None


def _stop_known(request: Request, sessions: Sessions, *, is_open: bool) -> Response | None:
    """Do as `_stop` does, where the database has to be asked: that may be away."""
    try:
        return _stop(request, sessions, is_open=is_open)
    except FirstdriftError as error:
        return error_answer(request, status_of(error), error.message, error.advice)


def _stop(request: Request, sessions: Sessions, *, is_open: bool) -> Response | None:
    """Answer in place of the application, or give None to let the request through."""
    session, member = _session(request, sessions)
    bearer = NOTHING_SHOWN if session is not None or is_open else _bearer(request, sessions)
    is_in = session is not None or bearer.right
    standing = standing_of(request)
    standing.session, standing.has_token, standing.member = session, is_in, member or bearer.member
    attempt = _token_in_address(request, sessions, is_in=is_in)
    wanted = local_address(address_without_token(request.scope))
    if attempt.right:
        return sessions.welcome(request, wanted, attempt.member)
    wait = max(bearer.wait, attempt.wait)
    if is_in:
        return _stop_looker(request)
    if is_open and not wait:
        return None
    if wants_json(request) or request.method != "GET":
        standing.is_refused = True
        return _too_early(request, math.ceil(wait)) if wait else _unauthorized(request)
    # This is the answer to visitors only where their links open nothing any more.
    gone = share.has_links(request, sessions.cookie)
    shown = Attempt(right=False, wait=wait, shown=attempt.shown or wait > 0)
    return login_form(request, wanted, shown, gone=gone)


def _session(request: Request, sessions: Sessions) -> tuple[str | None, Member | None]:
    """Return the session that a request carries, and whose it is; that of somebody removed is none."""
    session = sessions.session_of(request)
    number = sessions.number_of(session)
    if number is None or request.scope["path"].startswith(OPEN_FOLDER):
        return session, None
    context: Context = request.app.state.context
    member = context.read(member_of, number)
    return (None, None) if member is None else (session, member)


def _stop_looker(request: Request) -> Response | None:
    """Refuse what may change something to whoever only looks."""
    may = request.method in SAFE_METHODS or request.scope["path"] in OF_LOOKERS
    if may or not viewer_of(request).only_looks:
        return None
    error, hint = Message.of("server.changes_nothing"), Message.of("server.ask_for_more")
    return error_answer(request, HTTPStatus.FORBIDDEN, error, hint)


def _token_in_address(request: Request, sessions: Sessions, *, is_in: bool) -> Attempt:
    shown = request.query_params.get(TOKEN)
    if shown is None or request.method != "GET":
        return NOTHING_SHOWN
    # Who is in already guesses nothing: on /new, a parameter of this name says something else.
    return sessions.again(shown) if is_in else sessions.attempt(request, shown)


def _unauthorized(request: Request) -> Response:
    is_wrong = request.headers.get("authorization", "")
    error = Message.of("server.wrong_token") if is_wrong else Message.of("server.token_required")
    return error_answer(request, HTTPStatus.UNAUTHORIZED, error, Message.of("server.log_in"))


def _bearer(request: Request, sessions: Sessions) -> Attempt:
    shown = _shown_in_header(request)
    return NOTHING_SHOWN if shown is None else sessions.attempt(request, shown)


def _shown_in_header(request: Request) -> str | None:
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    return (credentials.strip() or None) if kind.lower() == "bearer" else None


def _too_early(request: Request, wait: int) -> Response:
    error = Message.of("server.too_many_wrong_tokens")
    return _asking_again(error_answer(request, HTTPStatus.TOO_MANY_REQUESTS, error), wait)


def _asking_again(response: Response, wait: int) -> Response:
    if wait:
        response.headers["retry-after"] = str(wait)
    return response
