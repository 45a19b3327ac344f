"""Let visitors with a link see the comparison it is for, and nothing else."""

from http import HTTPStatus

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from firstdrift.catalogue.sharing.links import link_to, open_links
from firstdrift.errors import FirstdriftError
from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer, status_of
from firstdrift_server.context import Context
from firstdrift_server.guards.turns import has_turn
from firstdrift_server.visitors import asked_of, shown_secrets, standing_of

OPEN_FOLDER = "/share/"
"""Where links lead: whoever has none learns there only that they have none."""

HELP = "/help"
"""What words mean, for everybody; whoever came through a link finds the way back to what it shows."""

LANGUAGE = "/language"
"""Choosing a language changes nothing but a cookie."""


def has_links(request: Request, cookie: str) -> bool:
    """Tell whether somebody without the token may have a link."""
    return bool(shown_secrets(request, cookie))


async def stop_in_turn(request: Request, cookie: str, refusal: Response | None) -> Response | None:
    """Do as `stop_visitor` does, for few at a time: visitors must not take all threads there are."""
    context: Context = request.app.state.context
    if not await has_turn(context.checks, request):
        error, hint = Message.of("server.too_many_visitors"), Message.of("server.try_again_soon")
        return error_answer(request, HTTPStatus.SERVICE_UNAVAILABLE, error, hint)
    try:
        return await run_in_threadpool(stop_visitor, request, cookie, refusal)
    finally:
        context.checks.give_back()


def stop_visitor(request: Request, cookie: str, refusal: Response | None) -> Response | None:
    """Answer in place of the application, or give None to let a visitor through.

    Args:
        request: of somebody without the token; its path is the one that the routes will see.
        cookie: name of the cookie of those who have the token.
        refusal: the answer to those whose links open nothing (any more); None to what anybody may see.
    """
    context: Context = request.app.state.context
    method, path = request.method, request.scope["path"]
    asked = asked_of(method, path)
    try:
        with context.reading() as session:
            links = open_links(session, shown_secrets(request, cookie))
            link = None if asked is None else link_to(session, asked.comparison, links)
    except FirstdriftError as error:
        return error_answer(request, status_of(error), error.message, error.advice)
    if not links:
        return refusal
    standing_of(request).link = link or links[0]
    if (method, path) == ("POST", LANGUAGE) or path == HELP:
        return None
    if asked is None or link is None or (asked.writes and not link.may_write):
        hint = Message.of("server.link_shows_one_comparison")
        return error_answer(request, HTTPStatus.NOT_FOUND, Message.of("server.nothing_here"), hint)
    return None
