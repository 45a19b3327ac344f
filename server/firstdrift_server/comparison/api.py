"""/api/v1/comparisons: create, list, look at, judge by other rules, cancel, delete and restore."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query
from msgspec import Struct
from pydantic import BaseModel

from firstdrift.catalogue.comparisons.records import (
    cancel_comparison,
    compare_what_is_new,
    delete_comparison,
    list_comparisons,
    restore_comparison,
)
from firstdrift.catalogue.matches import match_sets
from firstdrift_server.answers import api_router
from firstdrift_server.comparison.data import comparison_data
from firstdrift_server.comparison_request import ComparisonRequest
from firstdrift_server.context import Shared
from firstdrift_server.parts.summary import ComparisonSummary, comparison_summary
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("/comparisons", "comparisons")


class Again(BaseModel):
    """The rule set to judge by; the one in force if it is left out."""

    rules: str | None = None


class ComparisonList(Struct, frozen=True):
    """Some comparisons, the newest first; `next_before` is where the list goes on, None at its end."""

    comparisons: list[ComparisonSummary]
    is_live: bool
    next_before: int | None
    text: str


@router.get("")
def list_all(
    context: Shared, q: str = "", before: int | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> StrictJSONResponse:
    """List comparisons, the newest first; `before` goes on, `q` searches paths, notes and findings."""
    with context.reading() as session:
        found = list_comparisons(session, limit=limit + 1, before=before, text=q)
        shown = [comparison_summary(session, comparison) for comparison in found[:limit]]
    is_live = any(summary.job.is_open for summary in shown)
    return StrictJSONResponse(
        ComparisonList(shown, is_live, shown[-1].id if len(found) > limit else None, text=q)
    )


@router.post("", status_code=HTTPStatus.CREATED)
def create(choice: ComparisonRequest, context: Shared) -> StrictJSONResponse:
    """Ask for two dumps to be compared; a worker begins at once."""
    created = choice.ask(context)
    with context.reading() as session:
        headers = {"location": f"/api/v1/comparisons/{created}"}
        return StrictJSONResponse(comparison_data(session, created), HTTPStatus.CREATED, headers)


@router.get("/{comparison}")
def show(comparison: int, context: Shared) -> StrictJSONResponse:
    """Give the whole answer, as `firstdrift compare --json` does, with the state of the work."""
    return StrictJSONResponse(context.read(comparison_data, comparison))


@router.post("/{comparison}/again")
def judge_again(comparison: int, again: Again, context: Shared) -> StrictJSONResponse:
    """Make the results again, under other rules if given; nothing is measured twice."""
    rules = None if again.rules is None else ComparisonRequest(rules=again.rules).options().rules
    context.write(match_sets.judge_again, comparison, rules)
    return show(comparison, context)


@router.post("/{comparison}/new")
def compare_new(comparison: int, context: Shared) -> StrictJSONResponse:
    """Compare what is new of dumps that are still being written."""
    context.write(compare_what_is_new, comparison)
    return show(comparison, context)


@router.post("/{comparison}/cancel")
def cancel(comparison: int, context: Shared) -> StrictJSONResponse:
    """Stop the work; what has been done stays."""
    context.write(cancel_comparison, comparison)
    return show(comparison, context)


@router.delete("/{comparison}")
def delete(comparison: int, context: Shared) -> StrictJSONResponse:
    """Move a comparison to the bin."""
    context.write(delete_comparison, comparison)
    return StrictJSONResponse({"ok": True, "id": comparison})


@router.post("/{comparison}/restore")
def restore(comparison: int, context: Shared) -> StrictJSONResponse:
    """Take a comparison back from the bin."""
    context.write(restore_comparison, comparison)
    return show(comparison, context)
