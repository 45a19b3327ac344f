"""/c/{id}/s/{slice}/likely: the few matches that would resolve most, to accept all of them or one.

A child process looks for them when the page of a comparison is there; it is a page of its own where no script
runs. Its view needs NumPy, which the server is ready without.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.matches.match_sets import add_edits, get_match_set
from firstdrift_server.answers import answer
from firstdrift_server.context import Shared
from firstdrift_server.forms import Form
from firstdrift_server.likely.edits import read_edits
from firstdrift_server.match.sets import begin_set, check, check_for, set_of
from firstdrift_server.validation import read_number

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/s/{position}/likely")
def show(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Show the matches that would resolve most of a slice, and what each would change."""
    from firstdrift_server.likely.view import likely_view

    view = likely_view(context, comparison, position)
    return answer(request, "likely.html", view)


@router.post("/c/{comparison}/s/{position}/likely")
def accept(comparison: int, position: int, fields: Form, context: Shared) -> Response:
    """Lay the chosen matches over the match set, or over one that is begun, and lead to its results."""
    del position
    edits = read_edits(fields.getlist("edit"))
    chosen, version = (read_number(fields.get(name), name) or 0 for name in ("set", "version"))
    with context.reading() as session:
        known = set_of(session, comparison, chosen or None)
        if chosen:
            check(session, context, chosen, version, edits)
        else:
            check_for(session, context, known, edits)
    with context.writing() as session:
        made = chosen or begin_set(session, comparison, fields.get("name") or "")
        add_edits(session, made, version, edits)
        context.about("match_set", made)
    with context.reading() as session:
        results = get_match_set(session, made).results()
    return RedirectResponse(f"/c/{results or comparison}", HTTPStatus.SEE_OTHER)
