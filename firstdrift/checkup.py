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
    """One thing that was looked at."""

    subject: str
    good: bool
    said: str


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
    yield Finding("database", good=True, said=warning or settings.database.rpartition("@")[2])
    alive = [worker.name for worker in workers if worker.seconds_since_seen < _ALIVE_SECONDS]
    said = (
        ", ".join(alive)
        if alive
        else "no worker is running: start `firstdrift worker` or use `firstdrift serve`"
    )
    yield Finding("worker", bool(alive), said)
