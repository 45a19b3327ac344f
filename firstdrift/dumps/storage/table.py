"""Read a table of comma-separated values that a dumping tool wrote."""

import csv
import io
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from firstdrift.dumps.containers.contents import DamagedError
from firstdrift.files import open_regular, said_by_system
from firstdrift.wording.message import Message

Parsed = TypeVar("Parsed")


def read_table(file: Path, *, largest: int, most_rows: int) -> Iterator[dict[str, str]]:
    """Yield the first rows of a table of at most `largest` bytes."""
    try:
        with open_regular(file, most=largest) as opened:
            lines = io.TextIOWrapper(opened, encoding="utf-8", errors="backslashreplace", newline="")
            yield from islice(csv.DictReader(lines), most_rows)
    except OSError as exc:
        raise DamagedError(Message.of("dumps.file.unreadable", error=said_by_system(exc))) from exc
    except csv.Error as exc:
        raise DamagedError(Message.of("dumps.table.not_one")) from exc


def parse_table(
    file: Path, parse: Callable[[dict[str, str]], Parsed], *, largest: int, most_rows: int
) -> Iterator[Parsed | None]:
    """Yield what is made of the first rows of a table; None for a row that cannot be understood."""
    for fields in read_table(file, largest=largest, most_rows=most_rows):
        try:
            parsed = parse(fields)
        except (KeyError, ValueError, TypeError, AttributeError):
            yield None
        else:
            yield parsed


def bad_rows(bad: int, rows: int) -> Message | None:
    """Say how many rows cannot be understood; None if there are none."""
    return Message.of("dumps.table.bad_rows", bad=bad, rows=rows) if bad else None
