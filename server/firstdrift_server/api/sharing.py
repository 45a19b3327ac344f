"""/api/v1/comparisons/{id}/links and /notes: show a comparison to others, and write about its nodes."""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from firstdrift.catalogue.sharing import notes
from firstdrift.catalogue.sharing.links import active_links, new_link, revoke_link, shared_comparison
from firstdrift_server.answers import ERRORS
from firstdrift_server.context import Context, Shared
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.views.notes import noted_nodes, write_note
from firstdrift_server.views.share import link_address, link_view
from firstdrift_server.visitors import viewer_of

router = APIRouter(
    prefix="/api/v1/comparisons/{comparison}",
    tags=["sharing"],
    responses=ERRORS,
    default_response_class=StrictJSONResponse,
)


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LinkIn(_In):
    """A link to be made: for how many hours, 1 to 2160; null until it is revoked."""

    hours: Annotated[float, Field(ge=1, le=2160)] | None
    may_write: bool = False
    label: Annotated[str, Field(max_length=200)] = ""


class NoteIn(_In):
    """A note, and how its author calls themselves."""

    author: str
    text: str


@router.get("/links")
def list_links(comparison: int, context: Shared) -> StrictJSONResponse:
    """List the links to a comparison that are open; their secrets are not known any more."""
    with context.reading() as session:
        links = active_links(session, shared_comparison(session, comparison))
    return StrictJSONResponse({"links": [link_view(link) for link in links]})


@router.post("/links", status_code=HTTPStatus.CREATED)
def make_link(request: Request, comparison: int, wanted: LinkIn, context: Shared) -> StrictJSONResponse:
    """Make a read-only link; `address` is said this once."""
    lasts = None if wanted.hours is None else timedelta(hours=wanted.hours)
    with context.writing() as session:
        made, secret = new_link(session, comparison, lasts, may_write=wanted.may_write, label=wanted.label)
    with context.reading() as session:
        links = active_links(session, shared_comparison(session, comparison))
    found = next((link_view(link) for link in links if link.id == made), {"id": made})
    return StrictJSONResponse(found | {"address": link_address(request, secret)}, HTTPStatus.CREATED)


@router.delete("/links/{link}")
def revoke(comparison: int, link: int, context: Shared) -> StrictJSONResponse:
    """Take a link back; it opens nothing from now on."""
    with context.writing() as session:
        revoke_link(session, comparison, link)
    return StrictJSONResponse({"ok": True, "id": link})


@router.get("/notes")
def list_notes(comparison: int, context: Shared) -> StrictJSONResponse:
    """List what people wrote about nodes, in the order in which they did."""
    with context.reading() as session:
        return StrictJSONResponse({"notes": noted_nodes(session, comparison)})


@router.post("/slices/{position}/rows/{row}/notes", status_code=HTTPStatus.CREATED)
def write(
    request: Request, comparison: int, position: int, row: int, note: NoteIn, context: Shared
) -> StrictJSONResponse:
    """Write a note about a node."""
    place = (comparison, position, row)
    with context.writing() as session:
        made = write_note(session, viewer_of(request), place, note.author, note.text)
    return StrictJSONResponse(_listed(context, comparison, made), HTTPStatus.CREATED)


@router.delete("/notes/{note}")
def delete(request: Request, comparison: int, note: int, context: Shared) -> StrictJSONResponse:
    """Delete a note; it can be restored for a month."""
    require_own(request, context, comparison, note)
    with context.writing() as session:
        notes.delete_note(session, note)
    return StrictJSONResponse({"ok": True, "id": note})


@router.post("/notes/{note}/restore")
def restore(request: Request, comparison: int, note: int, context: Shared) -> StrictJSONResponse:
    """Take a deleted note back."""
    require_own(request, context, comparison, note)
    with context.writing() as session:
        notes.restore_note(session, note)
    return StrictJSONResponse(_listed(context, comparison, note))


def require_own(request: Request, context: Context, comparison: int, note: int) -> None:
    """Make sure that a note is there, and that whoever asks may change it.

    Raises:
        NotInCatalogueError: the comparison has no such note.
        HTTPException: 404 if a visitor did not write it.
    """
    with context.reading() as session:
        known = notes.get_note(session, comparison, note)
    if not viewer_of(request).may_change(known.link_id):
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such note of yours")


def _listed(context: Context, comparison: int, note: int) -> dict[str, object]:
    with context.reading() as session:
        return next((one for one in noted_nodes(session, comparison) if one["id"] == note), {"id": note})
