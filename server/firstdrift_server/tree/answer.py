"""The rows of a tree as HTML, for a page that is open."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from firstdrift_frontend.rendering import render
from firstdrift_server.answers import language_of
from firstdrift_server.strict_json import StrictJSONResponse


def rows_answer(request: Request, found: Mapping[str, Any], **cells: str) -> Response:
    """Give pieces of a tree, of one dump or of two, with their rows as HTML."""
    around = {name: found[name] for name in ("address", "query", "columns")} | cells

    def html(rows: Sequence[Mapping[str, Any]]) -> str:
        return render("tree_rows.html", language_of(request), rows=rows, **around)

    return StrictJSONResponse({**found, "pieces": [html(rows) for rows in found["pieces"]]})
