"""Read a table of comma-separated values that a dumping tool wrote."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from firstdrift.dumps.containers.contents import DamagedError
from firstdrift.files import open_regular, said_by_system
from firstdrift.wording.message import Message


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


def bad_rows(bad: int, rows: int) -> Message | None:
    """Say how many rows cannot be understood; None if there are none."""
    return Message.of("dumps.table.bad_rows", bad=bad, rows=rows) if bad else None
