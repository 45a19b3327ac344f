"""Copy the embedded database while it is in use, and put a copy back.

    database ──a view of one moment──▶ .firstdrift-…  ──checked, synced──▶ FILE
    FILE ──checked──▶ .firstdrift-…  ──▶ database        what was there is kept under another name

Whatever goes wrong, what had the name before is still there, and no part of a copy lies about.
"""

import os
import secrets
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from firstdrift.catalogue.integrity import file_of, opened, require_database
from firstdrift.catalogue.private import OURS
from firstdrift.errors import CatalogueError

Shown = Callable[[int, int], None]
"""Told how many pages are copied, and how many there are."""

_STEP_PAGES = 4096
_SIDE_FILES = ("-wal", "-shm", "-journal")
_LOCK_FROM, _LOCK_BYTES = 0x40000000, 512
"""Where SQLite locks a database's file: whoever has it open in WAL mode holds a shared lock there."""


def back_up(url: str, file: Path, *, force: bool = False, shown: Shown | None = None) -> int:
    """Copy the database at an address to a file, while others write to it; return the bytes of the copy.

    Only the owner may read the file. Without `force` a file that exists is left alone.

    Raises:
        CatalogueError: it is no SQLite database, or damaged, or the copy cannot be written.
    """
    source = _embedded(url, "Use pg_dump")
    _require_writable(file, source, force=force)
    with _written_beside(file) as copy:
        _copy(source, copy, shown)
        _publish(copy, file, force=force)
    return file.stat().st_size


def restore(file: Path, url: str, *, shown: Shown | None = None) -> Path | None:
    """Make a copy the database again; return where the database that was there is now, if there was one.

    Raises:
        CatalogueError: the copy is none, or damaged; a server or worker uses the database; or it cannot
            be written.
    """
    database = _embedded(url, "Use pg_restore, or psql")
    require_database(file)
    if database.exists() and file.samefile(database):
        raise CatalogueError("this is the database itself", path=file, hint="Name a backup")
    _require_ours(file)
    with _named_errors(database.parent):
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _written_beside(database) as copy:
        _copy(file, copy, shown)
        with _nobody_uses(database):
            kept = _set_aside(database)
            copy.replace(database)
            _sync(database.parent)
    return kept


def _embedded(url: str, otherwise: str) -> Path:
    file = file_of(url)
    if file is None:
        raise CatalogueError(
            "the database is on a PostgreSQL server: that has its own means for this", hint=otherwise
        )
    return file.absolute()


def _require_writable(file: Path, source: Path, *, force: bool) -> None:
    """Refuse a name under which no copy can, or should, come to lie."""
    if str(file) == "-":
        raise CatalogueError("a backup is written to a file, not to the terminal", hint="Give it a name")
    own = {source.name, *(source.name + suffix for suffix in _SIDE_FILES), *OURS}
    with _named_errors(file):
        if not file.parent.is_dir():
            raise CatalogueError("the directory for the backup does not exist", path=file.parent)
        if file.name in own and source.parent.exists() and file.parent.samefile(source.parent):
            raise CatalogueError(
                "this is a file of firstdrift itself", path=file, hint="Give the backup another name"
            )
        try:
            kind = file.lstat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(kind):
        raise CatalogueError("this is no file that could be replaced", path=file, hint="Give another name")
    if source.exists() and file.samefile(source):
        raise CatalogueError("this is the database itself", path=file, hint="Give the backup another name")
    if not force:
        raise _exists(file)


def _exists(file: Path) -> CatalogueError:
    return CatalogueError(
        "there is a file already", path=file, hint="Give another name, or --force to replace it"
    )


@contextmanager
def _written_beside(file: Path) -> Iterator[Path]:
    """Give a new, empty file beside another, for its owner's eyes only; afterwards it is gone."""
    made = file.absolute().with_name(f".firstdrift-{secrets.token_hex(8)}")
    with _named_errors(file):
        try:  # a signal may end this process as soon as the file is there
            os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            yield made
        finally:
            for suffix in ("", *_SIDE_FILES):
                Path(f"{made}{suffix}").unlink(missing_ok=True)


def _copy(source: Path, copy: Path, shown: Shown | None) -> None:
    """Copy a database as it is at one moment, see that the copy is whole, and that it is on the disk."""
    with opened(source) as from_, closing(sqlite3.connect(copy, isolation_level=None)) as to:
        # One view from begin to end: without it, each write of others would begin the copy anew.
        from_.execute("BEGIN")
        from_.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (size,) = from_.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
        _require_room(copy.parent, size)
        with _full_disk(copy.parent):
            to.execute("PRAGMA synchronous = OFF")
            to.execute("PRAGMA journal_mode = OFF")
            from_.backup(
                to,
                pages=_STEP_PAGES,
                progress=lambda _status, left, all_: shown(all_ - left, all_) if shown else None,
            )
            to.execute("PRAGMA journal_mode = DELETE")  # one file, not three
        _require_whole(to, source)
    _sync(copy)


def _require_whole(copy: sqlite3.Connection, source: Path) -> None:
    try:
        found = [row[0] for row in copy.execute("PRAGMA integrity_check(1)")]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        raise CatalogueError(
            f"the database is damaged ({found[0].splitlines()[-1]})",
            path=source,
            hint="An earlier backup may be whole; firstdrift check says which tables are damaged",
        )


def _require_ours(file: Path) -> None:
    """Refuse a database that firstdrift did not write, or that a newer version did."""
    from firstdrift.catalogue.migrate import step_of_file

    with opened(file) as connection:
        step_of_file(connection, file)


def _require_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise CatalogueError(
            f"the copy needs {size / 2**20:,.1f} MiB, and {free / 2**20:,.1f} MiB are free",
            path=folder,
            hint="Free some space, or choose another disk",
        )


def _publish(copy: Path, file: Path, *, force: bool) -> None:
    if force:
        copy.replace(file)
    else:
        try:
            file.hardlink_to(copy)  # unlike a rename it replaces nothing
        except FileExistsError as error:
            raise _exists(file) from error
        except OSError:  # not every file system has hard links
            if os.path.lexists(file):
                raise _exists(file) from None
            copy.rename(file)
    _sync(file.absolute().parent)


@contextmanager
def _nobody_uses(database: Path) -> Iterator[None]:
    """Keep others from opening a database during the block, unless one has it open."""
    import fcntl

    if not database.exists():
        yield
        return
    with database.open("r+b") as held:
        try:
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_FROM)
        except (BlockingIOError, PermissionError) as error:
            raise CatalogueError(
                "a server or a worker uses the database", path=database, hint="Stop them, then try again"
            ) from error
        yield


def _set_aside(database: Path) -> Path | None:
    """Give a database, with what belongs to it, another name; return it."""
    if not database.exists():
        _remove_side_files(database)
        return None
    kept = database.with_name(f"{database.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    # Its last writes may be in the log alone, and must not be taken for those of the copy.
    for suffix in ("-wal", "-journal", ""):
        with suppress(FileNotFoundError):
            Path(f"{database}{suffix}").rename(f"{kept}{suffix}")
    _remove_side_files(database)
    return kept


def _remove_side_files(database: Path) -> None:
    for suffix in _SIDE_FILES:
        Path(f"{database}{suffix}").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _full_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
            raise CatalogueError(
                f"the copy cannot be written ({error})",
                path=folder,
                hint="Free some space; nothing is left of it",
            ) from error
        raise


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CatalogueError(f"it cannot be written here ({error.strerror})", path=file) from error
