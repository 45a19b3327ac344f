"""Let few visitors at a time be answered, so that whoever has the token is answered soon.

A turn lasts until the answer is known; that of a file, until it has been sent, for it is read from the
database meanwhile. Members take turns of their own, as does the owner who tries other rules or other matches;
a file that a member asks for is one of those of visitors, so that one more can be written for the owner. No
member, and no link, has all of these: whoever takes files slowly leaves room for others.

What is sent along has arrived whole before a turn is taken, so that whoever sends it slowly holds none that
others need. Of each of them, only so much is on its way or in memory at a time.
"""

import re
from collections.abc import Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from firstdrift.wording.message import Message
from firstdrift_server.answers import error_answer
from firstdrift_server.context import Context
from firstdrift_server.guards.origin import SAFE_METHODS
from firstdrift_server.turns import Turns
from firstdrift_server.visitors import Visit, kind_of_visit, viewer_of

WAIT_SECONDS = 10.0

_N = "[0-9]{1,18}"
_TRIAL = re.compile(
    f"/api/v1/comparisons/{_N}/(?:preview|suggestions|rules/preview)|/c/{_N}/s/{_N}/likely"
    f"|/c/{_N}/(?P<page>rules|s/{_N}/match(?:/[a-z]+)?)"
)
_PICKED = re.compile(rb"(?:^|&)(?:golden|target|preview)=")
"""What an address of the page that matches nodes has where something is tried on it."""


@dataclass(frozen=True, slots=True)
class TurnGuard:
    """Let visitors through one after the other, and so members, and whoever tries something."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on when it is its turn, or answer 503 if it is not soon."""
        request = Request(scope, receive) if scope["type"] == "http" else None
        turns = None if request is None else _turns_for(request)
        if request is None or turns is None:
            await self.app(scope, receive, send)
            return
        is_file = kind_of_visit(scope["path"], scope["query_string"]) is Visit.FILE
        with ExitStack() as held:
            try:
                if request.method not in SAFE_METHODS:
                    await _take(_for_bodies(request), request, held)
                    receive = await _arrived(request, receive)
                if is_file:
                    await _take(_context_of(request).files_of.of(_who(request)), request, held)
                await _take(turns, request, held)
            except HTTPException as error:
                await _refusal(request, error)(scope, receive, send)
                return

            async def send_on(message: Event) -> None:
                # Whoever takes a page slowly keeps nobody waiting.
                if message.get("body") and not is_file:
                    held.close()
                await send(message)

            await self.app(scope, receive, send_on)


async def _take(turns: Turns, request: Request, held: ExitStack) -> None:
    if not await has_turn(turns, request):
        is_visitor = viewer_of(request).link is not None
        error = Message.of("server.too_many_visitors" if is_visitor else "server.too_many_trials")
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, error)
    held.callback(turns.give_back)


async def _arrived(request: Request, receive: Receive) -> Receive:
    """Wait for the whole body; give what hands it on, and then whatever comes after it."""
    try:
        whole = iter([await request.body()])
    except ClientDisconnect:  # nobody is there to read it
        raise HTTPException(HTTPStatus.BAD_REQUEST, Message.of("server.body_unreadable")) from None

    async def hand_on() -> Event:
        body = next(whole, None)
        return await receive() if body is None else {"type": "http.request", "body": body, "more_body": False}

    return hand_on


def _refusal(request: Request, error: HTTPException) -> Response:
    is_busy = error.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    hint = Message.of("server.try_again_soon") if is_busy else None
    return error_answer(request, error.status_code, cast(Message, error.detail), hint)


def _for_bodies(request: Request) -> Turns:
    """Give the turns that whoever asks has for what they send: theirs alone."""
    return _context_of(request).bodies.of(_who(request))


def _who(request: Request) -> Hashable:
    """Tell those apart who came through a link, and members."""
    viewer = viewer_of(request)
    return viewer.link and viewer.link.id, viewer.member and viewer.member.id


def _context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def _turns_for(request: Request) -> Turns | None:
    """Give the turns of which a request needs one; None if it needs none."""
    context = _context_of(request)
    viewer, path, query = viewer_of(request), request.scope["path"], request.scope["query_string"]
    if viewer.link is not None:
        return context.turns[kind_of_visit(path, query)]
    is_tried = is_trial(path, query)
    if viewer.member is None:
        return context.trials if is_tried else None
    if is_tried:
        return context.trials_of_members
    return context.turns[Visit.FILE] if kind_of_visit(path, query) is Visit.FILE else context.members


def is_trial(path: str, query: bytes) -> bool:
    """Tell whether a request has something tried, which may take a processor for seconds."""
    found = _TRIAL.fullmatch(path)
    page = found and found["page"]
    if page is None:
        return found is not None
    return bool(query) if page == "rules" else _PICKED.search(query) is not None


async def has_turn(turns: Turns, request: Request) -> bool:
    """Wait for a turn for a request, for a while."""

    async def is_gone() -> bool:
        # What is written has a body, which looking for the end of the connection would take away.
        return request.method in SAFE_METHODS and await request.is_disconnected()

    return await turns.wait(WAIT_SECONDS, is_gone)
