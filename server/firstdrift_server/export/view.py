"""A comparison as a file: tables that are sent as they are read, and reports for people."""

from collections.abc import Generator
from contextlib import suppress
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from anyio import CancelScope, fail_after, to_thread
from fastapi import Request
from msgspec.structs import replace
from sqlalchemy.orm import Session
from starlette.responses import Response, StreamingResponse
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.errors import SettingsError
from firstdrift.paths import encodable
from firstdrift.wording.message import Message
from firstdrift_server.comparison.data import comparison_data
from firstdrift_server.context import Context
from firstdrift_server.notes.view import noted_nodes
from firstdrift_server.reader_language import language_of
from firstdrift_server.strict_json import StrictJSONResponse

if TYPE_CHECKING:
    from firstdrift.exports.spreadsheets import Layout


class Format(StrEnum):
    """As what a comparison is written."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"
    XLSX = "xlsx"
    LAYER_MAPPING = "layer_mapping"
    DATA_MAPPING = "data_mapping"
    VIEW_MAPPING = "view_mapping"


class Columns(StrEnum):
    """In whose columns tables are written."""

    FIRSTDRIFT = "firstdrift"
    MSIT = "msit"
    MSPROBE = "msprobe"


STALLED_SECONDS = 60.0
"""Whoever takes nothing of a table for so long is given no more of it."""

XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def exported(
    request: Request, context: Context, comparison: int, written: Format, columns: Columns
) -> Response:
    """Answer with a comparison as a file."""
    with context.reading() as session:
        get_comparison(session, comparison)
        if not slice_pairs_of(session, comparison):
            raise SettingsError(
                Message.of("server.nothing_compared"), hint=Message.of("server.try_when_a_slice_is_done")
            )
    if written in _TABLES:
        return _table(context, comparison, written, columns)
    with context.reading() as session:
        response = _whole(request, session, comparison, written)
    ending = f"{written.value.replace('_', '-')}.yaml" if "mapping" in written else written.value
    _named(response, f"comparison-{comparison}{'-' if 'mapping' in written else '.'}{ending}")
    return response


_TABLES = (Format.CSV, Format.XLSX)


def _table(context: Context, comparison: int, written: Format, columns: Columns) -> Response:
    """Send a table while it is read: as many pairs as there are take no more memory than some."""
    from firstdrift.catalogue.comparisons.export_rows import richest_kind, stored_lines
    from firstdrift.exports.spreadsheets import csv_text, xlsx_bytes
    from firstdrift.exports.tool_tables import layout_of

    def pieces() -> Generator[bytes]:
        with context.reading() as session:
            layout: Layout = layout_of(columns.value, richest_kind(session, comparison))
            lines = stored_lines(session, comparison)
            if written is Format.XLSX:
                yield from xlsx_bytes(layout, lines)
            else:
                yield from (piece.encode() for piece in csv_text(layout, lines))

    kind = XLSX_TYPE if written is Format.XLSX else "text/csv; charset=utf-8"
    response = _Table(pieces(), kind)
    whose = "" if columns is Columns.FIRSTDRIFT else f"-{columns.value}"
    _named(response, f"comparison-{comparison}{whose}.{written.value}")
    return response


class _Table(StreamingResponse):
    """A table that is sent while it is read.

    While it is, the database keeps a view of its own for it: whoever goes away, or takes nothing any more,
    leaves none behind.
    """

    def __init__(self, pieces: Generator[bytes], media_type: str) -> None:
        # What is wrong with the database is told here, where it still can be.
        super().__init__(chain([next(pieces)], pieces), media_type=media_type)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Event) -> None:
            with fail_after(STALLED_SECONDS):
                await send(message)

        try:
            with suppress(TimeoutError):
                await super().__call__(scope, receive, send_in_time)
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(self._pieces.close)


def _named(response: Response, name: str) -> None:
    response.headers["content-disposition"] = f'attachment; filename="{name}"'


def _whole(request: Request, session: Session, comparison: int, written: Format) -> Response:
    """Write what is no table: it is made before anything is sent."""
    if written is Format.JSON:
        notes = noted_nodes(session, comparison)
        return StrictJSONResponse(replace(comparison_data(session, comparison), node_notes=notes))
    if written in (Format.HTML, Format.MARKDOWN):
        from firstdrift.exports.stored_summary import stored_summary
        from firstdrift_frontend.report import report_html, report_markdown

        write, kind = (report_html, "html") if written is Format.HTML else (report_markdown, "markdown")
        report = write(stored_summary(session, comparison), language_of(request))
        return Response(report.encode(), media_type=f"text/{kind}; charset=utf-8")
    from firstdrift.catalogue.matches.match_preview import plans_of
    from firstdrift.exports.mapping_yaml import data_mapping, layer_mapping
    from firstdrift.exports.view_mapping import view_mapping

    mappings = {Format.LAYER_MAPPING: layer_mapping, Format.DATA_MAPPING: data_mapping}
    mapping = mappings.get(written, view_mapping)
    return Response(encodable(mapping(plans_of(session, comparison))).encode(), media_type="application/yaml")
