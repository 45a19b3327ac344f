"""What `firstdrift check` looks at: versions, database, roots, free disk, worker."""

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

from firstdrift.errors import FirstdriftError
from firstdrift_server.settings import Settings

_LEAST_FREE = 1 << 30
_ALIVE_SECONDS = 20.0


class Finding(Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        good: it works.
        doubtful: it works, and yet there is something to be known of it.
    """

    subject: str
    good: bool
    said: str
    doubtful: bool = False

    @property
    def mark(self) -> str:
        """Say in a word what came out: ok, warn or FAIL."""
        return "FAIL" if not self.good else "warn" if self.doubtful else "ok"


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything that a working installation needs."""
    yield Finding("versions", good=True, said=_versions())
    yield from _roots(settings.roots)
    free = shutil.disk_usage(settings.data_dir).free
    yield Finding("disk", free >= _LEAST_FREE, f"{free / (1 << 30):.1f} GiB free in {settings.data_dir}")
    yield from _database(settings)


def _versions() -> str:
    packages = ("firstdrift", "torch", "numpy", "numba", "sqlalchemy")
    named = [f"{name} {version(name)}" for name in packages]
    return ", ".join([*named, f"Python {sys.version.split()[0]}", f"SQLite {sqlite3.sqlite_version}"])


def _roots(roots: tuple[Path, ...]) -> Iterator[Finding]:
    for root in roots:
        try:
            next(root.iterdir(), None)
        except OSError as error:
            yield Finding("root", good=False, said=f"{root} cannot be listed ({error.strerror})")
        else:
            yield Finding("root", good=True, said=str(root))


def _database(settings: Settings) -> Iterator[Finding]:
    from firstdrift.catalogue.engine import open_engine, reading, sqlite_warning
    from firstdrift.catalogue.jobs import list_workers
    from firstdrift.catalogue.migrate import upgrade

    try:
        engine = open_engine(settings.database)
        upgrade(engine)
        with reading(engine) as session:
            workers = list_workers(session)
        warning = sqlite_warning(engine)
        engine.dispose()
    except FirstdriftError as error:
        yield Finding("database", good=False, said=str(error))
        return
    where = settings.database.rpartition("@")[2]
    said = f"{where}: {warning}" if warning else where
    yield Finding("database", good=True, said=said, doubtful=warning is not None)
    alive = [worker.name for worker in workers if abs(worker.seconds_since_seen) < _ALIVE_SECONDS]
    said = (
        ", ".join(alive)
        if alive
        else f"no worker uses the database in {settings.data_dir}: start `firstdrift worker` or "
        "`firstdrift serve`; --data-dir says where they were started"
    )
    yield Finding("worker", bool(alive), said)
