"""Pairs as CSV and XLSX, safe to open: no cell is ever taken for a formula."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.comparison.report import Report, SliceResult
from firstdrift.comparison.table import COLUMNS, Cell, Line, cells_of, columns_of, lines_of, lines_of_slice
from firstdrift.comparison.table_columns import Columns, columns_of_slice
from firstdrift.exports.cells import Spelling, batches, spelled, turned
from firstdrift.exports.workbook import workbook, workbook_of_columns
from firstdrift.paths import encodable
from firstdrift.processes.copies import copies_allowed, share_in_rounds
from firstdrift.wording.text import text_of

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_TO_QUOTE: Final = re.compile('[,"\r\n]')
_BATCH = 512
"""Rows that are written together."""


class Layout(Struct, frozen=True):
    """A table: its columns, and how a line is laid out in them.

    Attributes:
        sheets: of a workbook.
        sheet_of: in which of them a line stands.
        counts: whether it numbers the lines, which have to be laid out in their order then.
    """

    columns: tuple[str, ...]
    cells: Callable[[Line], tuple[Cell, ...]]
    sheets: tuple[str, ...] = ("Sheet1",)
    sheet_of: Callable[[Line], str] = lambda _line: "Sheet1"
    counts: bool = False


OWN_LAYOUT = Layout(COLUMNS, cells_of)


def csv_text(layout: Layout, lines: Iterable[Line]) -> Iterator[str]:
    """Yield a table as CSV, piece by piece. Text that a spreadsheet would run gets an apostrophe in front."""
    return csv_of_rows(layout.columns, map(layout.cells, lines))


def csv_of_columns(names: Sequence[str], batches: Iterable[Columns]) -> Iterator[str]:
    """Yield a table that comes in columns, some rows at a time, as CSV, likewise."""
    return map(_csv_lines, chain([[[name] for name in names]], batches))


def csv_of_rows(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield rows as CSV, likewise."""
    return csv_of_columns(columns, map(turned, batches(rows, _BATCH)))


def _csv_lines(columns: Columns) -> str:
    lines = map(",".join, spelled(columns, repeat(_CSV)))
    return encodable("\r\n".join(lines) + "\r\n")


def _csv_of_report(report: Report, layout: Layout) -> Iterator[str]:
    """Yield a report as CSV, whose slices are laid out side by side if that is allowed."""
    if layout.counts or not copies_allowed():
        return csv_of_columns(layout.columns, _columns_of(report, layout))

    def of_slice(at: int) -> str:
        return "".join(map(_csv_lines, _columns_of_slice(report.slices[at], layout)))

    head = csv_of_columns(layout.columns, ())
    return chain(head, share_in_rounds(of_slice, str, len(report.slices)))


def _columns_of(report: Report, layout: Layout) -> Iterator[Columns]:
    return chain.from_iterable(_columns_of_slice(one, layout) for one in report.slices)


def _columns_of_slice(result: SliceResult, layout: Layout) -> Iterator[Columns]:
    if layout is OWN_LAYOUT:
        return columns_of_slice(result)
    return map(turned, batches(map(layout.cells, lines_of_slice(result)), _BATCH))


def xlsx_bytes(layout: Layout, lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield a table as an XLSX workbook, piece by piece; a further sheet each million rows.

    A text longer than a cell can hold is cut, and its end says so: "... (cut; 40000 characters)".
    """
    rows = ((layout.sheet_of(line), layout.cells(line)) for line in lines)
    return workbook(layout.columns, rows, layout.sheets)


def xlsx_of_columns(
    names: Sequence[str], batches: Iterable[Columns], about: Sequence[tuple[str, str]] = ()
) -> Iterator[bytes]:
    """Yield a table that comes in columns, some rows at a time, as an XLSX workbook, likewise.

    Its last sheet sums it up: what it is `about`, titles and texts, and how many rows have which verdict.
    """
    sheet, *_ = OWN_LAYOUT.sheets
    return workbook_of_columns(names, ((sheet, columns) for columns in batches), OWN_LAYOUT.sheets, about)


def about_pairs(golden: str, target: str, rules: str, finding: str) -> list[tuple[str, str]]:
    """Say for the last sheet of a workbook what was compared, and what was found."""
    titles = ("golden", "target", "rules", "finding")
    return list(zip(titles, (golden, target, rules, finding), strict=True))


def own_layout(report: Report) -> Layout:
    """Return our own columns, with those of the user's algorithms."""
    columns = columns_of(report)
    return OWN_LAYOUT if columns == COLUMNS else Layout(columns, lambda line: cells_of(line, len(columns)))


def write_csv(report: Report, file: Path, layout: Layout | None = None) -> None:
    """Write one line for each pair of a report as CSV, in our own columns or laid out otherwise.

    Raises:
        OSError: it cannot be written.
    """
    with file.open("w", newline="", encoding="utf-8") as stream:
        stream.writelines(_csv_of_report(report, layout or own_layout(report)))


def write_csv_of_rows(columns: Sequence[str], rows: Iterable[Sequence[Cell]], file: Path) -> None:
    """Write rows as CSV.

    Raises:
        OSError: it cannot be written.
    """
    with file.open("w", newline="", encoding="utf-8") as stream:
        stream.writelines(csv_of_rows(columns, rows))


def write_xlsx(report: Report, file: Path, layout: Layout | None = None) -> None:
    """Write one row for each pair of a report as XLSX, in our own columns or laid out otherwise.

    Raises:
        OSError: it cannot be written.
    """
    chosen = layout or own_layout(report)
    if chosen is OWN_LAYOUT:
        sides = report.golden.path, report.target.path
        about = about_pairs(*sides, report.options.rules, text_of(report.findings.summary))
        pieces = xlsx_of_columns(chosen.columns, _columns_of(report, chosen), about)
    else:
        pieces = xlsx_bytes(chosen, lines_of(report))
    with file.open("wb") as stream:
        stream.writelines(pieces)


@lru_cache(maxsize=1 << 15)
def _csv_cell(text: str) -> str:
    safe = f"'{text}" if text.startswith(_FORMULA_STARTS) else text
    return '"' + safe.replace('"', '""') + '"' if _TO_QUOTE.search(safe) else safe


_CSV: Final = Spelling(_csv_cell, str)
