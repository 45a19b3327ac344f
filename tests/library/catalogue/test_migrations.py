import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.migrate import HEAD, upgrade
from firstdrift.catalogue.tables import Entry
from firstdrift.errors import CatalogueError


def test_the_steps_lead_to_the_tables_of_this_version(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Entry.metadata) == []


def test_the_newest_step_is_the_one_a_database_is_checked_for() -> None:
    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_bringing_it_up_to_date_again_changes_nothing(engine: Engine) -> None:
    upgrade(engine)
    with reading(engine) as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == HEAD


def test_processes_that_start_at_once_make_the_tables_once(database: str) -> None:
    start = (
        "import sys; from firstdrift.catalogue.engine import open_engine; "
        "from firstdrift.catalogue.migrate import upgrade; upgrade(open_engine(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", start, database], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = [(process.communicate()[1], process.returncode) for process in processes]
    assert [code for _, code in answers] == [0, 0, 0, 0], answers
    engine = open_engine(database)
    with reading(engine) as session:
        assert session.scalar(text("SELECT count(*) FROM alembic_version")) == 1
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused_and_left_alone(engine: Engine) -> None:
    with writing(engine) as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(CatalogueError, match="newer version of firstdrift"):
        upgrade(engine)
    with reading(engine) as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == "9999"


def test_a_database_that_is_up_to_date_is_opened_without_loading_alembic(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    upgrade(engine)
    engine.dispose()
    start = (
        "import sys; from firstdrift.catalogue.engine import open_engine; "
        "from firstdrift.catalogue.migrate import upgrade; upgrade(open_engine(sys.argv[1])); "
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", start, sqlite_url], check=False).returncode == 0
