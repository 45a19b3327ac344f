"""/c/{id}/s/{slice}/n/{row}/notes: write about a node; /c/{id}/notes/{note}: delete that, and undo."""

from http import HTTPStatus
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.sharing.notes import LONGEST_NAME, delete_note, restore_note
from firstdrift_server.context import Shared
from firstdrift_server.forms import Fields
from firstdrift_server.guards.login import local_address
from firstdrift_server.notes.view import require_own, write_note
from firstdrift_server.parts.addresses import comparison_address, node_address
from firstdrift_server.visitors import NAME_COOKIE, viewer_of

router = APIRouter(include_in_schema=False)

_YEAR = 365 * 24 * 3600


@router.post("/c/{comparison}/s/{position}/n/{row}/notes")
def write(
    request: Request, comparison: int, position: int, row: int, fields: Fields, context: Shared
) -> Response:
    """Write a note; the browser keeps the name for the next one."""
    author = fields.get("author", "")
    with context.writing() as session:
        note = write_note(
            session, viewer_of(request), (comparison, position, row), author, fields.get("text", "")
        )
        context.about("note", note)
    response = _back(fields, node_address(comparison, position, row), f"#note-{note}")
    response.set_cookie(
        NAME_COOKIE, quote(author.strip()[:LONGEST_NAME]), max_age=_YEAR, httponly=True, samesite="lax"
    )
    return response


@router.post("/c/{comparison}/notes/{note}/delete")
def delete(request: Request, comparison: int, note: int, fields: Fields, context: Shared) -> Response:
    """Delete a note, which stays where it was, to be taken back, for a while."""
    require_own(request, context, comparison, note)
    context.write(delete_note, note)
    return _back(fields, comparison_address(comparison))


@router.post("/c/{comparison}/notes/{note}/restore")
def restore(request: Request, comparison: int, note: int, fields: Fields, context: Shared) -> Response:
    """Take a deleted note back."""
    require_own(request, context, comparison, note)
    context.write(restore_note, note)
    return _back(fields, comparison_address(comparison))


def _back(fields: Fields, otherwise: str, place: str = "") -> RedirectResponse:
    back = local_address(fields.get("back", ""))
    shown = otherwise if back == "/" else back
    return RedirectResponse(f"{shown.partition('#')[0]}{place}", HTTPStatus.SEE_OTHER)
