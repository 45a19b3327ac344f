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

Item = TypeVar("Item")

_PLAIN_FROM, _PLAIN_TO = 1e-4, 1e16
"""Between them Python writes floats without exponent, and so has one way to write the fewest digits."""

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


def spelled(rows: Iterable[Sequence[Cell]], spellings: Iterable[Spelling]) -> Iterator[tuple[str, ...]]:
    """Write the cells of rows, each column by its spelling."""
    return zip(*map(_spelled_column, zip(*rows, strict=True), spellings), strict=True)


def _spelled_column(column: Sequence[Cell], spelling: Spelling) -> list[str]:
    kinds = set(map(type, column)) - {NoneType}
    if not kinds:
        return [""] * len(column)
    if kinds == {float}:
        return _floats(cast("Sequence[float | None]", column), spelling)
    if kinds <= {str} or kinds == {int}:
        known = {cell: _cell(cell, spelling) for cell in set(column)}
        return [known[cell] for cell in column]
    return [_cell(cell, spelling) for cell in column]


def _floats(column: Sequence[float | None], spelling: Spelling) -> list[str]:
    before, after = spelling.before, spelling.after
    return [
        ""
        if number is None
        else before + digits + after
        if not number or _PLAIN_FROM <= abs(number) < _PLAIN_TO
        else _cell(number, spelling)
        for number, digits in zip(column, _digits(column).decode()[1:-1].split(","), strict=True)
    ]


def _cell(value: Cell, spelling: Spelling) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return spelling.text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return spelling.word("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return f"{spelling.before}{value}{spelling.after}"
