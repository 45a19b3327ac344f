import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from databases import new_postgresql_database
from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.dumps.records import slices_of_dump
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.matches.match_sets import add_edits, create_match_set
from firstdrift.catalogue.migrate import HEAD, upgrade
from firstdrift.catalogue.tables import Entry
from firstdrift.comparison.report import Options
from firstdrift.errors import CatalogueError
from firstdrift.matching.manual.edits import match
from firstdrift.model.slice import Coordinates


@pytest.fixture
def another_database(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> str:
    """Return the address of one more new database, of the same kind."""
    if database.startswith("sqlite"):
        return database_url(tmp_path / "another")
    return new_postgresql_database(request.getfixturevalue("postgresql"))


def take_steps(engine: Engine, last: str) -> None:
    """Make tables as the versions before this one have made them, one step after the other."""
    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    with writing(engine) as session:
        config.attributes["connection"] = session.connection()
        command.upgrade(config, last)


def index_as_text(index: ReflectedIndex) -> str:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return repr({**index, "dialect_options": options})


def form_of(engine: Engine) -> dict[str, object]:
    """Give all that a database knows of its tables, but for the order of their columns."""
    known = inspect(engine)
    form: dict[str, object] = {}
    for table in known.get_table_names():
        form[table] = {
            "columns": sorted(map(repr, known.get_columns(table))),
            "key": known.get_pk_constraint(table),
            "unique": sorted(map(repr, known.get_unique_constraints(table))),
            "foreign": sorted(map(repr, known.get_foreign_keys(table))),
            "checks": sorted(map(repr, known.get_check_constraints(table))),
            "indexes": sorted(index_as_text(index) for index in known.get_indexes(table)),
            "options": known.get_table_options(table),
        }
    return form


def test_the_steps_lead_to_the_tables_that_a_new_database_has(engine: Engine, another_database: str) -> None:
    stepwise = open_engine(another_database)
    take_steps(stepwise, "head")
    assert form_of(stepwise) == form_of(engine)
    with stepwise.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Entry.metadata) == []
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == HEAD
    stepwise.dispose()


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


FIRST = """
INSERT INTO dumps (path, format, fingerprint, evidence, attributes, problems, indexed_at)
    VALUES ('/golden', 'msprobe', 'f', '[]', '{}', '[]', 1.5);
INSERT INTO slices (dump_id, position, step, rank, token, micro_step, directory, order_origin, problems,
    nodes, tensors) VALUES (1, 0, 3, NULL, 7, NULL, '/golden/step3', 'recorded', '[]', 1, 0);
INSERT INTO comparisons (golden_path, target_path, golden_id, target_id, options, rules, revision, note,
    created_at, unmatched_golden, unmatched_target, notes)
    VALUES ('/golden', '/target', 1, NULL, '{"rules":"msit","level":"layer"}', 'msit', 4, 'mine', 2.5,
    '[]', '[]', '[]');
INSERT INTO jobs (kind, comparison_id, priority, state, attempts, max_attempts, created_at, ready_at, done,
    total, stage, cancel_requested) VALUES ('compare', 1, 0, 'done', 1, 3, 2.5, 2.5, 0, 0, '', {false});
"""


def test_a_database_of_the_first_form_is_brought_up_to_date_with_all_that_is_in_it(database: str) -> None:
    engine = open_engine(database)
    take_steps(engine, "0001")
    with writing(engine) as session:
        false = "false" if engine.dialect.name == "postgresql" else "0"
        for statement in FIRST.replace("{false}", false).strip().split(";\n"):
            session.connection().exec_driver_sql(statement.rstrip(";"))
    upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Entry.metadata) == []
    with writing(engine) as session:
        comparison = get_comparison(session, 1)
        assert (comparison.note, comparison.revision, comparison.options) == (
            "mine",
            4,
            Options(rules="msit", level="layer"),
        )
        (indexed,) = slices_of_dump(session, 1)
        assert indexed.coordinates == Coordinates(step=3, token=7)
        match_set = create_match_set(session, 1, "made by the new version")
        assert add_edits(session, match_set, 0, (match("a", "b"),)).version == 1
    engine.dispose()
