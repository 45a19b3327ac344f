"""/api/v1/comparisons/{id}/rules: by what a comparison is judged, and what other rules would flag."""

from fastapi import Request

from firstdrift.catalogue.comparisons.records import Judging, get_comparison
from firstdrift.catalogue.matches.match_sets import judge_again
from firstdrift.verdict.movable_thresholds import thresholds_from
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.rules.effect import preview_object
from firstdrift_server.rules.judging import require_applicable, rules_object
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.validation import Sent
from firstdrift_server.visitors import viewer_of

router = api_router("/comparisons/{comparison}/rules", "rules")


class Rules(Sent):
    """A rule set, its thresholds (those left out are at their defaults), and a baseline."""

    rules: str
    thresholds: dict[str, float] = {}  # noqa: RUF012 - Pydantic copies it for each request
    baseline: int | None = None


@router.get("")
def show(comparison: int, context: Shared) -> StrictJSONResponse:
    """Give the rule set, thresholds and baseline in force, and the limits of each threshold."""
    return StrictJSONResponse(context.read(rules_object, comparison))


@router.get("/preview")
def preview(request: Request, comparison: int, context: Shared) -> StrictJSONResponse:
    """Say what other rules would flag, before and after: `?factor=4`, `?rules=msit&msit_cosine=0.99`, ...

    With `rules` all that is left out is at its default; without, what is in force is changed. `slice` is
    looked at first; others while time lasts, for which `all` gives more. Nothing is measured or written.
    """
    with context.reading() as session:
        sees_others = viewer_of(request).sees_others
        asked = (comparison, request.query_params)
        return StrictJSONResponse(preview_object(session, context, *asked, sees_others=sees_others))


@router.post("")
def apply(comparison: int, wanted: Rules, context: Shared) -> StrictJSONResponse:
    """Have a comparison judged by other rules; nothing is measured again."""
    judging = Judging(wanted.rules, thresholds_from(wanted.thresholds), wanted.baseline)
    with context.writing() as session:
        require_applicable(session, get_comparison(session, comparison), judging)
        judge_again(session, comparison, judging)
    return show(comparison, context)
