"""A table as an XLSX workbook: xlsxwriter makes all of it but the rows, which are written here.

    xlsxwriter ─▶ a workbook of headings ─┐
    rows ─▶ a temporary file a sheet ─────┴─▶ the workbook, piece by piece

The layout of a row is that of ECMA-376, part 1, 18.3.1.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from html import escape
from io import BytesIO, RawIOBase
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile

from firstdrift.comparison.table import Cell
from firstdrift.comparison.table_columns import Columns
from firstdrift.exports.cells import Spelling, batches, spelled, turned
from firstdrift.groups import gathered
from firstdrift.metrics.measurement import RELATIVE_ERRORS
from firstdrift.paths import encodable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ROWS = 1_048_000
"""Rows of a sheet, below the 1,048,576 that spreadsheets hold; the next row begins another sheet."""

LONGEST_TEXT = 32_767
"""Characters in one cell, as UTF-16 counts them."""

_FIRST_ROW: Final = 2
"""Below the headings."""

BEAT = 1000
"""So many rows are written before whoever waits for the workbook is asked whether they still do."""

_CHUNK = 1 << 16
_OPTIONS: Final = {"strings_to_formulas": False, "strings_to_urls": False, "in_memory": True}

SUMMARY: Final = "Summary"
"""Name of the sheet that sums a workbook up; it comes last, so that the first is the table."""

_VERDICTS: Final = frozenset({"verdict", "Result"})
_FORMATS: Final[dict[str, dict[str, str]]] = {
    "error": {"font_color": "#9C2A06", "bg_color": "#FDE3D9"},
    "warning": {"font_color": "#7A5000", "bg_color": "#FCF0D0"},
    "incomparable": {"font_color": "#5A418A", "bg_color": "#ECE6F7"},
    "unmatched": {"font_color": "#555D69", "bg_color": "#ECEEF1"},
    "pass": {"font_color": "#145A91"},
}
_RELATIVE: Final = RELATIVE_ERRORS | {"error"}
_PERCENT: Final = "[=0]0%;[<0.00001]0.00E+00%;0.000%"
_PERCENT_STYLE: Final = 1
"""The number that xlsxwriter gives the format that it meets first, which is that of columns."""

_ORDER: Final = {name: place for place, name in enumerate(_FORMATS)}
_WIDE: Final = {"node": 44, "reasons": 60, "module": 34, "name": 44, "message": 50, "path": 44}
"""Columns whose names hold one of these are so wide; others are as wide as their names."""

_LINE: Final = "\0"
"""Stands for the number of the row until that is known; no text of a cell can hold it."""

_UNLIKE_XML: Final = re.compile("[\0-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9a-fA-F]{4}_)")
_DIMENSION: Final = re.compile(rb"<dimension [^>]*/>")
_END_OF_ROWS: Final = b"</sheetData>"

Rows: TypeAlias = Iterable[tuple[str, Sequence[Cell]]]
"""Rows, each with the name of the sheet that it is in."""


def workbook(columns: Sequence[str], rows: Rows, sheets: Sequence[str]) -> Iterator[bytes]:
    """Yield a workbook, piece by piece, once its rows have been written to temporary files.

    All of the sheets named are there, if without rows; what does not fit in one goes on in another with a
    number in its name: "api", "api 2".

    Until then the pieces are empty: whoever wants no more of it can stop at each.

    Numbers are numbers (NaN and infinities come as text), everything else is text: no cell is a formula or a
    link. A text too long for a cell is cut and says so.

    Raises:
        OSError: there is no space for it.
    """
    parts = chain.from_iterable(gathered(batch).items() for batch in batches(rows, BEAT))
    return workbook_of_columns(columns, ((name, turned(of_sheet)) for name, of_sheet in parts), sheets)


def workbook_of_columns(
    names: Sequence[str],
    parts: Iterable[tuple[str, Columns]],
    sheets: Sequence[str],
    about: Sequence[tuple[str, str]] | None = None,
) -> Iterator[bytes]:
    """Yield a workbook, likewise, of rows that come in columns: some at a time, with the name of their sheet.

    With `about`, titles and texts, a last sheet has these, and how many rows have which verdict.

    Raises:
        OSError: there is no space for it.
    """
    with ExitStack() as files:
        filled = _Sheets(files, sheets)
        spellings = [_spelling(place, name) for place, name in enumerate(names)]
        counts: Counter[Cell] = Counter()
        place = _place_of_verdicts(names)
        for sheet, columns in parts:
            filled.add(sheet, list(map("".join, spelled(columns, spellings))))
            if place is not None and about is not None:
                counts.update(columns[place])
            yield b""
        summary = None if about is None else [*about, *_counted(counts)]
        yield from _zipped(names, filled.all, summary)


def _place_of_verdicts(names: Sequence[str]) -> int | None:
    """Say which column has the verdicts; None if none has."""
    return next((place for place, name in enumerate(names) if name in _VERDICTS), None)


def _counted(counts: Counter[Cell]) -> list[tuple[str, Cell]]:
    """List how many rows have which verdict, the worst first."""
    known = sorted(counts.items(), key=lambda each: (_ORDER.get(str(each[0]), len(_ORDER)), str(each[0])))
    return [(str(verdict), number) for verdict, number in known]


class _Sheet:
    """A sheet, and its rows in a file."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name, self.file, self.count = name, file, 0

    def add(self, rows: Sequence[str]) -> None:
        """Write rows below those that it has."""
        numbered = enumerate(rows, self.count + _FIRST_ROW)
        lines = (f'<row r="{_LINE}">{row}</row>'.replace(_LINE, str(number)) for number, row in numbered)
        self.file.write("".join(lines).encode())
        self.count += len(rows)


