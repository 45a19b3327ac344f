"""What browsers send when a form is submitted without JavaScript."""

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, HTTPException, Request

FORM = "application/x-www-form-urlencoded"


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of a submitted form.

    Raises:
        HTTPException: 415 if the body is something else, which only a foreign page or a mistake sends.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, "this address takes a submitted form")
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))


Submitted = Depends(form_fields)
"""For routes that take a submitted form without fields."""

Fields = Annotated[dict[str, str], Depends(form_fields)]
