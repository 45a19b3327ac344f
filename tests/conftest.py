"""Real dumps for the tests, unpacked once per session, and real databases, a new one for each test."""

import gc
import lzma
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from sqlalchemy import Engine

ARCHIVES = Path(__file__).parent / "dumps"

SLOW = ("browser", "reliability", "truth", "worker")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slow folders first: what is short fills the gaps at the end."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in SLOW)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:  # noqa: ANN401 (xdist has no types)
    """Run in one process what shares what is costly: the tests of a file, and all that need a browser."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "browser" if "/browser/" in file else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Spell out what is no text in the message of a failing test: it could not be sent to another process."""
    report = yield
    said = report.longreprtext if report.failed else ""
    if (spelled := said.encode("utf-8", "backslashreplace").decode()) != said:
        report.longrepr = spelled
    return report


def pytest_collection_finish() -> None:
    """Spare what lives as long as the process from being searched for garbage: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


# How long an example takes depends on what else the machine does: no test is to fail for that.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that unpacks `tests/dumps/<family>/<name>.tar.xz` and gives its folder.

    The folder is shared by all tests, in all processes: copy it before you change it.
    """
    mine = tmp_path_factory.getbasetemp()
    together = (mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "unpacked"

    def unpack(name: str) -> Path:
        target = together / name.replace("/", "-")
        if not target.is_dir():
            extracted = tmp_path_factory.mktemp("extracted")
            # All archives hold fifty thousand files: Python's tarfile takes seven times as long for them.
            command = ("tar", "-x", "-f", "-", "--no-same-owner", "-C", extracted)
            packed = lzma.decompress((ARCHIVES / f"{name}.tar.xz").read_bytes())
            subprocess.run(command, input=packed, check=True)
            together.mkdir(exist_ok=True)
            with suppress(OSError):  # another process was faster
                extracted.rename(target)
        return target / Path(name).name

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


@pytest.fixture
def address(sqlite_url: str) -> str:
    """Return the address of the database that `engine` opens: of SQLite, where a folder says nothing else."""
    return sqlite_url


@pytest.fixture
def engine(address: str) -> "Iterator[Engine]":
    """Open a new database whose tables are up to date."""
    from firstdrift.catalogue.engine import open_engine
    from firstdrift.catalogue.migrate import upgrade

    engine = open_engine(address)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """Return the address of a new database, of one kind after the other."""
    from databases import new_postgresql_database

    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return new_postgresql_database(request.getfixturevalue("postgresql"))
