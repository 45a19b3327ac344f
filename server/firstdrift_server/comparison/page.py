"""/c/{id}: the finding first, then the slices, then where errors begin."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.comparisons.records import (
    cancel_comparison,
    compare_what_is_new,
    delete_comparison,
    get_comparison,
    restore_comparison,
    set_note,
)
from firstdrift.catalogue.matches import match_sets
from firstdrift.verdict.judge import RULES
from firstdrift_server.answers import answer, wants_json
from firstdrift_server.comparison.data import comparison_data
from firstdrift_server.comparison.view import Wanted, changes_view, comparison_view, follow_dumps
from firstdrift_server.comparison_request import ComparisonRequest
from firstdrift_server.context import Context, Shared
from firstdrift_server.forms import Fields, Submitted
from firstdrift_server.home.view import address_after
from firstdrift_server.parts.addresses import comparison_address
from firstdrift_server.strict_json import StrictJSONResponse

router = APIRouter(include_in_schema=False)


def _wanted(
    position: Annotated[int | None, Query(alias="slice")] = None,
    metric: str | None = None,
    scale: str | None = None,
    by: str | None = None,
    was: str | None = None,
) -> Wanted:
    return Wanted(position, metric, scale, by, was if was in RULES else None)


@router.get("/c/{comparison}")
def show(
    request: Request,
    comparison: int,
    context: Shared,
    wanted: Annotated[Wanted, Depends(_wanted)],
    *,
    check: bool = False,
) -> Response:
    """Show a comparison; `slice`, `metric`, `scale` and `by` choose what the lower half is about.

    `was` is the rule set before this one, for which a way back is offered.

    With `check` it says whether the dumps have changed, for which all their files have to be looked at.
    """
    with context.reading() as session:
        if wants_json(request):
            return StrictJSONResponse(comparison_data(session, comparison))
        changes = changes_view(session, context, comparison) if check else None
        view = comparison_view(session, comparison, wanted, changes)
    return answer(request, "comparison.html", view)


@router.post("/c/{comparison}/again")
def again(fields: Fields, comparison: int, context: Shared) -> Response:
    """Judge by the rule set that was chosen, and offer the way back, or compare again what has changed."""
    rules = (
        ComparisonRequest.from_fields({"rules": fields["rules"]}).options().rules
        if fields.get("rules")
        else None
    )
    then = f"/c/{comparison}"
    if rules and not fields.get("undo"):
        with context.reading() as session:
            was = get_comparison(session, comparison).options.rules
        then = comparison_address(comparison, was=was if was != rules else None)
    return _change(context, then, match_sets.judge_again, comparison, rules)


@router.post("/c/{comparison}/new", dependencies=[Submitted])
def compare_new(comparison: int, context: Shared) -> Response:
    """Compare what is new of dumps that are still being written."""
    return _change(context, f"/c/{comparison}", compare_what_is_new, comparison)


@router.post("/c/{comparison}/follow")
def follow(fields: Fields, comparison: int, context: Shared) -> Response:
    """Look at dumps that are still being written again by itself, or, with `stops`, no more."""
    return _change(context, f"/c/{comparison}", follow_dumps, comparison, fields.get("stops") == "yes")


@router.post("/c/{comparison}/note")
def note(fields: Fields, comparison: int, context: Shared) -> Response:
    """Keep what a person writes about a comparison."""
    written = ComparisonRequest.from_fields({"note": fields.get("note", "")}).note
    return _change(context, f"/c/{comparison}", set_note, comparison, written)


@router.post("/c/{comparison}/cancel", dependencies=[Submitted])
def cancel(comparison: int, context: Shared) -> Response:
    """Stop the work."""
    return _change(context, f"/c/{comparison}", cancel_comparison, comparison)


@router.post("/c/{comparison}/delete")
def delete(fields: Fields, comparison: int, context: Shared) -> Response:
    """Move a comparison to the bin, and offer to take it back, in the view of the front page it was in."""
    then = address_after(fields.get("view", ""), deleted=comparison)
    return _change(context, then, delete_comparison, comparison)


@router.post("/c/{comparison}/restore")
def restore(fields: Fields, comparison: int, context: Shared) -> Response:
    """Take a comparison back from the bin."""
    return _change(context, address_after(fields.get("view", "")), restore_comparison, comparison)


def _change(context: Context, then: str, change: Callable[..., object], *what: object) -> Response:
    """Change something in the catalogue, and lead on to another page."""
    context.write(change, *what)
    return RedirectResponse(then, HTTPStatus.SEE_OTHER)
