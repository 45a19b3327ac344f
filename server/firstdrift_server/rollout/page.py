"""/rollout: log-probabilities of a rollout engine against those of a trainer."""

from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import Response

from firstdrift_server.answers import answer, error_answer, status_of, wants_json
from firstdrift_server.context import Shared
from firstdrift_server.rollout.view import rollout_view, sequence_view

router = APIRouter(include_in_schema=False)


@router.get("/rollout")
def show(request: Request, context: Shared) -> Response:
    """Show the form, and the answer once both sides are chosen."""
    view, refused = rollout_view(context, dict(request.query_params))
    if refused is None:
        return answer(request, "rollout.html", view)
    if wants_json(request):
        return error_answer(request, status_of(refused), view["problem"], refused.advice)
    return answer(request, "rollout.html", view, HTTPStatus(status_of(refused)))


@router.get("/rollout/{number}")
def sequence(request: Request, number: int, context: Shared) -> Response:
    """Show a sequence with its tokens."""
    view = sequence_view(context, number, dict(request.query_params))
    return answer(request, "rollout_sequence.html", view)
