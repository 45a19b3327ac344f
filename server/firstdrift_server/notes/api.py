"""/api/v1/comparisons/{id}/notes: write about its nodes."""

from http import HTTPStatus

from fastapi import Request

from firstdrift.catalogue.sharing import notes
from firstdrift_server.answers import api_router
from firstdrift_server.context import Context, Shared
from firstdrift_server.notes.view import noted_nodes, require_own, write_note
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.validation import Sent
from firstdrift_server.visitors import viewer_of

router = api_router("/comparisons/{comparison}", "sharing")


class NoteIn(Sent):
    """A note, and how its author calls themselves."""

    author: str
    text: str


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
        context.about("note", made)
    return StrictJSONResponse(_listed(context, comparison, made), HTTPStatus.CREATED)


@router.delete("/notes/{note}")
def delete(request: Request, comparison: int, note: int, context: Shared) -> StrictJSONResponse:
    """Delete a note; it can be restored for a month."""
    require_own(request, context, comparison, note)
    context.write(notes.delete_note, note)
    return StrictJSONResponse({"ok": True, "id": note})


@router.post("/notes/{note}/restore")
def restore(request: Request, comparison: int, note: int, context: Shared) -> StrictJSONResponse:
    """Take a deleted note back."""
    require_own(request, context, comparison, note)
    context.write(notes.restore_note, note)
    return StrictJSONResponse(_listed(context, comparison, note))


def _listed(context: Context, comparison: int, note: int) -> dict[str, object]:
    with context.reading() as session:
        return next((one for one in noted_nodes(session, comparison) if one["id"] == note), {"id": note})
