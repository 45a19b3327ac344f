"""A database of each released form is brought to the newest with rows in all its tables, and loses none."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from databases import new_postgresql_database
from fastapi.testclient import TestClient
from first_release import first_release
from soak import record, rounds
from sqlalchemy import Engine, MetaData, func, select, text

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.dumps.records import load_slice, slices_of_dump
from firstdrift.catalogue.engine import database_url, reading, writing
from firstdrift.catalogue.jobs.queue import list_jobs
from firstdrift.catalogue.matches.match_sets import list_match_sets
from firstdrift.catalogue.migrate import FIRST, HEAD, upgrade
from firstdrift.catalogue.people.audit import Act, Actor, Deed, Who, enter
from firstdrift.catalogue.people.members import add_member
from firstdrift.catalogue.sharing.links import active_links
from firstdrift.catalogue.sharing.notes import notes_of
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

KINDS = ("sqlite", "postgresql")
pytestmark = pytest.mark.timeout(rounds(600, 7200))
PAGES = (
    *("", "c/1", "c/2", "c/1/rules", "c/1/share", "c/1/s/0/tree", "c/1/s/0/n/1", "c/1/s/0/match", "dumps"),
    *(
        "dumps/1",
        "dumps/1/s/0/tree",
        "c/1/s/0/graph",
        "c/1/s/0/unmatched",
        "board?c=1",
        "audit",
        "api/v1/comparisons/1",
    ),
    "api/v1/comparisons/1/export?format=csv",
)


def steps() -> list[str]:
    """List the forms that releases gave the tables, the oldest first."""
    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    found = [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    assert (found[0], found[-1]) == (FIRST, HEAD)
    return found


def bring_to(engine: Engine, step: str) -> None:
    """Let a database be as the release of that step left it."""
    config = Config()
    config.set_main_option("script_location", "firstdrift.catalogue:migrations")
    with writing(engine) as session:
        config.attributes["connection"] = session.connection()
        command.upgrade(config, step)


def filled(engine: Engine) -> dict[str, int]:
    """Put a row into each table that has none, and count those of each."""
    tables = MetaData()
    with writing(engine) as session:
        tables.reflect(session.connection())
        if "computed" in tables.tables and not session.scalar(text("SELECT count(*) FROM computed")):
            session.execute(text("INSERT INTO computed (slice_id, node, position) VALUES (1, 0, 0)"))
        if not session.scalar(text("SELECT count(*) FROM workers")):
            now = "INSERT INTO workers (name, version, started_at, seen_at) VALUES ('host:1', '0', 0, 0)"
            session.execute(text(now))
    if "members" in tables.tables:
        with writing(engine) as session:
            add_member(session, "ann")
            enter(session, Deed(Act.MEMBER_ADDED, Who(Actor.TERMINAL, "root"), kind="member", subject="ann"))
    return counts(engine)


def counts(engine: Engine) -> dict[str, int]:
    tables = MetaData()
    with reading(engine) as session:
        tables.reflect(session.connection())
        return {
            name: session.scalar(select(func.count()).select_from(table)) or 0
            for name, table in tables.tables.items()
        }


def everything(engine: Engine) -> list[Any]:
    """Give all that is said of what the first release compared, and of what people added."""
    said: list[Any] = []
    with reading(engine) as session:
        for number in (1, 2):
            known = get_comparison(session, number)
            said += [known.findings, known.counts, known.golden, known.options, known.note, known.notes]
            for pair in slice_pairs_of(session, number):
                said += [pair, *all_rows(session, pair.id), *all_pairs(session, pair.id)]
        for dump in (1, 2):
            said += [load_slice(session, one.id) for one in slices_of_dump(session, dump)]
        said += [*notes_of(session, 1), *active_links(session, 1), *list_match_sets(session, 1)]
        said += list_jobs(session)
    return list(map(repr, said))


@pytest.fixture(params=KINDS)
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give the addresses of new databases of one kind after the other."""

    def new() -> Iterator[str]:
        for number in range(100):
            if request.param == "sqlite":
                yield database_url(tmp_path / f"database{number}")
            else:
                yield new_postgresql_database(request.getfixturevalue("postgresql"))

    return new()


def test_each_released_form_is_brought_to_the_newest_and_nothing_is_lost(
    addresses: Iterator[str], tmp_path: Path
) -> None:
    known: list[tuple[list[Any], dict[str, int]]] = []
    for step in steps():
        engine = first_release(url := next(addresses))
        bring_to(engine, step)
        before = filled(engine)
        assert {name for name, count in before.items() if not count} <= MADE_AGAIN | (
            before.keys() - known[0][1].keys() if known else set()
        )
        upgrade(engine)
        after = counts(engine)
        kept = before.keys() & after.keys() - MADE_AGAIN
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
        with reading(engine) as session:
            assert session.scalar(text("SELECT version_num FROM alembic_version")) == HEAD
        known.append((everything(engine), after))
        engine.dispose()
        open_pages(url, tmp_path)
    assert all(one[0] == other[0] for one, other in pairwise(known))
    kind = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    rows = sum(known[0][1].values())
    record(
        "upgrades",
        f"{kind}: {', '.join(steps())}: {rows} rows of {len(known[0][1])} tables: it says the same; "
        f"{len(PAGES)} pages open",
    )


MADE_AGAIN = frozenset({"plans"})
"""What an earlier version worked out is not taken over: it is made again when somebody asks for it."""


def open_pages(url: str, folder: Path) -> None:
    settings = settings_from(roots=[folder], data_dir=folder / "data", database_url=url)
    app = create_app(settings)
    with TestClient(app, base_url="http://localhost", follow_redirects=True) as client:
        statuses = {page: client.get(f"/{page}").status_code for page in PAGES}
    app.state.context.engine.dispose()
    assert set(statuses.values()) == {200}, statuses
