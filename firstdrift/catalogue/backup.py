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
from firstdrift.wording.message import Message

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
    source = _embedded(url, Message.of("catalogue.hint.use_pg_dump"))
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
    database = _embedded(url, Message.of("catalogue.hint.use_pg_restore"))
    require_database(file)
    if database.exists() and file.samefile(database):
        raise CatalogueError(
            Message.of("catalogue.backup.database_itself"),
            path=file,
            hint=Message.of("catalogue.hint.name_a_backup"),
        )
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


def _embedded(url: str, otherwise: Message) -> Path:
    file = file_of(url)
    if file is None:
        raise CatalogueError(Message.of("catalogue.backup.on_a_server"), hint=otherwise)
    return file.absolute()


def _require_writable(file: Path, source: Path, *, force: bool) -> None:
    """Refuse a name under which no copy can, or should, come to lie."""
    if str(file) == "-":
        raise CatalogueError(
            Message.of("catalogue.backup.not_to_terminal"), hint=Message.of("catalogue.hint.give_a_name")
        )
    otherwise = Message.of("catalogue.hint.name_backup_otherwise")
    with _named_errors(file):
        if not file.parent.is_dir():
            raise CatalogueError(Message.of("catalogue.backup.no_directory"), path=file.parent)
        if _is_own(file, source):
            raise CatalogueError(Message.of("catalogue.backup.own_file"), path=file, hint=otherwise)
        try:
            kind = file.lstat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(kind):
        another = Message.of("catalogue.hint.give_another_name")
        raise CatalogueError(Message.of("catalogue.backup.irreplaceable"), path=file, hint=another)
    if source.exists() and file.samefile(source):
        raise CatalogueError(Message.of("catalogue.backup.database_itself"), path=file, hint=otherwise)
    if not force:
        raise _exists(file)


def _is_own(file: Path, source: Path) -> bool:
    """Tell whether a name is one that firstdrift itself uses beside the database."""
    own = {source.name, *(source.name + suffix for suffix in _SIDE_FILES), *OURS}
    return file.name in own and source.parent.exists() and file.parent.samefile(source.parent)


def _exists(file: Path) -> CatalogueError:
    hint = Message.of("catalogue.hint.another_name_or_force")
    return CatalogueError(Message.of("catalogue.backup.file_exists"), path=file, hint=hint)


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
            Message.of("catalogue.database.damaged", why=found[0].splitlines()[-1]),
            path=source,
            hint=Message.of("catalogue.hint.earlier_backup"),
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
            Message.of("catalogue.backup.no_room", needed=size / 2**20, free=free / 2**20),
            path=folder,
            hint=Message.of("catalogue.hint.free_space_or_other_disk"),
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
                Message.of("catalogue.backup.in_use"),
                path=database,
                hint=Message.of("catalogue.hint.stop_and_try_again"),
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
                Message.of("catalogue.backup.not_written", why=str(error)),
                path=folder,
                hint=Message.of("catalogue.hint.free_space"),
            ) from error
        raise


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CatalogueError(
            Message.of("catalogue.backup.not_writable", why=error.strerror), path=file
        ) from error
