"""What `firstdrift check` looks at: versions, roots, disk, database, worker. It changes nothing."""

import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from firstdrift.catalogue.sizes import free_bytes, is_writable
from firstdrift.errors import FirstdriftError
from firstdrift_server.settings import Settings

if TYPE_CHECKING:
    from firstdrift.catalogue.jobs.waiting import Standing

_LEAST_FREE = 1 << 30
_FEWEST_FREE, _FEW_FREE = 1_000, 100_000
"""Files that the disk must have room for, and ought to: a dump has tens of thousands."""


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


def examine(settings: Settings, seconds: float | None) -> Iterator[Finding]:
    """Look at everything that a working installation needs.

    The database is read for so many seconds at most; with None only so far that it can be used.
    """
    yield Finding("versions", good=True, said=_versions())
    yield from _roots(settings.roots)
    for folder in _folders(settings):
        yield _writable(folder)
        yield from _disk(folder)
        yield _privacy(folder)
    yield from _database(settings, seconds)


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


def _folders(settings: Settings) -> list[Path]:
    """List the directories that are written to; a database on a server needs none."""
    from firstdrift.catalogue.integrity import file_of

    file = file_of(settings.database)
    wanted = {settings.data_dir.absolute(), *([file.absolute().parent] if file else [])}
    return sorted(folder for folder in wanted if folder.is_dir())


def _writable(folder: Path) -> Finding:
    good = is_writable(folder)
    return Finding("writable", good, str(folder) if good else f"nothing can be written in {folder}")


def _disk(folder: Path) -> Iterator[Finding]:
    about, free = os.statvfs(folder), free_bytes(folder)
    yield Finding("disk", free >= _LEAST_FREE, f"{free / (1 << 30):.1f} GiB free in {folder}")
    if about.f_files:  # some file systems have no limit
        said = f"room for {about.f_favail:,} more files in {folder}"
        yield Finding("files", about.f_favail >= _FEWEST_FREE, said, doubtful=about.f_favail < _FEW_FREE)


def _privacy(folder: Path) -> Finding:
    """Say who else may read what people have compared."""
    opened = list(filter(_others_may_use, (folder, *sorted(folder.glob("firstdrift.db*")))))
    if not opened:
        return Finding("privacy", good=True, said=f"only its owner may use {folder}")
    said = f"others may use {', '.join(map(str, opened))}: chmod go= keeps them out"
    return Finding("privacy", good=True, said=said, doubtful=True)


def _others_may_use(place: Path) -> bool:
    try:
        return bool(stat.S_IMODE(place.stat().st_mode) & 0o077)
    except FileNotFoundError:  # SQLite removes its log when the last process leaves
        return False


def _database(settings: Settings, seconds: float | None) -> Iterator[Finding]:
    from firstdrift.catalogue.integrity import file_of

    doubt = ""
    try:
        if (file := file_of(settings.database)) is not None:
            damage, doubt = _file(file, seconds)
            yield from (Finding("database", good=False, said=f"{file}: {said}") for said in damage)
            if damage:
                return
        yield from _tables(settings, doubt)
    except FirstdriftError as error:
        yield Finding("database", good=False, said=str(error))


def _tables(settings: Settings, doubt: str) -> Iterator[Finding]:
    """Say whether a database can be used, and which workers use it."""
    from firstdrift.catalogue.engine import open_engine, reading, sqlite_warning
    from firstdrift.catalogue.jobs.waiting import Standing, standing
    from firstdrift.catalogue.migrate import HEAD, missing_tables, step_of

    where = settings.database.rpartition("@")[2]
    engine = open_engine(settings.database)
    try:
        with reading(engine) as session:
            step, missing = step_of(session), missing_tables(session)
            jobs = Standing({}, None, ()) if missing else standing(session)
        doubts = [sqlite_warning(engine), doubt]
    finally:
        engine.dispose()
    if step is None:
        yield Finding("database", good=False, said=f"{where} holds no tables of firstdrift yet")
        return
    if step == HEAD and missing:
        yield Finding("database", good=False, said=f"{where} lacks the tables {', '.join(missing)}")
        return
    if step != HEAD:
        doubts.append(f"its tables are of an earlier version ({step}): the next start brings them up to date")
    said = "; ".join(filter(None, doubts))
    yield Finding("database", good=True, said=f"{where}: {said}" if said else where, doubtful=bool(said))
    yield _work(settings, jobs)


def _work(settings: Settings, jobs: "Standing") -> Finding:
    """Say which workers are alive, and whether they take what is to be done."""
    if jobs.is_stuck:
        said = (
            f"{', '.join(jobs.workers)} take no job, and one waits for {jobs.waiting:,.0f} s: start them anew"
        )
        return Finding("worker", good=False, said=said)
    nobody = (
        f"no worker uses the database in {settings.data_dir}: start `firstdrift worker` or "
        "`firstdrift serve`; --data-dir says where they were started"
    )
    return Finding("worker", bool(jobs.workers), ", ".join(jobs.workers) or nobody)


def _file(file: Path, seconds: float | None) -> tuple[tuple[str, ...], str]:
    """Say what is wrong with the file of a database, and what is not known of it."""
    from firstdrift.catalogue.integrity import examine_tables, opened
    from firstdrift.catalogue.migrate import step_of_file

    with opened(file) as connection:
        damage = examine_tables(file, seconds) if seconds is not None else None
        if damage is None or not damage.damage:
            step_of_file(connection, file)
    if damage is None:
        return (), ""
    tables = ", ".join(damage.unseen)
    unseen = f"{seconds:g} s were not enough to read {tables}: --seconds gives it more" if tables else ""
    return damage.damage, unseen
