"""Real dumps for the tests, unpacked once per session, and real databases, a new one for each test."""

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

ARCHIVES = Path(__file__).parent / "dumps"

# How long an example takes depends on what else the machine does: no test is to fail for that.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that unpacks `tests/dumps/<family>/<name>.tar.xz` and gives its folder.

    The folder is shared by all tests: copy it before you change it.
    """
    folders: dict[str, Path] = {}

    def unpack(name: str) -> Path:
        if name not in folders:
            target = tmp_path_factory.mktemp("dumps")
            with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
                archive.extractall(target, filter="data")
            folders[name] = target / Path(name).name
        return folders[name]

    return unpack


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL server for the session; skips where there can be none."""
    from databases import postgresql_server, why_no_postgresql

    if reason := why_no_postgresql():
        pytest.skip(reason)
    with postgresql_server() as address:
        yield address


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return the address of a new SQLite database."""
    from firstdrift.catalogue.engine import database_url

    return database_url(tmp_path / "catalogue")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """Return the address of a new database, of one kind after the other."""
    from databases import new_postgresql_database

    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return new_postgresql_database(request.getfixturevalue("postgresql"))
