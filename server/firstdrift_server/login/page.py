"""POST /login: exchange the token, typed into the form, for a cookie; POST /logout: give the cookie back."""

from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.wording.message import Message
from firstdrift_server.context import Shared
from firstdrift_server.forms import Fields, Submitted
from firstdrift_server.guards.login import local_address, login_form
from firstdrift_server.visitors import standing_of

router = APIRouter(include_in_schema=False)


@router.post("/login")
def log_in(request: Request, fields: Fields, context: Shared) -> Response:
    """Let the visitor in, or show the form again."""
    wanted = local_address(fields.get("wanted", "/"))
    if context.sessions is None:
        return RedirectResponse(wanted, 303)
    attempt = context.sessions.attempt(request, _token_in(fields.get("token", "").strip()))
    if attempt.right:
        return context.sessions.welcome(request, wanted, attempt.member)
    return login_form(request, wanted, attempt)


def _token_in(typed: str) -> str:
    """Return the token, also of the address that firstdrift printed."""
    address = urlsplit(typed) if typed.startswith(("http://", "https://")) else None
    return parse_qs(address.query).get("token", [typed])[0] if address is not None else typed


@router.get("/login")
def login_page(request: Request, context: Shared, left: str | None = None) -> Response:
    """Show the form; `left` to whoever has just logged out."""
    if context.sessions is None:
        raise HTTPException(404, Message.of("server.no_login"))
    return login_form(request, "/", left=left is not None)


@router.post("/logout", dependencies=[Submitted])
def log_out(request: Request, context: Shared) -> Response:
    """End the session, here as in the browser."""
    if context.sessions is None:
        raise HTTPException(404, Message.of("server.no_logout"))
    return context.sessions.farewell(standing_of(request).session, "/login?left=yes")
