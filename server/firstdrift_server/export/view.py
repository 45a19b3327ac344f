"""A comparison as a file: tables that are sent as they are written, and reports for people."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress

from anyio import CancelScope, fail_after, to_thread, wait_readable
from fastapi import Request
from msgspec.structs import replace
from sqlalchemy.orm import Session
from starlette.responses import Response, StreamingResponse
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_labels_of
from firstdrift.errors import SettingsError
from firstdrift.processes.writers import Written
from firstdrift.wording.message import Message
from firstdrift_server.comparison.data import comparison_data
from firstdrift_server.context import Context
from firstdrift_server.export.wanted import Columns, Format, Wanted
from firstdrift_server.notes.view import noted_nodes
from firstdrift_server.reader_language import language_of
from firstdrift_server.strict_json import StrictJSONResponse

STALLED_SECONDS = 60.0
"""Whoever takes nothing of a table for so long is given no more of it."""

_TYPES: Mapping[Format, str] = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.XLSX: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    Format.HTML: "text/html; charset=utf-8",
    Format.MARKDOWN: "text/markdown; charset=utf-8",
}
_MAPPING_TYPE = "application/yaml"

MEDIA_TYPES = (*_TYPES.values(), _MAPPING_TYPE, "application/json")
"""What may be answered."""


def exported(
    request: Request, context: Context, comparison: int, written: Format, columns: Columns
) -> Response:
    """Answer with a comparison as a file."""
    context.about("file", written.value)
    with context.reading() as session:
        get_comparison(session, comparison)
        if not slice_labels_of(session, comparison):
            raise SettingsError(
                Message.of("server.nothing_compared"), hint=Message.of("server.try_when_a_slice_is_done")
            )
        if written is Format.JSON:
            return _named(_data(session, comparison), f"comparison-{comparison}.json")
    if written in (Format.CSV, Format.XLSX):
        return _table(request, context, comparison, written, columns)
    wanted = Wanted(comparison, written, language=language_of(request))
    with context.write_out(wanted) as found:
        response = Response(found.whole(), media_type=_TYPES.get(written, _MAPPING_TYPE))
    ending = f"-{written.value.replace('_', '-')}.yaml" if "mapping" in written else f".{written.value}"
    return _named(response, f"comparison-{comparison}{ending}")


def _data(session: Session, comparison: int) -> Response:
    notes = noted_nodes(session, comparison)
    return StrictJSONResponse(replace(comparison_data(session, comparison), node_notes=notes))


def _table(
    request: Request, context: Context, comparison: int, written: Format, columns: Columns
) -> Response:
    """Send a table while it is written: as many pairs as there are take no more memory than some."""
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    wanted = Wanted(comparison, written, columns, zipped=zipped)
    response = _Table(context.write_out(wanted), _TYPES[written])
    if zipped:
        response.headers.update({"content-encoding": "gzip", "vary": "Accept-Encoding"})
    whose = "" if columns is Columns.FIRSTDRIFT else f"-{columns.value}"
    return _named(response, f"comparison-{comparison}{whose}.{written.value}")


class _Table(StreamingResponse):
    """A table that is sent while another process writes it.

    While it does, the database keeps a view of its own for it: whoever goes away, or takes nothing any more,
    leaves neither behind.
    """

    def __init__(self, written: Written, media_type: str) -> None:
        super().__init__(_pieces(written), media_type=media_type)
        self._written = written

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Event) -> None:
            with fail_after(STALLED_SECONDS):
                await send(message)

        try:
            with suppress(TimeoutError):
                await super().__call__(scope, receive, send_in_time)
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(self._written.end)


async def _pieces(written: Written) -> AsyncGenerator[bytes]:
    while True:
        await wait_readable(written.fileno())
        piece = written.read()
        if not piece:
            return
        yield piece


def _named(response: Response, name: str) -> Response:
    response.headers["content-disposition"] = f'attachment; filename="{name}"'
    return response
