"""CSV and XLSX of a report, safe to open: no cell is ever taken for a formula."""

import csv
import math
from pathlib import Path
from typing import Any

from firstdrift.comparison.report import Report
from firstdrift.comparison.table import Cell, columns_of, pair_rows

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_XLSX_ROWS = 1_048_000
_XLSX_TEXT = 32_767  # characters in one cell, as UTF-16 counts them


def write_csv(report: Report, file: Path) -> None:
    """Write one line for each pair. Text that a spreadsheet would run gets an apostrophe in front.

    Raises:
        OSError: it cannot be written.
    """
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns_of(report))
        writer.writerows([_csv_cell(value) for value in row] for row in pair_rows(report))


def _csv_cell(value: Cell) -> Cell:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    if isinstance(value, float) and not math.isfinite(value):
        return _spelled(value)
    return value


def _spelled(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def write_xlsx(report: Report, file: Path) -> None:
    """Write one row for each pair; a further sheet each million rows.

    A text longer than a cell can hold is cut, and its end says so: "... (cut; 40000 characters)".

    Raises:
        OSError: it cannot be written.
    """
    from xlsxwriter.exceptions import FileCreateError

    file.open("ab").close()  # what cannot be written says so before the work
    try:
        _write_workbook(report, file)
    except FileCreateError as error:
        raise OSError(*error.args[0].args) from error


def _write_workbook(report: Report, file: Path) -> None:
    import xlsxwriter

    options = {"strings_to_formulas": False, "strings_to_urls": False, "constant_memory": True}
    with xlsxwriter.Workbook(str(file), options) as book:
        bold = book.add_format({"bold": True})
        sheet, line = None, 0
        for row in pair_rows(report):
            if sheet is None or line > _XLSX_ROWS:
                sheet, line = book.add_worksheet(), 1
                sheet.freeze_panes(1, 0)
                sheet.write_row(0, 0, columns_of(report), bold)
            for place, value in enumerate(row):
                _write_cell(sheet, line, place, value)
            line += 1
        if sheet is None:
            book.add_worksheet().write_row(0, 0, columns_of(report), bold)


def _write_cell(sheet: Any, line: int, place: int, value: Cell) -> None:  # noqa: ANN401
    if isinstance(value, str):
        sheet.write_string(line, place, _fitting(value))
    elif isinstance(value, float) and not math.isfinite(value):
        sheet.write_string(line, place, _spelled(value))
    elif value is not None:
        sheet.write_number(line, place, value)


def _fitting(text: str) -> str:
    if len(text) * 2 <= _XLSX_TEXT or _utf16_length(text) <= _XLSX_TEXT:
        return text
    mark = f"\N{HORIZONTAL ELLIPSIS} (cut; {len(text)} characters)"
    room = _XLSX_TEXT - len(mark)
    whole = text.encode("utf-16-le", "surrogatepass")[: 2 * room]
    return whole.decode("utf-16-le", "ignore") + mark


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
