"""/help: what a comparison says, and what its words mean; it shows no data, so that anybody may see it."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift_server.answers import answer
from firstdrift_server.help.view import help_view

router = APIRouter(include_in_schema=False)


@router.get("/help")
def show(request: Request) -> Response:
    """Show the help page."""
    return answer(request, "help.html", help_view())
