"""/new: choose two dumps and how to compare them."""

from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.errors import CatalogueError, FirstdriftError
from firstdrift_server.answers import answer
from firstdrift_server.comparison_request import ComparisonRequest
from firstdrift_server.context import Shared
from firstdrift_server.forms import Fields
from firstdrift_server.new.view import meant_fields, new_view

router = APIRouter(include_in_schema=False)


@router.get("/new")
def show(request: Request, context: Shared) -> Response:
    """Show the form, filled in with what the address says."""
    return answer(request, "new.html", new_view(context, dict(request.query_params)))


@router.post("/new")
def create(request: Request, fields: Fields, context: Shared) -> Response:
    """Start the comparison, or show the form again with what is wrong with it."""
    try:
        created = ComparisonRequest.from_fields(meant_fields(context, fields)).ask(context)
    except FirstdriftError as error:
        if isinstance(error, CatalogueError):
            raise
        view = new_view(context, fields, refused=error)
        return answer(request, "new.html", view, HTTPStatus.UNPROCESSABLE_ENTITY)
    return RedirectResponse(f"/c/{created}", HTTPStatus.SEE_OTHER)
