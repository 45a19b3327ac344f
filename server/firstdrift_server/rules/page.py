"""/c/{id}/rules: the rule set, thresholds and baseline of a comparison; others are tried before they apply.

A form without a script previews and applies as well. What judges needs NumPy, which the server is ready
without.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.matches.match_sets import judge_again, laid_over
from firstdrift.errors import SettingsError
from firstdrift_server.answers import answer, status_of, wants_json
from firstdrift_server.context import Shared
from firstdrift_server.forms import Form
from firstdrift_server.parts.addresses import comparison_address, rules_address
from firstdrift_server.parts.refusal import refusal
from firstdrift_server.rules.judging import judging_to_apply
from firstdrift_server.rules.view import rules_view
from firstdrift_server.visitors import viewer_of

router = APIRouter(include_in_schema=False)


@router.get("/c/{comparison}/rules")
def show(request: Request, comparison: int, context: Shared) -> Response:
    """Show by what a comparison is judged; the parameters say what is tried instead.

    The page of results of a match set is that of the comparison it is laid over.
    """
    with context.reading() as session:
        origin = laid_over(session, comparison)
        if origin is not None:
            return RedirectResponse(rules_address(origin.comparison_id), HTTPStatus.SEE_OTHER)
        sees_others = viewer_of(request).sees_others
        view = rules_view(session, context, comparison, request.query_params, sees_others=sees_others)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if view.problem else HTTPStatus.OK
    return answer(request, "rules.html", view, status)


@router.post("/c/{comparison}/rules")
def apply(request: Request, comparison: int, fields: Form, context: Shared) -> Response:
    """Have a comparison judged by what was chosen, and lead to it; nothing that was chosen is lost if not."""
    try:
        with context.writing() as session:
            judging, is_new = judging_to_apply(session, comparison, fields)
            if is_new:
                judge_again(session, comparison, judging)
    except SettingsError as error:
        if wants_json(request):
            raise
        view = context.read(rules_view, context, comparison, fields, sees_others=True)
        return answer(request, "rules.html", replace(view, problem=refusal(error)), status_of(error))
    return RedirectResponse(comparison_address(comparison), HTTPStatus.SEE_OTHER)
