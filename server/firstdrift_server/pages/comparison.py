"""/c/{id}: the finding first, then the slices, then where errors begin."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.comparisons import (
    cancel_comparison,
    compare_again,
    delete_comparison,
    restore_comparison,
)
from firstdrift_server.answers import answer, wants_json
from firstdrift_server.choices import Choice
from firstdrift_server.context import Shared
from firstdrift_server.forms import Fields
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.views.comparison import comparison_data, comparison_view

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}")
def show(
    request: Request,
    comparison: int,
    context: Shared,
    position: Annotated[int | None, Query(alias="slice")] = None,
    metric: str | None = None,
) -> Response:
    """Show a comparison; `slice` and `metric` choose what the lower half is about."""
    with context.reading() as session:
        if wants_json(request):
            return StrictJSONResponse(comparison_data(session, comparison))
        view = comparison_view(session, comparison, wanted_slice=position, wanted_metric=metric)
    return answer(request, "comparison.html", view)


@router.post("/c/{comparison}/again")
def again(fields: Fields, comparison: int, context: Shared) -> Response:
    """Judge by the rule set that was chosen in the form."""
    rules = Choice.from_fields({"rules": fields["rules"]}).options().rules if fields.get("rules") else None
    with context.writing() as session:
        compare_again(session, comparison, rules)
    return _see(f"/c/{comparison}")


@router.post("/c/{comparison}/cancel")
def cancel(fields: Fields, comparison: int, context: Shared) -> Response:
    """Stop the work."""
    del fields
    with context.writing() as session:
        cancel_comparison(session, comparison)
    return _see(f"/c/{comparison}")


@router.post("/c/{comparison}/delete")
def delete(fields: Fields, comparison: int, context: Shared) -> Response:
    """Move a comparison to the bin, and offer to take it back."""
    del fields
    with context.writing() as session:
        delete_comparison(session, comparison)
    return _see(f"/?deleted={comparison}")


@router.post("/c/{comparison}/restore")
def restore(fields: Fields, comparison: int, context: Shared) -> Response:
    """Take a comparison back from the bin."""
    del fields
    with context.writing() as session:
        restore_comparison(session, comparison)
    return _see("/")


def _see(address: str) -> Response:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
