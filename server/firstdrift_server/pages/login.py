"""POST /login: exchange the token, typed into the form, for a cookie."""

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from firstdrift_server.forms import Fields
from firstdrift_server.guards.login import Sessions, local_address, login_form

router = APIRouter(include_in_schema=False)


@router.post("/login")
def log_in(request: Request, fields: Fields) -> Response:
    """Let the visitor in, or show the form again."""
    wanted = local_address(fields.get("wanted", "/"))
    secret = request.app.state.context.settings.secret
    if secret is None:
        return RedirectResponse(wanted, 303)
    sessions = Sessions(secret)
    if sessions.is_token(fields.get("token", "").strip()):
        return sessions.welcome(request, wanted)
    return login_form(request, wanted, failed=True)


@router.get("/login")
def login_page(request: Request) -> Response:
    """Show the form."""
    if request.app.state.context.settings.secret is None:
        raise HTTPException(404, "no token is set, so there is nothing to log in to")
    return login_form(request, "/", failed=False)