class _Sheets:
    """The sheets of a workbook, each with as many rows as it has so far."""

    def __init__(self, files: ExitStack, names: Iterable[str]) -> None:
        self._files = files
        self.all: list[_Sheet] = []
        self._open = {name: self._begun(name) for name in names}
        self._parts = Counter(self._open.keys())

    def _begun(self, name: str) -> _Sheet:
        sheet = _Sheet(name, self._files.enter_context(TemporaryFile()))  # noqa: SIM115 (with the rest)
        self.all.append(sheet)
        return sheet

    def add(self, name: str, rows: Sequence[str]) -> None:
        """Write rows into the sheet of a name, or into those that go on with it."""
        room = ROWS - self._open[name].count
        self._open[name].add(rows[:room])
        if rest := rows[room:]:
            self._parts[name] += 1
            self._open[name] = self._begun(_numbered(name, self._parts[name]))
            self.add(name, rest)


def _numbered(name: str, part: int) -> str:
    return f"{name.removesuffix('1')}{part}" if name.endswith("1") else f"{name} {part}"


def _zipped(
    columns: Sequence[str], sheets: Sequence[_Sheet], summary: Sequence[tuple[str, Cell]] | None
) -> Iterator[bytes]:
    """Yield the workbook of headings, with the rows of each sheet in their places."""
    headings = _headings(columns, sheets, summary)
    sheet_of = {f"xl/worksheets/sheet{number}.xml": sheet for number, sheet in enumerate(sheets, 1)}
    written = _Written()
    with ZipFile(written, "w", ZIP_DEFLATED) as book:
        for entry in headings.infolist():
            whole, sheet = headings.read(entry), sheet_of.get(entry.filename)
            entry.file_size += sheet.file.tell() if sheet else 0  # tells whether 32 bits do
            with book.open(entry, "w") as part:
                for piece in _with_rows(whole, sheet, len(columns)) if sheet else [whole]:
                    part.write(piece)
                    yield written.taken()
    yield written.taken()


def _headings(
    columns: Sequence[str], sheets: Sequence[_Sheet], summary: Sequence[tuple[str, Cell]] | None
) -> ZipFile:
    """Make a workbook of sheets that have headings alone, with filters, widths and colours."""
    import xlsxwriter

    file = BytesIO()
    with xlsxwriter.Workbook(file, _OPTIONS) as book:
        bold = book.add_format({"bold": True})
        percent = book.add_format({"num_format": _PERCENT})
        colours = {name: book.add_format(_FORMATS[name]) for name in _FORMATS}
        for filled in sheets:
            sheet = book.add_worksheet(filled.name)
            sheet.freeze_panes(1, 0)
            sheet.write_row(0, 0, columns, bold)
            sheet.autofilter(0, 0, filled.count, len(columns) - 1)
            for place, name in enumerate(columns):
                sheet.set_column(place, place, _width(name), percent if name in _RELATIVE else None)
            if (judged := _place_of_verdicts(columns)) is not None:
                for verdict, look in colours.items():
                    rule = {"type": "cell", "criteria": "==", "value": f'"{verdict}"', "format": look}
                    sheet.conditional_format(1, judged, max(1, filled.count), judged, rule)
        if summary is not None:
            sheet = book.add_worksheet(SUMMARY)
            sheet.set_column(0, 0, 18, bold)
            sheet.set_column(1, 1, 90)
            for row, (title, value) in enumerate(summary):
                sheet.write_string(row, 0, _fitting(title), colours.get(title))
                write = sheet.write_number if isinstance(value, int) else sheet.write_string
                write(row, 1, value if isinstance(value, int) else _fitting(str(value)))
    return ZipFile(file)


def _width(name: str) -> int:
    """Return how wide a column is, in characters."""
    wide = (width for part, width in _WIDE.items() if part in name.lower())
    return next(wide, max(11, len(name) + 4))


def _with_rows(empty: bytes, sheet: _Sheet, width: int) -> Iterator[bytes]:
    """Yield a sheet that has headings alone with its rows below them, piece by piece."""
    from xlsxwriter.utility import xl_range

    head, end, tail = empty.partition(_END_OF_ROWS)
    dimension = f'<dimension ref="{xl_range(0, 0, sheet.count, width - 1)}"/>'
    yield _DIMENSION.sub(dimension.encode(), head)
    sheet.file.seek(0)
    yield from iter(lambda: sheet.file.read(_CHUNK), b"")
    yield end + tail


class _Written(RawIOBase):
    """A file that cannot be sought in, from which what was written is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: "ReadableBuffer") -> int:
        """Keep a piece until it is taken."""
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        """Take what was written since it was last taken."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _spelling(place: int, name: str) -> Spelling:
    """Return how the cells of a column are written: relative errors show as percentages."""
    from xlsxwriter.utility import xl_col_to_name

    cell = f'<c r="{xl_col_to_name(place)}{_LINE}"'

    def text(value: str) -> str:
        return f'{cell} t="inlineStr"><is>{_text_element(value)}</is></c>'

    style = f' s="{_PERCENT_STYLE}"' if name in _RELATIVE else ""
    return Spelling(text, text, f"{cell}{style}><v>", "</v></c>")


@lru_cache(maxsize=1 << 12)
def _text_element(text: str) -> str:
    space = "" if text == text.strip() else ' xml:space="preserve"'
    return f"<t{space}>{_UNLIKE_XML.sub(_by_number, escape(_fitting(text), quote=False))}</t>"


def _by_number(mark: re.Match[str]) -> str:
    return f"_x{ord(mark[0]):04X}_"


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
