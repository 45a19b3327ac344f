"""A table as an XLSX workbook."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, TypeAlias

from firstdrift.comparison.table import Cell
from firstdrift.paths import encodable

ROWS = 1_048_000
"""Rows of a sheet, below the 1,048,576 that spreadsheets hold; the next row begins another sheet."""

LONGEST_TEXT = 32_767
"""Characters in one cell, as UTF-16 counts them."""

BEAT = 1000
"""So many rows are written before whoever waits for the workbook is asked whether they still do."""

_CHUNK = 1 << 16
_OPTIONS = {"strings_to_formulas": False, "strings_to_urls": False, "constant_memory": True}


Rows: TypeAlias = Iterable[tuple[str, Sequence[Cell]]]
"""Rows, each with the name of the sheet that it is in."""


def workbook(columns: Sequence[str], rows: Rows, sheets: Sequence[str]) -> Iterator[bytes]:
    """Yield a workbook, piece by piece, once its rows have been written to a temporary file.

    All of the sheets named are there, if without rows; what does not fit in one goes on in another with a
    number in its name: "api", "api 2".

    Until then the pieces are empty: whoever wants no more of it can stop at each.

    Numbers are numbers (NaN and infinities come as text), everything else is text: no cell is a formula or a
    link. A text too long for a cell is cut and says so.

    Raises:
        OSError: there is no space for it.
    """
    from xlsxwriter.exceptions import FileCreateError

    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, TemporaryFile() as file:
        try:
            yield from _written(file, Path(folder), columns, rows, sheets)
        except FileCreateError as error:
            raise OSError(*error.args[0].args) from error
        file.seek(0)
        while piece := file.read(_CHUNK):
            yield piece


def _written(
    file: IO[bytes], folder: Path, columns: Sequence[str], rows: Rows, sheets: Sequence[str]
) -> Iterator[bytes]:
    """Write a workbook, whose rows lie in a folder until it is whole; yield nothing, now and then."""
    import xlsxwriter

    book = xlsxwriter.Workbook(file, _OPTIONS | {"tmpdir": str(folder)})
    try:
        yield from _filled(_Sheets(book, columns, sheets), rows)
        book.close()
    finally:
        for sheet in book.worksheets():
            sheet.row_data_fh.close()


class _Sheets:
    """The sheets of a workbook, each with as many rows as it has so far."""

    def __init__(self, book: Any, columns: Sequence[str], names: Sequence[str]) -> None:  # noqa: ANN401
        self._book, self._columns = book, columns
        self._bold = book.add_format({"bold": True})
        self._open: dict[str, tuple[Any, int]] = {}
        self._parts: Counter[str] = Counter()
        for name in names:
            self._begin(name)

    def _begin(self, name: str) -> None:
        self._parts[name] += 1
        part = self._parts[name]
        sheet = self._book.add_worksheet(name if part == 1 else self._numbered(name, part))
        sheet.freeze_panes(1, 0)
        sheet.write_row(0, 0, self._columns, self._bold)
        self._open[name] = (sheet, 1)

    @staticmethod
    def _numbered(name: str, part: int) -> str:
        return f"{name.removesuffix('1')}{part}" if name.endswith("1") else f"{name} {part}"

    def add(self, name: str, row: Sequence[Cell]) -> None:
        """Write a row into the sheet of a name, or into the one that goes on with it."""
        if name not in self._open or self._open[name][1] > ROWS:
            self._begin(name)
        sheet, line = self._open[name]
        _write_row(sheet, line, row)
        self._open[name] = (sheet, line + 1)


def _filled(sheets: _Sheets, rows: Rows) -> Iterator[bytes]:
    for count, (name, row) in enumerate(rows, start=2):
        sheets.add(name, row)
        if count % BEAT == 0:
            yield b""


def _write_row(sheet: Any, line: int, row: Sequence[Cell]) -> None:  # noqa: ANN401
    for place, cell in enumerate(row):
        if isinstance(cell, str):
            sheet.write_string(line, place, _fitting(cell))
        elif cell is not None:
            sheet.write_number(line, place, cell)


def _fitting(text: str) -> str:
    text = encodable(text)
    if len(text) * 2 <= LONGEST_TEXT or _utf16_length(text) <= LONGEST_TEXT:
        return text
    mark = f"\N{HORIZONTAL ELLIPSIS} (cut; {len(text)} characters)"
    room = LONGEST_TEXT - len(mark)
    whole = text.encode("utf-16-le")[: 2 * room]
    return whole.decode("utf-16-le", "ignore") + mark


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
