"""Cells as text, a column at a time: what the cells of one have in common is asked once for all.

    1.5  None  nan          →  "1.5"  ""  "NaN"          as CSV has them
    "clean" "clean" "=1"    →  "clean"  "clean"  "'=1"   each text is written once

Whatever is not of the few types that columns mostly hold is written cell by cell.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import Final, TypeVar, cast

from msgspec import Struct
from msgspec.json import Encoder

from firstdrift.comparison.table import Cell
from firstdrift.comparison.table_columns import Columns

Item = TypeVar("Item")

_PLAIN_FROM, _PLAIN_TO = 1e-4, 1e16
"""Between them Python writes floats without exponent, and so has one way to write the fewest digits."""

_DIGITS_FROM, _ONE_DIGIT_FROM = 1e-5, 1e-9
"""Below the first, all write exponents; from the second on, of one digit, of which Python makes two."""

_digits: Final = Encoder().encode


class Spelling(Struct, frozen=True):
    """How the cells of a column are written.

    Attributes:
        text: writes a text.
        word: writes a text that needs no care: "NaN".
        before: what stands before a number.
        after: what stands after it.
    """

    text: Callable[[str], str]
    word: Callable[[str], str]
    before: str = ""
    after: str = ""


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in lists of a size; the last may be shorter."""
    rest = iter(items)
    return iter(lambda: list(islice(rest, size)), [])


def turned(rows: Sequence[Sequence[Cell]]) -> Columns:
    """Turn rows into columns."""
    return list(zip(*rows, strict=True))


def spelled(columns: Columns, spellings: Iterable[Spelling]) -> Iterator[tuple[str, ...]]:
    """Write the cells of rows, which come in columns, each column by its spelling."""
    empty: Sequence[Cell] = ()
    written, nothing = list[list[str]](), [""] * len(columns[0] if columns else ())
    for column, spelling in zip(columns, spellings, strict=False):
        kinds = set() if column is empty else set(map(type, column)) - {NoneType}
        if not kinds:
            empty = column  # which others may be as well
        written.append(_spelled_column(column, kinds, spelling) if kinds else nothing)
    return zip(*written, strict=True)


def _spelled_column(column: Sequence[Cell], kinds: set[type], spelling: Spelling) -> list[str]:
    if kinds == {float}:
        return _floats(cast("Sequence[float | None]", column), spelling)
    if kinds <= {str} or kinds == {int}:
        known = {cell: _cell(cell, spelling) for cell in set(column)}
        return list(map(known.__getitem__, column))
    return [_cell(cell, spelling) for cell in column]


def _floats(column: Sequence[float | None], spelling: Spelling) -> list[str]:
    """Write numbers; the digits of all are written at once, and then put as Python puts them."""
    import numpy as np

    digits = _digits(column).decode()[1:-1].split(",")
    size = np.abs(np.array(column, np.float64))
    for at in np.flatnonzero((size < _DIGITS_FROM) & (size >= _ONE_DIGIT_FROM)).tolist():
        digits[at] = f"{digits[at][:-1]}0{digits[at][-1]}"
    texts = [spelling.before + text + spelling.after for text in digits] if spelling.before else digits
    alike = (size < _DIGITS_FROM) | (size >= _PLAIN_FROM) & (size < _PLAIN_TO)
    for at in np.flatnonzero(~alike).tolist():
        texts[at] = "" if (number := column[at]) is None else _cell(number, spelling)
    return texts


def _cell(value: Cell, spelling: Spelling) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return spelling.text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return spelling.word("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return f"{spelling.before}{value}{spelling.after}"
