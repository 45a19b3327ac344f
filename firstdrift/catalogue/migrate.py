"""Bring the tables of a database to the form this version uses.

Every form that a release gave the tables is a step in `migrations/versions`. A new database is made in the
newest form at once, which is the one that all steps lead to.
"""

import logging
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import Column, Engine, MetaData, PrimaryKeyConstraint, String, Table, inspect, select, text
from sqlalchemy.orm import Session

from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.tables import Entry
from firstdrift.errors import CatalogueError
from firstdrift.wording.message import Message

log = logging.getLogger(__name__)

HEAD = "0015"
"""The newest step; known here so that a database at it is opened, or made, without loading Alembic."""
FIRST = "0008"
"""The oldest step that a database can be brought up to date from: that of the first release."""
_STEP = Table(
    "alembic_version",
    MetaData(),
    Column[str]("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Where Alembic keeps the step a database is at."""


def upgrade(engine: Engine) -> None:
    """Make the tables, or take all steps that they lack, whole or not at all.

    Processes that do so at once take turns.

    Raises:
        CatalogueError: the database cannot be written, or was made by a newer version, or before the first.
    """
    with reading(engine) as session:
        before = step_of(session)
    if before == HEAD:
        return
    with writing(engine, durable=True) as session:
        if engine.dialect.name == "postgresql":
            session.execute(text("SELECT pg_advisory_xact_lock(hashtext('firstdrift'))"))
        step = step_of(session)
        if step is None:
            _make_tables(session)
        elif step != HEAD:
            _require_known(step, _file_of(engine))
            log.warning("the database is brought up to date: about a minute for each GB of it")
            _take_steps(session)
    if before is not None:
        _give_room_back(engine)


def step_of(session: Session) -> str | None:
    """Return the step that the tables of a database are at; None where there are none of ours.

    Raises:
        CatalogueError: there are tables, and none says of which step.
    """
    if not inspect(session.connection()).has_table(_STEP.name):
        return None
    step = session.scalar(select(_STEP.c.version_num))
    if step is None:
        raise CatalogueError(Message.of("catalogue.database.not_ours"))
    return str(step)


def missing_tables(session: Session) -> list[str]:
    """List the tables of this version that a database lacks."""
    there = inspect(session.connection()).get_table_names()
    return sorted(Entry.metadata.tables.keys() - set(there))


def step_of_file(connection: sqlite3.Connection, file: Path) -> str:
    """Return the step that the tables of a SQLite database are at.

    Raises:
        CatalogueError: it is no database of firstdrift, or of no version that this one knows.
    """
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        found = None
    if found is None:
        raise CatalogueError(Message.of("catalogue.database.not_ours"), path=file)
    step = str(found[0])
    _require_known(step, file)
    return str(step)


def _file_of(engine: Engine) -> Path | None:
    """Return the file of an embedded database; None for one on a server."""
    return Path(engine.url.database or "") if engine.dialect.name == "sqlite" else None


def _require_known(step: str, file: Path | None = None) -> None:
    """Refuse tables that a newer version made, or that were made before the first release."""
    if FIRST <= step <= HEAD:
        return
    why = Message.of("catalogue.database.older", step=step)
    if step > HEAD:
        why = Message.of("catalogue.database.newer", step=step, known=HEAD)
    raise CatalogueError(why, path=file, hint=Message.of("catalogue.hint.install_other"))


def _make_tables(session: Session) -> None:
    Entry.metadata.create_all(session.connection(), checkfirst=False)
    _STEP.create(session.connection())
    session.execute(_STEP.insert().values(version_num=HEAD))


def _give_room_back(engine: Engine) -> None:
    """Make the file of a database as short as what is in it, unless somebody uses it or the disk is full."""
    if engine.dialect.name != "sqlite":
        return
    with closing(engine.raw_connection()) as connection, suppress(sqlite3.OperationalError):
        cursor = connection.cursor()
        cursor.execute("PRAGMA query_only=OFF")
        cursor.execute("VACUUM")


def _take_steps(session: Session) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    config.attributes["connection"] = session.connection()
    command.upgrade(config, "head")
