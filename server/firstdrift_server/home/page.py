"""/: the comparisons, each with its finding in one line; the dumps that are known; the bin."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from firstdrift_server.answers import answer
from firstdrift_server.context import Shared
from firstdrift_server.forms import Fields
from firstdrift_server.home.view import Asked, Part, address_after, home_view

router = APIRouter(include_in_schema=False)


@router.get("/")
def home(  # noqa: PLR0913 (what the address may say)
    request: Request,
    context: Shared,
    *,
    show: Part = Part.COMPARISONS,
    q: str = "",
    sort: str = "",
    verdict: str = "",
    skip: Annotated[int, Query(ge=0, le=10**9)] = 0,
    deleted: int | None = None,
    removed: str | None = None,
) -> Response:
    """Show a part; `deleted` and `removed` are what was just deleted, which can be taken back."""
    with context.reading() as session:
        view = home_view(session, context, Asked(show, q, sort, skip, verdict))
    return answer(request, "home.html", replace(view, deleted=deleted, removed=removed))


@router.post("/uploaded/remove")
def remove(fields: Fields, context: Shared) -> Response:
    """Move an uploaded dump to the bin, and offer to take it back."""
    name = fields.get("name", "")
    context.uploads.remove(name)
    context.about("path", name)
    address = address_after(fields.get("view", "/?show=dumps"), removed=name)
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)


@router.post("/uploaded/restore")
def restore(fields: Fields, context: Shared) -> Response:
    """Take an uploaded dump back from the bin."""
    context.uploads.restore(name := fields.get("name", ""))
    context.about("path", name)
    return RedirectResponse(address_after(fields.get("view", "/?show=dumps")), HTTPStatus.SEE_OTHER)
