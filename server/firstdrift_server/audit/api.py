"""/api/v1/audit: who changed what, for programs."""

from typing import Annotated

from fastapi import Query

from firstdrift.catalogue.people.audit import Sought, entries
from firstdrift.exports.audit import entry_object
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("/audit", "audit")

Number = Annotated[int | None, Query(ge=1, le=10**9)]


@router.get("")
def list_entries(
    context: Shared,
    who: str = "",
    act: str = "",
    comparison: Number = None,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> StrictJSONResponse:
    """List who changed what, the newest first; `before` goes on where `next_before` says.

    `who` is `owner`, `open` (anybody, where no token is asked for), `stranger`, `terminal`, `member:NAME` or
    `link:NUMBER`.
    """
    found = context.read(entries, Sought(who, act, comparison, before), limit + 1)
    shown = found[:limit]
    more = shown[-1].id if len(found) > limit else None
    return StrictJSONResponse({"entries": list(map(entry_object, shown)), "next_before": more})
