"""Cells that are written a column at a time are what they would be one by one."""

import csv
import math
from collections.abc import Sequence
from io import BytesIO, StringIO

import openpyxl
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.utils.escape import unescape

from firstdrift.comparison.table import Cell
from firstdrift.exports.spreadsheets import csv_of_rows
from firstdrift.exports.workbook import workbook

_NUMBERS = st.floats() | st.integers() | st.sampled_from([0.0, -0.0, 1, 1.0, 1e-5, 1e16, 1e-4, 5e-324])
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        "=1+1",
        'say "so"',
        "a,b",
        "two\r\nlines",
        " room ",
        "_x0041_x0042_",
        "\x00\x1f\ufffe",
        "-Infinity",
        "<&>",
    ]
)


def _tables(cells: st.SearchStrategy[Cell]) -> st.SearchStrategy[list[list[Cell]]]:
    return st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=6)


_TABLES = (
    _tables(st.none() | st.floats())
    | _tables(st.none() | st.integers())
    | _tables(st.none() | _TEXTS)
    | _tables(st.none() | _NUMBERS | _TEXTS)
)
_COLUMNS = ("first", "second", "third")


def _word(cell: Cell) -> Cell:
    if isinstance(cell, float) and not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    return cell


def _without_formula(cell: Cell) -> Cell:
    runs = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    return f"'{cell}" if runs else _word(cell)


@given(_TABLES)
def test_a_csv_file_is_as_the_standard_library_writes_it(rows: list[list[Cell]]) -> None:
    expected = StringIO()
    writer = csv.writer(expected)
    writer.writerow(_COLUMNS)
    writer.writerows([*map(_without_formula, row)] for row in rows)
    assert "".join(csv_of_rows(_COLUMNS, rows)) == expected.getvalue()


def _read(rows: Sequence[Sequence[Cell]]) -> list[tuple[Cell, ...]]:
    pieces = workbook(_COLUMNS, (("Sheet1", row) for row in rows), ("Sheet1",))
    sheet = openpyxl.load_workbook(BytesIO(b"".join(pieces)), read_only=True).active
    assert sheet.calculate_dimension() == f"A1:C{len(rows) + 1}"
    return list(sheet.iter_rows(min_row=2, values_only=True))


@given(_TABLES)
def test_a_workbook_gives_back_what_it_was_given(rows: list[list[Cell]]) -> None:
    for row, found in zip(rows, _read(rows), strict=True):
        assert [*map(_unescaped, found)] == [*map(_word, row)]


def _unescaped(cell: Cell) -> Cell:
    """Read what XML has no characters for, as spreadsheets do."""
    return unescape(cell) if isinstance(cell, str) else cell
