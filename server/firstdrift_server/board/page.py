"""/board: many comparisons side by side, over steps, ranks, tokens and runs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from firstdrift_server.answers import answer
from firstdrift_server.board.view import SORTS, Asked, board_view
from firstdrift_server.context import Shared

router = APIRouter(include_in_schema=False)


@router.get("/board")
def show(  # noqa: PLR0913 - what an address may say
    request: Request,
    context: Shared,
    chosen: Annotated[list[int], Query(alias="c", max_length=1000)] = [],  # noqa: B006 - read only
    q: str = "",
    axis: str = "",
    sort: str = SORTS[0],
    *,
    differences: bool = False,
    news: Annotated[bool, Query(alias="new")] = False,
) -> Response:
    """Show the comparisons that were chosen ("c=3&c=5"), or all that match a search."""
    asked = Asked(tuple(chosen), q.strip(), axis or None, differences, news, sort)
    view = context.read(board_view, asked)
    return answer(request, "board.html", view)
