"""/new: choose two dumps and how to compare them."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.errors import CatalogueError, FirstdriftError
from firstdrift_server.answers import answer
from firstdrift_server.choices import Choice
from firstdrift_server.context import Context, Shared
from firstdrift_server.forms import Fields
from firstdrift_server.views.new import new_view

router = APIRouter(include_in_schema=False)


@router.get("/new")
def show(request: Request, context: Shared) -> Response:
    """Show the form, filled in with what the address says."""
    return answer(request, "new.html", _view(context, dict(request.query_params)))


@router.post("/new")
def create(request: Request, fields: Fields, context: Shared) -> Response:
    """Start the comparison, or show the form again with what is wrong with it."""
    try:
        created = Choice.from_fields(fields).ask(context)
    except FirstdriftError as error:
        if isinstance(error, CatalogueError):
            raise
        view = _view(context, fields) | {"problem": error.reason, "hint": error.hint}
        return answer(request, "new.html", view, HTTPStatus.UNPROCESSABLE_ENTITY)
    return RedirectResponse(f"/c/{created}", HTTPStatus.SEE_OTHER)


def _view(context: Context, fields: dict[str, str]) -> dict[str, Any]:
    return new_view(context, fields)
