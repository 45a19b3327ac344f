"""A comparison as a file: tables that are sent as they are read, and reports for people."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from fastapi import Request
from sqlalchemy.orm import Session
from starlette.responses import Response, StreamingResponse

from firstdrift.catalogue.comparisons import get_comparison, slice_pairs_of
from firstdrift.errors import SettingsError
from firstdrift_server.answers import language_of
from firstdrift_server.context import Context
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.views.comparison import comparison_data
from firstdrift_server.views.notes import noted_nodes

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


class Columns(StrEnum):
    """In whose columns tables are written."""

    FIRSTDRIFT = "firstdrift"
    MSIT = "msit"
    MSPROBE = "msprobe"


XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def exported(
    request: Request, context: Context, comparison: int, written: Format, columns: Columns
) -> Response:
    """Answer with a comparison as a file.

    Raises:
        NotInCatalogueError: there is no such comparison.
        SettingsError: there is nothing of it yet, or for mapping files not all of it.
    """
    with context.reading() as session:
        get_comparison(session, comparison)
        if not slice_pairs_of(session, comparison):
            raise SettingsError("nothing has been compared yet", hint="Try again when a slice is done")
    if written in _TABLES:
        return _table(context, comparison, written, columns)
    with context.reading() as session:
        response = _WHOLE[written](request, session, comparison)
    ending = f"{written.value.replace('_', '-')}.yaml" if "mapping" in written else written.value
    _named(response, f"comparison-{comparison}{'-' if 'mapping' in written else '.'}{ending}")
    return response


_TABLES = (Format.CSV, Format.XLSX)


def _table(context: Context, comparison: int, written: Format, columns: Columns) -> Response:
    """Send a table while it is read: as many pairs as there are take no more memory than some."""
    from firstdrift.catalogue.lines import richest_kind, stored_lines
    from firstdrift.exports.peers import layout_of
    from firstdrift.exports.spreadsheets import csv_text, xlsx_bytes

    with context.reading() as session:
        layout: Layout = layout_of(columns.value, richest_kind(session, comparison))

    def sent() -> Iterator[bytes]:
        with context.reading() as session:
            lines = stored_lines(session, comparison)
            if written is Format.XLSX:
                yield from xlsx_bytes(layout, lines)
            else:
                yield from (piece.encode("utf-8", "backslashreplace") for piece in csv_text(layout, lines))

    kind = XLSX_TYPE if written is Format.XLSX else "text/csv; charset=utf-8"
    response = StreamingResponse(sent(), media_type=kind)
    whose = "" if columns is Columns.FIRSTDRIFT else f"-{columns.value}"
    _named(response, f"comparison-{comparison}{whose}.{written.value}")
    return response


def _named(response: Response, name: str) -> None:
    response.headers["content-disposition"] = f'attachment; filename="{name}"'


def _html(request: Request, session: Session, comparison: int) -> Response:
    from firstdrift.exports.stored_summary import stored_summary
    from firstdrift_frontend.report import report_html

    page = report_html(stored_summary(session, comparison), language_of(request))
    return Response(page.encode(), media_type="text/html; charset=utf-8")


def _markdown(request: Request, session: Session, comparison: int) -> Response:
    from firstdrift.exports.stored_summary import stored_summary
    from firstdrift_frontend.report import report_markdown

    text = report_markdown(stored_summary(session, comparison), language_of(request))
    return Response(text.encode(), media_type="text/markdown; charset=utf-8")


def _json(request: Request, session: Session, comparison: int) -> Response:
    del request
    data = comparison_data(session, comparison) | {"node_notes": noted_nodes(session, comparison)}
    return StrictJSONResponse(data)


def _layer_mapping(request: Request, session: Session, comparison: int) -> Response:
    del request
    from firstdrift.catalogue.editing import plans_of
    from firstdrift.exports.mapping_yaml import layer_mapping

    return _yaml(layer_mapping(plans_of(session, comparison)))


def _data_mapping(request: Request, session: Session, comparison: int) -> Response:
    del request
    from firstdrift.catalogue.editing import plans_of
    from firstdrift.exports.mapping_yaml import data_mapping

    return _yaml(data_mapping(plans_of(session, comparison)))


def _yaml(text: str) -> Response:
    return Response(text.encode("utf-8", "backslashreplace"), media_type="application/yaml")


_WHOLE: dict[Format, Callable[[Request, Session, int], Response]] = {
    Format.HTML: _html,
    Format.MARKDOWN: _markdown,
    Format.JSON: _json,
    Format.LAYER_MAPPING: _layer_mapping,
    Format.DATA_MAPPING: _data_mapping,
}
