import json
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from databases import new_postgresql_database
from first_release import first_release
from messages import refuses
from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex

from firstdrift.catalogue.comparisons.outline import load_outline
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.trained import whole_judgements
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.dumps.records import load_slice
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.jobs.queue import list_jobs
from firstdrift.catalogue.matches.match_sets import add_edits, list_match_sets
from firstdrift.catalogue.migrate import FIRST, HEAD, upgrade
from firstdrift.catalogue.sharing.links import active_links
from firstdrift.catalogue.sharing.notes import notes_of
from firstdrift.catalogue.tables import Entry, JobState
from firstdrift.errors import CatalogueError
from firstdrift.matching.manual.edits import match
from firstdrift.model.slice import Coordinates, OrderSource
from firstdrift.verdict.judgement import Counts
from firstdrift.verdict.training import Trained, Training
from firstdrift.wording.text import text_of


@pytest.fixture
def another_database(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> str:
    """Return the address of one more new database, of the same kind."""
    if database.startswith("sqlite"):
        return database_url(tmp_path / "another")
    return new_postgresql_database(request.getfixturevalue("postgresql"))


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
    stepwise = first_release(another_database)
    upgrade(stepwise)
    assert form_of(stepwise) == form_of(engine)
    with stepwise.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Entry.metadata) == []
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == HEAD
    stepwise.dispose()


def test_the_newest_step_is_the_one_a_database_is_checked_for() -> None:
    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    steps = ScriptDirectory.from_config(config)
    assert (steps.get_heads(), steps.get_bases()) == ([HEAD], [FIRST])


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
    with refuses(CatalogueError, "catalogue.database.newer") as refused:
        upgrade(engine)
    file = refused.value.path
    assert file == (Path(engine.url.database or "") if engine.dialect.name == "sqlite" else None)
    with reading(engine) as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == "9999"


def test_a_database_of_before_the_first_release_is_refused_and_left_alone(engine: Engine) -> None:
    with writing(engine) as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0007'"))
    with refuses(CatalogueError, "catalogue.database.older"):
        upgrade(engine)
    with reading(engine) as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == "0007"


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


def test_a_database_of_the_first_release_is_brought_up_to_date_with_all_that_is_in_it(database: str) -> None:
    engine = first_release(database)
    upgrade(engine)
    with reading(engine) as session:
        comparison = get_comparison(session, 1)
        assert comparison.state is JobState.DONE
        assert comparison.counts == Counts(246, 171, 0, 72, 3, 1, 1, 0, 0)
        assert comparison.findings is not None
        assert "w.lin is the first bad node" in text_of(comparison.findings.summary)
        (pair,) = slice_pairs_of(session, 1)
        assert pair.golden == Coordinates(step=0, rank=0)
        rows, pairs = list(all_rows(session, pair.id)), list(all_pairs(session, pair.id))
        assert (len(rows), len(pairs)) == (pair.rows, pair.pairs)
        assert any(row.judgement.reasons for row in rows)
        assert len(load_outline(session, pair.id)) == pair.rows
        assert load_slice(session, pair.golden_slice_id).order_origin.source is OrderSource.RECORDED
        (note,) = notes_of(session, 1)
        assert (note.author, note.text) == ("Ada", "looked at: \x1a fine")
        assert [link.label for link in active_links(session, 1)] == ["for Grace"]
        (known,) = list_match_sets(session, 1)
        assert (known.name, known.version, known.results()) == ("by hand", 1, 2)
        assert all(job.is_over for job in list_jobs(session))
    with writing(engine) as session:
        assert add_edits(session, known.id, 1, (match("a", "b"),)).version == 2
    engine.dispose()


def test_rows_of_slices_of_which_nothing_was_measured_are_kept(database: str) -> None:
    engine = first_release(database)
    with writing(engine) as session:
        for table in ("pairs", "measurements"):
            session.execute(text(f"DELETE FROM {table}"))  # noqa: S608
    upgrade(engine)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, 1)
        assert len(list(all_rows(session, pair.id))) == pair.rows
        assert len(load_outline(session, pair.id)) == pair.rows
        assert list(all_pairs(session, pair.id)) == []
    engine.dispose()


def test_what_steps_of_training_showed_is_kept_apart(database: str) -> None:
    training = {"parameters": {"w": {"golden": [1.0, -1.0], "difference": 0.5}}, "noise": 0.25}
    engine = first_release(database)
    with writing(engine) as session:
        said = json.loads(
            session.scalars(text("SELECT judgement FROM slice_pairs WHERE comparison_id = 1")).one()
        )
        changed = {"said": json.dumps(said | {"training": training})}
        session.execute(text("UPDATE slice_pairs SET judgement = :said WHERE comparison_id = 1"), changed)
    upgrade(engine)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, 1)
        assert pair.judgement.training == Training({}, 0.25)
        (whole,) = whole_judgements(session, 1).values()
        assert whole.training == Training({"w": Trained((1.0, -1.0), 0.5)}, 0.25)
        assert whole.counts == pair.judgement.counts
    engine.dispose()


def test_the_room_that_steps_left_free_is_given_back(sqlite_url: str) -> None:
    engine = first_release(sqlite_url)
    upgrade(engine)
    with reading(engine) as session:
        assert session.scalar(text("PRAGMA freelist_count")) == 0
    engine.dispose()


def test_a_database_whose_step_is_not_said_is_refused(database: str) -> None:
    engine = open_engine(database)
    upgrade(engine)
    with writing(engine) as session:
        session.execute(text("DELETE FROM alembic_version"))
    with refuses(CatalogueError, "catalogue.database.not_ours"):
        upgrade(engine)
    engine.dispose()
