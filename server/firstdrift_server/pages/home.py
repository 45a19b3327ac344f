"""/: the comparisons, each with its finding in one line."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift_server.answers import answer
from firstdrift_server.context import Shared
from firstdrift_server.views.comparisons import list_view
from firstdrift_server.views.workers import worker_view

router = APIRouter(include_in_schema=False)


@router.get("/")
def home(
    request: Request, context: Shared, q: str = "", before: int | None = None, deleted: int | None = None
) -> Response:
    """Show the comparisons; `deleted` is the one that was just deleted, which can be taken back."""
    with context.reading() as session:
        view = list_view(session, text=q, before=before)
        view |= {
            "deleted": deleted,
            "roots": context.settings.roots,
            "worker": worker_view(session),
        }
    return answer(request, "home.html", view)
