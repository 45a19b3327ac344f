"""Whether the file of a SQLite database is whole: each table with its indexes, and what refers to what.

Nothing here changes a database, or waits for those who write to it.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Timer

from msgspec import Struct

from firstdrift.catalogue.engine import address_of
from firstdrift.errors import CatalogueError
from firstdrift.wording.message import Message

HEADER = b"SQLite format 3\x00"
_BUSY_SECONDS = 5.0
_WIDEST_PAGE = 65536
_PAGE_SIZE, _PAGES = slice(16, 18), slice(28, 32)
"""Where the header of a database says how long a page is, and how many there are."""


class Examined(Struct, frozen=True):
    """What was found in a database.

    Attributes:
        damage: what is wrong, as clauses.
        unseen: tables that were not looked at, or not to their end, because the time was up.
    """

    damage: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def file_of(url: str) -> Path | None:
    """Return the file of an embedded database; None for a database on a server.

    Raises:
        CatalogueError: the address makes no sense.
    """
    address = address_of(url)
    return Path(address.database or "") if address.get_backend_name() == "sqlite" else None


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading only.

    Raises:
        CatalogueError: there is none, or it cannot be read.
    """
    require_database(file)
    try:
        connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
        with closing(connection):
            yield connection
    except sqlite3.Error as error:
        raise CatalogueError(_told(error), path=file) from error


def require_database(file: Path) -> None:
    """Refuse what is no SQLite database at the first glance.

    Raises:
        CatalogueError: there is none, or it is something else.
    """
    try:
        if not file.is_file():
            reason = (
                Message.of("catalogue.database.no_file")
                if file.exists()
                else Message.of("catalogue.database.not_here")
            )
            raise CatalogueError(reason, path=file, hint=Message.of("catalogue.hint.data_directory"))
        with file.open("rb") as content:
            begin = content.read(len(HEADER))
    except OSError as error:
        raise CatalogueError(
            Message.of("catalogue.database.unreadable", why=error.strerror), path=file
        ) from error
    restore = Message.of("catalogue.hint.restore_or_move")
    if not begin:
        raise CatalogueError(Message.of("catalogue.database.empty"), path=file, hint=restore)
    if begin != HEADER:
        raise CatalogueError(Message.of("catalogue.database.not_sqlite"), path=file, hint=restore)


def tables_of(connection: sqlite3.Connection) -> list[str]:
    """List the tables of a database."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rootpage")
    return [name for (name,) in found]


def examine_tables(file: Path, seconds: float) -> Examined:
    """Look at every page and every row, as long as there is time.

    Raises:
        CatalogueError: there is no database, or it cannot be opened.
    """
    damage: list[str] = []
    unseen: list[str] = []
    until = time.monotonic() + seconds
    require_database(file)
    with opened(file) as connection:
        try:
            tables = ["sqlite_schema", *tables_of(connection)]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            return Examined((f"the list of its tables cannot be read ({error}){_cut_short(file)}",))
        for table in tables:
            try:
                with _interrupted(connection, until):
                    damage += _damage_of(connection, table)
            except TimeoutError:
                unseen.append(table)
    if damage:
        damage[-1] += _cut_short(file)
    return Examined(tuple(damage), tuple(unseen))


def _damage_of(connection: sqlite3.Connection, table: str) -> list[str]:
    quoted = '"' + table.replace('"', '""') + '"'
    said = "the list of its tables" if table == "sqlite_schema" else f"table {table}"
    try:
        found = connection.execute(f"PRAGMA integrity_check({quoted})").fetchall()
        if found != [("ok",)]:
            return [f"{said} is damaged ({_first_line(found)})"]
        lost = connection.execute(f"PRAGMA foreign_key_check({quoted})").fetchall()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return [f"{said} is damaged ({error})"]
    if not lost:
        return []
    others = sorted({row[2] for row in lost})
    return [f"in {said} {len(lost)} row(s) refer to rows of {', '.join(others)} that are not there"]


def _first_line(found: Iterable[tuple[str]]) -> str:
    lines = [line for (text,) in found for line in text.splitlines() if not line.startswith("***")]
    return f"{lines[0]} and {len(lines) - 1} more" if len(lines) > 1 else lines[0]


@contextmanager
def _interrupted(connection: sqlite3.Connection, until: float) -> Iterator[None]:
    """Stop what the block asks of the database when the time is up, by a TimeoutError."""
    if time.monotonic() >= until:
        raise TimeoutError
    timer = Timer(until - time.monotonic(), connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise TimeoutError from error
    finally:
        timer.cancel()


def _cut_short(file: Path) -> str:
    """Say that a damaged file is shorter than it claims to be."""
    with file.open("rb") as content:
        header = content.read(_PAGES.stop)
    page = int.from_bytes(header[_PAGE_SIZE])
    whole = (_WIDEST_PAGE if page == 1 else page) * int.from_bytes(header[_PAGES])
    there = file.stat().st_size
    return f"; it is cut short: {there:,} of {whole:,} bytes are there" if there < whole else ""


def _told(error: sqlite3.Error) -> Message:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Message.of("catalogue.database.damaged", why=str(error))
    return Message.of("catalogue.database.unreadable", why=str(error))
