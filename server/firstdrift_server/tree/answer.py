"""The rows of a tree as HTML, for a page that is open."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request
from msgspec.structs import asdict
from starlette.responses import Response

from firstdrift_frontend.rendering import render
from firstdrift_server.reader_language import language_of
from firstdrift_server.strict_json import StrictJSONResponse

if TYPE_CHECKING:
    from firstdrift_server.tree.view import TreePieces


def rows_answer(request: Request, found: "TreePieces", **cells: str) -> Response:
    """Give pieces of a tree, of one dump or of two, with their rows as HTML."""
    around = {"address": found.address, "query": found.query, "columns": found.columns} | cells

    def html(rows: Sequence[Mapping[str, Any]]) -> str:
        return render("tree_rows.html", language_of(request), rows=rows, **around)

    return StrictJSONResponse(asdict(found) | {"pieces": [html(rows) for rows in found.pieces]})
