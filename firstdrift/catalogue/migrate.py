"""Bring the tables of a database to the form this version uses.

Every form the tables ever had is a step in `migrations/versions`; a new database takes all of them.
"""

from sqlalchemy import Engine, inspect, text
from sqlalchemy.orm import Session

from firstdrift.catalogue.engine import reading, writing
from firstdrift.errors import CatalogueError

HEAD = "0007"
"""The newest step; known here so that a database at it is opened without loading Alembic."""


def upgrade(engine: Engine) -> None:
    """Take all steps that a database lacks, whole or not at all; processes that do so at once take turns.

    Raises:
        CatalogueError: the database cannot be written, or was made by a newer version.
    """
    with reading(engine) as session:
        if _step_of(session) == HEAD:
            return
    with writing(engine, durable=True) as session:
        if engine.dialect.name == "postgresql":
            session.execute(text("SELECT pg_advisory_xact_lock(hashtext('firstdrift'))"))
        _take_steps(session)


def _step_of(session: Session) -> str | None:
    if not inspect(session.connection()).has_table("alembic_version"):
        return None
    step: str | None = session.scalar(text("SELECT version_num FROM alembic_version"))
    return step


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
            hint="Install that version, or use another data directory",
        ) from error
