"""What browsers send when a form is submitted without JavaScript."""

from typing import Annotated

from fastapi import Depends, HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from firstdrift.wording.message import Message
from firstdrift_server.guards.plain_query import fields

FORM = "application/x-www-form-urlencoded"
_SHORT = 1 << 16


async def form_parameters(request: Request) -> QueryParams:
    """Return the fields of a submitted form, of which some may come several times."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, Message.of("server.takes_a_form"))
    body = await request.body()
    # A mapping file takes its time, in which others are answered.
    return _read(body) if len(body) <= _SHORT else await run_in_threadpool(_read, body)


def _read(body: bytes) -> QueryParams:
    return QueryParams(fields(body))


async def form_fields(parameters: Annotated[QueryParams, Depends(form_parameters)]) -> dict[str, str]:
    """Return the fields of a submitted form; of those that come several times, the last."""
    return dict(parameters)


Submitted = Depends(form_fields)
"""For routes that take a submitted form without fields."""

Form = Annotated[QueryParams, Depends(form_parameters)]

Fields = Annotated[dict[str, str], Depends(form_fields)]
