"""Bring the tables of a database to the form this version uses.

Every form the tables ever had is a step in `migrations/versions`. A new database is made in the newest form
at once, which is the one that all steps lead to.
"""

import sqlite3
from pathlib import Path

from sqlalchemy import Column, Engine, MetaData, PrimaryKeyConstraint, String, Table, inspect, select, text
from sqlalchemy.orm import Session

from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.tables import Entry
from firstdrift.errors import CatalogueError

HEAD = "0010"
"""The newest step; known here so that a database at it is opened, or made, without loading Alembic."""
_NEWER = "Install that version, or use another data directory"
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
        CatalogueError: the database cannot be written, or was made by a newer version.
    """
    with reading(engine) as session:
        if step_of(session) == HEAD:
            return
    with writing(engine, durable=True) as session:
        if engine.dialect.name == "postgresql":
            session.execute(text("SELECT pg_advisory_xact_lock(hashtext('firstdrift'))"))
        if not inspect(session.connection()).get_table_names():
            _make_tables(session)
        elif step_of(session) != HEAD:
            _take_steps(session)


def step_of(session: Session) -> str | None:
    """Return the step that the tables of a database are at; None where there are none of ours."""
    if not inspect(session.connection()).has_table(_STEP.name):
        return None
    return session.scalar(select(_STEP.c.version_num))


def missing_tables(session: Session) -> list[str]:
    """List the tables of this version that a database lacks."""
    there = inspect(session.connection()).get_table_names()
    return sorted(Entry.metadata.tables.keys() - set(there))


def step_of_file(connection: sqlite3.Connection, file: Path) -> str:
    """Return the step that the tables of a SQLite database are at.

    Raises:
        CatalogueError: it is no database of firstdrift, or one of a newer version.
    """
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        found = None
    if found is None:
        raise CatalogueError("this is no database of firstdrift", path=file)
    step = str(found[0])
    if step > HEAD:
        raise CatalogueError(
            f"the database was made by a newer version of firstdrift ({step}; this one knows {HEAD})",
            path=file,
            hint=_NEWER,
        )
    return step


def _make_tables(session: Session) -> None:
    Entry.metadata.create_all(session.connection())
    _STEP.create(session.connection())
    session.execute(_STEP.insert().values(version_num=HEAD))


def _take_steps(session: Session) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    config.attributes["connection"] = session.connection()
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise CatalogueError(
            "the database was made by a newer version of firstdrift",
            hint=_NEWER,
        ) from error
