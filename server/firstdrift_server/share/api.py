"""/api/v1/comparisons/{id}/links: show a comparison to others."""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import Request
from pydantic import Field

from firstdrift.catalogue.sharing.links import active_links, new_link, revoke_link, shared_comparison
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.share.view import link_address, link_view
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.validation import Sent

router = api_router("/comparisons/{comparison}", "sharing")


class LinkIn(Sent):
    """A link to be made: for how many hours, 1 to 2160; null until it is revoked."""

    hours: Annotated[float, Field(ge=1, le=2160)] | None
    may_write: bool = False
    label: Annotated[str, Field(max_length=200)] = ""


@router.get("/links")
def list_links(comparison: int, context: Shared) -> StrictJSONResponse:
    """List the links to a comparison that are open; their secrets are not known any more."""
    with context.reading() as session:
        links = active_links(session, shared_comparison(session, comparison))
    return StrictJSONResponse({"links": list(map(link_view, links))})


@router.post("/links", status_code=HTTPStatus.CREATED)
def make_link(request: Request, comparison: int, wanted: LinkIn, context: Shared) -> StrictJSONResponse:
    """Make a read-only link; `address` is said this once."""
    lasts = None if wanted.hours is None else timedelta(hours=wanted.hours)
    with context.writing() as session:
        made, secret = new_link(session, comparison, lasts, may_write=wanted.may_write, label=wanted.label)
        context.about("link", made)
    with context.reading() as session:
        links = active_links(session, shared_comparison(session, comparison))
    found = next((link_view(link) for link in links if link.id == made), {"id": made})
    return StrictJSONResponse(found | {"address": link_address(request, secret)}, HTTPStatus.CREATED)


@router.delete("/links/{link}")
def revoke(comparison: int, link: int, context: Shared) -> StrictJSONResponse:
    """Take a link back; it opens nothing from now on."""
    context.write(revoke_link, comparison, link)
    return StrictJSONResponse({"ok": True, "id": link})
