"""What a process of its own writes of a comparison: the server has pages to answer meanwhile."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.export_columns import stored_columns
from firstdrift.catalogue.comparisons.export_rows import richest_kind, stored_lines
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.comparison.table import COLUMNS
from firstdrift.errors import NoRoomError
from firstdrift.exports.spreadsheets import about_pairs, csv_of_columns, csv_text, xlsx_bytes, xlsx_of_columns
from firstdrift.exports.tool_tables import layout_of
from firstdrift.paths import encodable
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_server.export.wanted import Columns, Format, Wanted

Item = TypeVar("Item")


def pieces_of(database: str, wanted: Wanted) -> Iterator[bytes]:
    """Yield a table or a report of a comparison, piece by piece; `database` is its address."""
    engine = open_engine(database, checkpoints=False)
    try:
        with reading(engine) as session:
            pieces = _pieces(session, wanted)
            yield from _zipped(pieces, _LEVELS.get(wanted.written, 0)) if wanted.zipped else pieces
    except OSError as error:
        why = Message.of("server.file_not_written", why=error.strerror or str(error))
        raise NoRoomError(why, hint=Message.of("comparison.name_other_tmpdir")) from error


_LEVELS = {Format.CSV: 1}
"""How hard gzip tries, by format: a workbook is packed already."""


def _pieces(session: Session, wanted: Wanted) -> Iterator[bytes]:
    match wanted.written:
        case Format.CSV | Format.XLSX:
            return _table(session, wanted)
        case Format.HTML | Format.MARKDOWN:
            return iter((_report(session, wanted).encode(),))
    return iter((encodable(_mapping(session, wanted)).encode(),))


def _table(session: Session, wanted: Wanted) -> Iterator[bytes]:
    if wanted.columns is Columns.FIRSTDRIFT:
        columns = _begun(stored_columns(session, wanted.comparison))
        if wanted.written is Format.XLSX:
            return xlsx_of_columns(COLUMNS, columns, _about(session, wanted))
        return (piece.encode() for piece in csv_of_columns(COLUMNS, columns))
    layout = layout_of(wanted.columns, richest_kind(session, wanted.comparison))
    lines = _begun(stored_lines(session, wanted.comparison))
    if wanted.written is Format.XLSX:
        return xlsx_bytes(layout, lines)
    return (piece.encode() for piece in csv_text(layout, lines))


def _about(session: Session, wanted: Wanted) -> list[tuple[str, str]]:
    known = get_comparison(session, wanted.comparison)
    finding = text_of(known.findings.summary, wanted.language) if known.findings else ""
    return about_pairs(str(known.golden_path), str(known.target_path), known.options.rules, finding)


def _begun(items: Iterator[Item]) -> Iterator[Item]:
    """Read the first of them: what is wrong with the database is told while it still can be."""
    first = list(islice(items, 1))
    return chain(first, items)


def _report(session: Session, wanted: Wanted) -> str:
    from firstdrift.exports.stored_summary import stored_summary
    from firstdrift_frontend.report import report_html, report_markdown

    write = report_html if wanted.written is Format.HTML else report_markdown
    return write(stored_summary(session, wanted.comparison), wanted.language)


def _mapping(session: Session, wanted: Wanted) -> str:
    from firstdrift.catalogue.matches.match_preview import plans_of
    from firstdrift.exports.mapping_yaml import data_mapping, layer_mapping
    from firstdrift.exports.view_mapping import view_mapping

    mappings = {Format.LAYER_MAPPING: layer_mapping, Format.DATA_MAPPING: data_mapping}
    return mappings.get(wanted.written, view_mapping)(plans_of(session, wanted.comparison))


def _zipped(pieces: Iterable[bytes], level: int) -> Iterator[bytes]:
    packer = zlib.compressobj(level, wbits=zlib.MAX_WBITS | _GZIP)
    yield from map(packer.compress, pieces)
    yield packer.flush()


_GZIP = 16
"""Added to the number of bits, asks zlib for the form of gzip."""
