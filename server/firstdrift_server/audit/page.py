"""/audit: who changed what, the newest first, for whoever has a token."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift.catalogue.people.audit import Sought
from firstdrift_server.answers import answer
from firstdrift_server.audit.view import audit_view
from firstdrift_server.context import Shared
from firstdrift_server.validation import read_number

router = APIRouter(include_in_schema=False)


@router.get("/audit")
def show(
    request: Request,
    context: Shared,
    who: str = "",
    act: str = "",
    comparison: str = "",
    before: str = "",
) -> Response:
    """Show entries: of `who`, of an `act`, of a `comparison`; `before` goes on."""
    sought = Sought(who, act, read_number(comparison, "comparison"), read_number(before, "before"))
    return answer(request, "audit.html", context.read(audit_view, sought))
