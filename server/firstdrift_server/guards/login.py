"""Ask for the token, where one is set.

/c/7?token=SECRET        ─▶  a cookie, and on to /c/7 (the secret leaves the address bar)
Authorization: Bearer …  ─▶  let through (scripts)
the cookie               ─▶  let through
the cookie of a link     ─▶  let through to the comparison that the link is for (guards/share.py)
anything else            ─▶  401, with a form for people
"""

import hashlib
import hmac
import secrets
import time
from http import HTTPStatus

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from firstdrift_server.answers import answer, error_answer, wants_json
from firstdrift_server.guards import share
from firstdrift_server.settings import Settings

OPEN_PATHS = frozenset({"/health", "/ready", "/login"})
OPEN_FOLDER = "/static/"
"""What anybody may see: whether the server lives, the form, and the files that make the form look well."""

SESSION_SECONDS = 30 * 24 * 3600


class LoginGuard:
    """Let through visitors who have shown the token."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Guard an application; without a token in the settings, it stands open."""
        self.app = app
        self.sessions = Sessions(settings.secret) if settings.secret is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with a form, an error or a cookie."""
        response = None
        if scope["type"] == "http" and self.sessions is not None:
            request = Request(scope)
            response = _stop(request, self.sessions)
            if response is not None and share.has_links(request, self.sessions.cookie):
                visitor = (request, self.sessions.cookie, response)
                response = await run_in_threadpool(share.stop_visitor, *visitor)
        await (response or self.app)(scope, receive, send)


class Sessions:
    """Cookies that prove the token was shown; they die with the token, and after thirty days."""

    def __init__(self, token: str) -> None:
        """Derive what is needed from the token, so that nothing has to be stored."""
        self._token = token.encode()
        # Servers on several ports of one host share their cookies: each needs a name of its own.
        self.cookie = f"firstdrift_{self._sign('cookie name')[:8]}"

    def is_token(self, shown: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)

    def admits(self, request: Request) -> bool:
        """Tell whether a request carries the token or a cookie that stands for it."""
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(credentials.strip()):
            return True
        return self._is_valid(request.cookies.get(self.cookie, ""))

    def welcome(self, request: Request, address: str) -> Response:
        """Give the visitor a cookie and send them on."""
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
        text = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(16)}"
        response.set_cookie(
            self.cookie,
            f"{text}.{self._sign(text)}",
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    def _is_valid(self, cookie: str) -> bool:
        text, _, signature = cookie.rpartition(".")
        expiry = text.partition(".")[0]
        return (
            hmac.compare_digest(signature.encode(), self._sign(text).encode())
            and expiry.isdecimal()
            and int(expiry) > time.time()
        )

    def _sign(self, text: str) -> str:
        return hmac.new(self._token, text.encode(), hashlib.sha256).hexdigest()


def login_form(request: Request, wanted: str, *, failed: bool, gone: bool = False) -> Response:
    """Ask for the token, and remember where the visitor was going; `gone` if they had a link once."""
    view = {"wanted": wanted, "failed": failed, "gone": gone}
    return answer(request, "login.html", view, HTTPStatus.UNAUTHORIZED)


def local_address(wanted: str) -> str:
    """Return an address if it is one on this server, else the front page."""
    is_local = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_local else "/"


def _stop(request: Request, sessions: Sessions) -> Response | None:
    """Answer in place of the application, or give None to let the request through."""
    shown = request.query_params.get("token") if request.method == "GET" else None
    wanted = _address_without_token(request)
    if shown is not None and sessions.is_token(shown):
        return sessions.welcome(request, wanted)
    path = request.url.path
    if path in OPEN_PATHS or path.startswith((OPEN_FOLDER, share.OPEN_FOLDER)) or sessions.admits(request):
        return None
    if wants_json(request) or request.method != "GET":
        return error_answer(request, HTTPStatus.UNAUTHORIZED, "a token is required")
    # This is the answer to visitors only where their links open nothing any more.
    gone = share.has_links(request, sessions.cookie)
    return login_form(request, wanted, failed=shown is not None, gone=gone)


def _address_without_token(request: Request) -> str:
    url = request.url.remove_query_params("token")
    return local_address(f"{url.path}?{url.query}" if url.query else url.path)
