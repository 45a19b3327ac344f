"""/api/v1/comparisons/{id}/slices/{slice}/rows/{row}: a node; …/tensors/{n}: a pair of its tensors."""

from typing import Annotated

from fastapi import Query

from firstdrift.errors import SettingsError
from firstdrift.wording.message import Message
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.node.view import node_view
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("/comparisons/{comparison}/slices/{position}/rows/{row}", "slices")


@router.get("")
def show_node(comparison: int, position: int, row: int, context: Shared) -> StrictJSONResponse:
    """Give everything that is known of a node: verdict, tensors, metrics, match, call stacks."""
    return StrictJSONResponse(context.read(node_view, context, comparison, position, row))


@router.get("/tensors/{number}")
def look(  # noqa: PLR0913 - what an address may say
    comparison: int,
    position: int,
    row: int,
    number: int,
    context: Shared,
    *,
    down: str = "",
    across: str = "",
    at: Annotated[list[str], Query()] = [],  # noqa: B006 - read only
    heads: str = "",
    parts: str = "summary,charts,map,values",
) -> StrictJSONResponse:
    """Look at the n-th pair of tensors of a node, in the order in which the node lists them, from 0.

    `down` and `across` choose the dimensions of the map, `at` the index in every dimension (2,0,17) at which
    the others are held and around which values are given, `heads` into how many heads the last dimension is
    cut. `parts` chooses what is given: summary (hints, worst elements), charts (histograms, profiles), map,
    values. Where there is nothing to see, `reason` says why.
    """
    from firstdrift_server.node.closeup import asked_from, closeup_view
    from firstdrift_server.questions.closeup import PARTS

    wanted = {part.strip() for part in parts.split(",")}
    if not wanted <= set(PARTS):
        raise SettingsError(
            Message.of("server.no_such_parts", parts=parts[:60]),
            hint=Message.of("server.choose_of", names=tuple(PARTS)),
        )
    asked = asked_from(number, down, across, ",".join(at), heads)
    return StrictJSONResponse(closeup_view(context, (comparison, position, row), asked, wanted))
