"""A table as an XLSX workbook, written as it is sent: nothing but the row at hand is kept.

The parts are those of ECMA-376 (Office Open XML): sheets with text in the cells themselves, one style besides
the plain one, and what lists them.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from firstdrift.comparison.table import Cell

ROWS = 1_048_000
"""Rows of a sheet, below the 1,048,576 that spreadsheets hold; the next row begins another sheet."""

LONGEST_TEXT = 32_767
"""Characters in one cell, as UTF-16 counts them."""

_SHEET_BYTES = 1 << 30
_CHUNK = 1 << 16
_COMPRESSION = 3
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff\ud800-\udfff]|_(?=x[0-9A-Fa-f]{4}_)")
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEADER = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_SHEET = (
    f'{_HEADER}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>'
    "<sheetData>"
)
_SHEET_END = "</sheetData></worksheet>"
_FONT = '<sz val="11"/><name val="Calibri"/>'
_FORMAT = 'numFmtId="0" fillId="0" borderId="0"'
_STYLES = (
    f'{_HEADER}<styleSheet xmlns="{_MAIN}">'
    f'<fonts count="2"><font>{_FONT}</font><font><b/>{_FONT}</font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill></fills>'
    '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    f'<cellStyleXfs count="1"><xf {_FORMAT} fontId="0"/></cellStyleXfs>'
    f'<cellXfs count="2"><xf {_FORMAT} fontId="0" xfId="0"/>'
    f'<xf {_FORMAT} fontId="1" xfId="0" applyFont="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)


class _Sink:
    """What the archive is written to: holds what has not been sent yet, and cannot go back."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.held = 0

    def write(self, data: bytes, /) -> int:
        self._pieces.append(bytes(data))
        self.held += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: it is sent when there is enough of it."""

    def close(self) -> None:
        """Do nothing: there is nothing open."""

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self.held = 0
        return taken


def workbook(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    """Yield a workbook, piece by piece.

    Numbers are numbers, everything else is text: no cell is a formula or a link. What a cell cannot hold is
    spelled as the format has it (`_x0007_`), and a text too long for one is cut and says so.

    Args:
        columns: titles of the columns.
        rows: a value for each column; NaN and infinities as text.
    """
    sink = _Sink()
    letters = [_letters(place) for place in range(len(columns))]
    waiting = iter(rows)
    # A file of zip64 is refused by some spreadsheets, so that sheets are kept smaller than that asks for.
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
        sheets, row = 0, next(waiting, None)
        while row is not None or not sheets:
            sheets += 1
            with archive.open(f"xl/worksheets/sheet{sheets}.xml", "w") as sheet:
                sheet.write((_SHEET + _row(1, letters, columns, ' s="1"')).encode())
                line, written = 1, 0
                while row is not None and line <= ROWS and written < _SHEET_BYTES:
                    line += 1
                    text = _row(line, letters, row).encode()
                    written += sheet.write(text)
                    row = next(waiting, None)
                    if sink.held > _CHUNK:
                        yield sink.take()
                sheet.write(_SHEET_END.encode())
        for name, content in _others(sheets).items():
            archive.writestr(name, content)
    yield sink.take()


def _row(line: int, letters: Sequence[str], cells: Sequence[Cell], style: str = "") -> str:
    parts = [f'<row r="{line}">']
    for letter, cell in zip(letters, cells, strict=True):
        if isinstance(cell, str):
            text = _written(cell)
            parts.append(
                f'<c r="{letter}{line}"{style} t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
            )
        elif cell is not None:
            parts.append(f'<c r="{letter}{line}"{style}><v>{cell!r}</v></c>')
    parts.append("</row>")
    return "".join(parts)


def _written(text: str) -> str:
    fitted = _fitting(text)
    if fitted.isascii() and fitted.isprintable() and "_x" not in fitted:
        return escape(fitted, quote=False)
    return escape(_UNWRITABLE.sub(lambda found: f"_x{ord(found[0]):04X}_", fitted), quote=False)


def _fitting(text: str) -> str:
    if len(text) * 2 <= LONGEST_TEXT or _utf16_length(text) <= LONGEST_TEXT:
        return text
    mark = f"\N{HORIZONTAL ELLIPSIS} (cut; {len(text)} characters)"
    room = LONGEST_TEXT - len(mark)
    whole = text.encode("utf-16-le", "surrogatepass")[: 2 * room]
    return whole.decode("utf-16-le", "ignore") + mark


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _letters(place: int) -> str:
    """Name a column as spreadsheets do: A, B, ... Z, AA, AB, ..."""
    before, last = divmod(place, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


def _others(sheets: int) -> dict[str, str]:
    """Give the parts that list the sheets, and say what is what."""
    numbers = range(1, sheets + 1)
    listed = "".join(f'<sheet name="Sheet{n}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
    related = "".join(_related(f"rId{n}", "worksheet", f"worksheets/sheet{n}.xml") for n in numbers)
    parts = {f"/xl/worksheets/sheet{n}.xml": "worksheet" for n in numbers}
    parts |= {"/xl/workbook.xml": "sheet.main", "/xl/styles.xml": "styles"}
    overrides = "".join(
        f'<Override PartName="{part}" ContentType="{_TYPE}.{kind}+xml"/>' for part, kind in parts.items()
    )
    return {
        "xl/styles.xml": _STYLES,
        "xl/workbook.xml": f'{_HEADER}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _relations(related + _related("rId0", "styles", "styles.xml")),
        "_rels/.rels": _relations(_related("rId1", "officeDocument", "xl/workbook.xml")),
        "[Content_Types].xml": f'{_HEADER}<Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>',
    }


def _related(name: str, kind: str, target: str) -> str:
    return f'<Relationship Id="{name}" Type="{_OFFICE}/{kind}" Target="{target}"/>'


def _relations(relations: str) -> str:
    return f'{_HEADER}<Relationships xmlns="{_PACKAGE}/relationships">{relations}</Relationships>'
