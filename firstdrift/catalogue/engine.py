"""Open the database, and the only two ways to use it: reading and writing.

    with reading(engine) as session: ...    a consistent view; waits for nobody, changes nothing
    with writing(engine) as session: ...    all or nothing; one writer at a time in SQLite

SQLite runs in WAL mode. Its own rules on when a transaction begins are switched off, because a
transaction that reads first and then writes fails at once when another has written in between: writers
take the write lock when they begin, and wait for it.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, Integer, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from firstdrift.catalogue.columns import Whole
from firstdrift.catalogue.private import DATABASE, make_file, make_folder
from firstdrift.errors import CatalogueError
from firstdrift.paths import spelt, unspelt
from firstdrift.wording.message import Message

log = logging.getLogger(__name__)

BUSY_TIMEOUT_MS = 15_000
"""SQLite looks now and then whether the lock is free: where ten write all the time, some wait 5 s for it."""

JOURNAL_BYTES = 64 * 2**20
SAFE_SQLITE = (3, 51, 3)
"""Before it, two processes can in very rare cases damage a WAL database (the WAL-reset bug)."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs"}
    | {"fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)


def database_url(data_directory: Path) -> str:
    """Return the address of the embedded database in a data directory."""
    return URL.create("sqlite", database=spelt(data_directory / DATABASE)).render_as_string()


def open_engine(url: str, *, checkpoints: bool = True) -> Engine:
    """Prepare to use the database at an address: `sqlite:///FILE` or `postgresql://...`.

    With `checkpoints` off, SQLite leaves it to other processes to move what was written from the
    write-ahead log into the database.

    Raises:
        CatalogueError: the address makes no sense, or nothing can be opened there.
    """
    address = address_of(url)
    backend = address.get_backend_name()
    if backend == "sqlite":
        return _open_sqlite(address, checkpoints=checkpoints)
    if backend == "postgresql":
        return _open_postgresql(address)
    raise CatalogueError(
        Message.of("catalogue.database.unsupported", backend=backend),
        hint=Message.of("catalogue.hint.use_a_supported_database"),
    )


def address_of(url: str) -> URL:
    """Take the address of a database apart.

    Raises:
        CatalogueError: it makes no sense.
    """
    try:
        return make_url(url)
    except ArgumentError as error:
        raise CatalogueError(
            Message.of("catalogue.database.unknown_address"), hint=Message.of("catalogue.hint.address_forms")
        ) from error


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Give a session with one consistent view of the database, which cannot be changed through it."""
    with _named_errors(engine), Session(engine.execution_options(writes=False)) as session:
        yield session


@contextmanager
def writing(engine: Engine, *, durable: bool = False) -> Iterator[Session]:
    """Give a session whose changes are all there after the block, or none if it raises.

    With `durable` they survive a power cut; without, the last seconds may be lost then (but never when
    a process dies), which is enough for what can be computed again.
    """
    with (
        _named_errors(engine),
        Session(engine.execution_options(writes=True, durable=durable), expire_on_commit=False) as session,
        session.begin(),
    ):
        session.connection()  # the write lock is taken now, not at the first statement
        yield session


def sqlite_warning(engine: Engine) -> str | None:
    """Say what is to be known of the SQLite version in use; None if nothing is, or for PostgreSQL."""
    if engine.dialect.name != "sqlite" or sqlite3.sqlite_version_info >= SAFE_SQLITE:
        return None
    safe = ".".join(map(str, SAFE_SQLITE))
    return (
        f"SQLite {sqlite3.sqlite_version} has a rare bug that can damage a database used by several "
        f"processes; {safe} and later have not"
    )


def journal_mode(directory: Path, mounts: str) -> str:
    """Choose the journal by file system: the write-ahead log needs memory shared by all its users.

    `mounts` is the text of /proc/mounts: device, mount point, type and more on each line.
    """
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        point = Path(fields[1].encode().decode("unicode_escape"))
        if directory.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return "DELETE" if kind in NETWORK_FILE_SYSTEMS else "WAL"


def _made_file(address: URL) -> Path:
    """Make the file of a SQLite database, for its owner alone, unless it is there."""
    if (address.database or ":").startswith((":", "file:")):
        raise CatalogueError(
            Message.of("catalogue.database.must_be_a_file"), hint=Message.of("catalogue.hint.use_sqlite_file")
        )
    known = str(address.database)
    file = Path(known if os.path.lexists(known) else unspelt(known)).absolute()
    try:
        make_folder(file.parent)
    except OSError as error:
        raise CatalogueError(
            Message.of("catalogue.database.no_data_directory", why=error.strerror),
            path=file.parent,
            hint=Message.of("catalogue.hint.choose_data_directory"),
        ) from error
    make_file(file)  # SQLite makes the files beside it with the same mode
    return file


def _open_sqlite(address: URL, *, checkpoints: bool) -> Engine:
    file = _made_file(address)
    mounts = Path("/proc/mounts")
    mode = journal_mode(file.parent.resolve(), mounts.read_text() if mounts.exists() else "")
    if mode != "WAL":
        log.warning(
            "%s lies on a network drive: pages may have to wait while results are written; "
            "a directory on a local disk, or PostgreSQL, is faster and safer",
            file,
        )
    engine = create_engine(
        address.set(database=str(file)),
        connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        _set_journal_mode(cursor, mode)
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA journal_size_limit={JOURNAL_BYTES}")
        if not checkpoints:
            cursor.execute("PRAGMA wal_autocheckpoint=0")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("writes"):
            connection.exec_driver_sql("PRAGMA query_only=ON")
            connection.exec_driver_sql("BEGIN")
            return
        connection.exec_driver_sql("PRAGMA query_only=OFF")
        connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if options.get('durable') else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    # A query that was not read to its end, by whom an error has stopped, keeps its view of the database even
    # after the transaction: whoever uses the connection next would see that view, and could not write.
    @event.listens_for(engine, "after_cursor_execute")
    def _remember(connection: Connection, cursor: DBAPICursor, *_: object) -> None:
        connection.info.setdefault("cursors", WeakSet()).add(cursor)

    @event.listens_for(engine, "checkin")
    def _close(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        for cursor in entry.info.pop("cursors", ()):
            if connection is not None:
                cursor.close()

    return engine


def _set_journal_mode(cursor: DBAPICursor, mode: str) -> None:
    # The one statement for which SQLite does not wait when others open the new database at the same time.
    give_up = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute(f"PRAGMA journal_mode={mode}")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _open_postgresql(address: URL) -> Engine:
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    try:
        engine = create_engine(address, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise CatalogueError(
            Message.of("catalogue.database.no_driver"), hint=Message.of("catalogue.hint.install_driver")
        ) from error
    engine.dialect.colspecs = {**engine.dialect.colspecs, Integer: Whole}

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("writes"):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        elif not options.get("durable"):
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")

    return engine


@contextmanager
def _named_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _named(error, engine.url) from error
    except PoolTimeoutError as error:
        raise CatalogueError(
            Message.of("catalogue.database.no_connection_free"), hint=Message.of("catalogue.hint.try_again")
        ) from error


def _named(error: DBAPIError, address: URL) -> CatalogueError:
    where = address.database if address.get_backend_name() == "sqlite" else None
    original = error.orig
    code = getattr(original, "sqlite_errorcode", 0) & 0xFF or getattr(original, "sqlstate", None)
    if code in _KNOWN_ERRORS:
        reason, hint = _KNOWN_ERRORS[code]
        return CatalogueError(reason, path=where, hint=hint)
    from_database = isinstance(error, DatabaseError) and original is not None
    why = str(original).strip() if from_database else str(error)
    return CatalogueError(Message.of("catalogue.database.failed", why=why), path=where)


_FULL = (Message.of("catalogue.database.full_disk"), Message.of("catalogue.hint.free_space_and_go_on"))
_READ_ONLY = (Message.of("catalogue.database.not_writable"), Message.of("catalogue.hint.check_permissions"))
_LOCKED = (Message.of("catalogue.database.held_too_long"), Message.of("catalogue.hint.see_who_uses_it"))
_DAMAGED = (Message.of("catalogue.database.damaged_or_none"), Message.of("catalogue.hint.restore_or_move"))
_NO_SERVER = (Message.of("catalogue.database.server_silent"), Message.of("catalogue.hint.check_server"))
_CLOSED = (Message.of("catalogue.database.not_opened"), Message.of("catalogue.hint.check_permissions"))
_NO_DISK = (Message.of("catalogue.database.disk_silent"), Message.of("catalogue.hint.check_disk"))
_NO_DATABASE = (Message.of("catalogue.database.not_on_server"), Message.of("catalogue.hint.create_database"))
_REFUSED = (Message.of("catalogue.database.wrong_password"), Message.of("catalogue.hint.check_password"))
_KNOWN_ERRORS: dict[object, tuple[Message, Message]] = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_IOERR: _NO_DISK,
    "53100": _FULL,
    "25006": _READ_ONLY,
    "42501": _READ_ONLY,
    "55P03": _LOCKED,
    "40P01": _LOCKED,
    "57P01": _NO_SERVER,
    "57P02": _NO_SERVER,
    "57P03": _NO_SERVER,
    "3D000": _NO_DATABASE,
    "28P01": _REFUSED,
}
