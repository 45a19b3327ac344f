"""Read a table of comma-separated values that a dumping tool wrote."""

import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from firstdrift.dumps.containers.contents import DamagedError
from firstdrift.files import open_regular, said_by_system
from firstdrift.wording.message import Message

Parsed = TypeVar("Parsed")


def parse_table(
    file: Path, parse: Callable[[dict[str, str]], Parsed], *, largest: int, most_rows: int
) -> Iterator[Parsed | None]:
    """Yield what is made of the first rows of a table of at most `largest` bytes; None for one that is none.

    Raises:
        DamagedError: it cannot be read.
    """
    try:
        with open_regular(file, most=largest) as opened:
            lines = io.TextIOWrapper(opened, encoding="utf-8", errors="backslashreplace", newline="")
            yield from map(partial(_parsed, parse), islice(csv.DictReader(lines), most_rows))
    except OSError as exc:
        raise DamagedError(Message.of("dumps.file.unreadable", error=said_by_system(exc))) from exc
    except csv.Error as exc:
        raise DamagedError(Message.of("dumps.table.not_one")) from exc


def _parsed(parse: Callable[[dict[str, str]], Parsed], fields: dict[str, str]) -> Parsed | None:
    try:
        return parse(fields)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def bad_rows(bad: int, rows: int) -> Message | None:
    """Say how many rows cannot be understood; None if there are none."""
    return Message.of("dumps.table.bad_rows", bad=bad, rows=rows) if bad else None
