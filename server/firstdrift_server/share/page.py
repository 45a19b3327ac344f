"""/c/{id}/share: make, list and revoke links to a comparison; /share/{secret}: come through one.

The secret of a new link is shown once, on the page that follows, to which a cookie carries it: it is neither
kept here nor in an address of whoever makes it.
"""

from contextlib import suppress
from http import HTTPStatus

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.sharing.links import new_link, note_seen, open_links, revoke_link, shared_comparison
from firstdrift.errors import CatalogueError
from firstdrift.wording.message import Message
from firstdrift_server.answers import answer
from firstdrift_server.context import Context, Shared
from firstdrift_server.forms import Fields, Submitted
from firstdrift_server.parts.addresses import share_address
from firstdrift_server.share.view import address_for, lasting, link_address, link_view, share_view
from firstdrift_server.visitors import give_secret, standing_of

router = APIRouter(include_in_schema=False)

NEW_LINK_COOKIE = "firstdrift_new_link"
NEW_LINK_SECONDS = 300
NO_STORE = {"cache-control": "no-store"}


@router.get("/c/{comparison}/share")
def show(request: Request, comparison: int, context: Shared, view: str | None = None) -> Response:
    """List the links to a comparison; `view` is the address of the view that a new link is to lead to."""
    secret = request.cookies.get(NEW_LINK_COOKIE)
    with context.reading() as session:
        shown = share_view(session, context, comparison, view)
        made = open_links(session, [secret]) if secret else ()
    if secret and made and made[0].comparison_id == shown["comparison"]:
        shown["made"] = link_view(made[0])
        shown["made_address"] = link_address(request, secret, shown["view"])
    response = answer(request, "share.html", shown)
    if secret:
        response.delete_cookie(NEW_LINK_COOKIE, path=share_address(comparison))
        response.headers.update(NO_STORE)
    return response


@router.post("/c/{comparison}/share")
def make(request: Request, comparison: int, fields: Fields, context: Shared) -> Response:
    """Make a link; its address is on the page that follows."""
    lasts, label = lasting(fields.get("lasts", "7d")), fields.get("label", "")
    with context.writing() as session:
        shown = shared_comparison(session, comparison)
        may_write = fields.get("may_write") == "yes"
        made, secret = new_link(session, shown, lasts, may_write=may_write, label=label)
        context.about("link", made)
    address = share_address(shown, view=fields.get("view") or None)
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    response.set_cookie(
        NEW_LINK_COOKIE,
        secret,
        max_age=NEW_LINK_SECONDS,
        path=share_address(shown),
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
    )
    return response


@router.post("/c/{comparison}/share/{link}/revoke", dependencies=[Submitted])
def revoke(comparison: int, link: int, context: Shared) -> Response:
    """Take a link back; whoever came through it sees nothing from now on."""
    context.write(revoke_link, comparison, link)
    return RedirectResponse(share_address(comparison), HTTPStatus.SEE_OTHER)


@router.get("/share/{secret}")
def come(request: Request, secret: str, context: Shared, to: str | None = None) -> Response:
    """Exchange the secret in the address for a cookie, and lead on to the comparison, or to a view of it."""
    with context.reading() as session:
        found = open_links(session, [secret])
        if not found:
            raise HTTPException(HTTPStatus.NOT_FOUND, Message.of("server.dead_link"), NO_STORE)
        link = found[0]
        address = address_for(session, link, to)
    standing = standing_of(request)
    context.about("link", link.id, link.comparison_id)
    if context.doing is not None and not standing.has_token:
        context.doing.by(link)
    _keep_seen(context, link.id)
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER, NO_STORE)
    if context.sessions is not None and not standing.has_token:
        give_secret(response, request, context.sessions.cookie, link, secret)
    return response


def _keep_seen(context: Context, link: int) -> None:
    # Who cannot be told when a link was opened last is told less: nobody is turned away for that.
    with suppress(CatalogueError), context.writing() as session:
        note_seen(session, link)
