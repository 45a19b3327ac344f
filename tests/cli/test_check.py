"""`firstdrift check`: what is well is said to be, what is not has one sentence of its own."""

import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from databases import new_postgresql_database
from messages import says
from sqlalchemy import insert
from working import compare_with_worker

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.engine import database_url, open_engine, writing
from firstdrift.catalogue.jobs.lease import worker_seen
from firstdrift.catalogue.migrate import HEAD, upgrade
from firstdrift.catalogue.tables import JobEntry

MIDDLE = 64 * 1024


@pytest.fixture(scope="module")
def compared(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a database with a comparison in it; copy it before you change it."""
    folder = tmp_path_factory.mktemp("compared")
    compare_with_worker(
        database_url(folder), unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_bf16_bad_L7_T2")
    )
    with closing(sqlite3.connect(folder / "firstdrift.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")  # all in one file
    return folder / "firstdrift.db"


@pytest.fixture
def data(compared: Path, tmp_path: Path) -> Path:
    """Return a data directory with a database, and a root to be looked at."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    shutil.copy(compared, folder)
    (folder / "firstdrift.db").chmod(0o600)
    (tmp_path / "root").mkdir()
    return folder


@pytest.fixture
def check(firstdrift: Callable[..., object], data: Path) -> Callable[..., dict[str, tuple[str, str]]]:
    """Return a function that checks; it gives what is said of each subject, and with which mark."""

    def run(*options: str) -> dict[str, tuple[str, str]]:
        done = firstdrift("check", "--data-dir", data, data.parent / "root", *options)
        assert "Traceback" not in done.err
        assert done.err == ""
        found = {}
        for line in done.out.splitlines():
            mark, subject, said = line.split(maxsplit=2)
            found[subject] = (mark, said)
        assert done.status == any(mark == "FAIL" for mark, _ in found.values())
        return found

    return run


Check = Callable[..., dict[str, tuple[str, str]]]


def overwrite(file: Path, begin: int, size: int = MIDDLE) -> None:
    with file.open("r+b") as content:
        content.seek(begin)
        content.write(os.urandom(size))


def test_a_whole_database_is_well_and_left_as_it_is(data: Path, check: Check) -> None:
    before = (data / "firstdrift.db").read_bytes()
    found = check()
    assert found["database"][0] in {"ok", "warn"}
    assert "damaged" not in found["database"][1]
    assert found["worker"][0] == "FAIL"
    assert (data / "firstdrift.db").read_bytes()[100:] == before[100:]


def test_a_worker_that_lives_is_named(data: Path, check: Check) -> None:
    engine = open_engine(database_url(data))
    worker_seen(engine, "the worker of this test")
    engine.dispose()
    assert check("--quick")["worker"] == ("ok", "the worker of this test")


def test_a_worker_that_lives_and_takes_nothing_is_told_apart(data: Path, check: Check) -> None:
    engine = open_engine(database_url(data))
    worker_seen(engine, "here:17")
    assert check("--quick")["worker"] == ("ok", "here:17")
    with writing(engine) as session:
        session.execute(insert(JobEntry).values(kind="compare", created_at=Now(-300), ready_at=Now(-300)))
    mark, said = check("--quick")["worker"]
    engine.dispose()
    assert mark == "FAIL"
    assert re.search(r"here:17 take no job, and one waits for 3\d\d s", said)


@pytest.mark.parametrize("table", ["slice_pairs", "node_blocks"])
def test_overwritten_pages_are_found_and_the_table_is_named(data: Path, check: Check, table: str) -> None:
    file = data / "firstdrift.db"
    with closing(sqlite3.connect(file)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()
    overwrite(file, (page - 1) * 4096, 4096)
    mark, said = check()["database"]
    assert mark == "FAIL"
    assert re.search(r"table \w+ is damaged \(", said), said
    assert "\n" not in said


def test_overwritten_pages_are_found_wherever_they_are(compared: Path, data: Path, check: Check) -> None:
    file = data / "firstdrift.db"
    for begin in range(0, file.stat().st_size - MIDDLE, file.stat().st_size // 4):
        shutil.copyfile(compared, file)
        overwrite(file, begin)
        assert check()["database"][0] == "FAIL", begin


def test_a_database_that_was_cut_off_is_said_to_be(data: Path, check: Check) -> None:
    file = data / "firstdrift.db"
    whole = file.stat().st_size
    os.truncate(file, whole // 2)
    mark, said = check()["database"]
    assert mark == "FAIL"
    assert f"cut short: {whole // 2:,} of {whole:,} bytes" in said


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "empty"),
        (b"just a text\n" * 1000, "not_sqlite"),
        (b"SQLite format 3\0", "damaged"),
        (b"SQLite format 3\0" + b"\xff" * 20_000, "damaged"),
    ],
    ids=["empty", "text", "header-alone", "header-and-noise"],
)
@pytest.mark.parametrize("option", ["--quick", "--seconds=60"])
def test_what_is_no_database_is_one_clear_sentence(
    data: Path, check: Check, content: bytes, sentence: str, option: str
) -> None:
    (data / "firstdrift.db").write_bytes(content)
    mark, said = check(option)["database"]
    assert mark == "FAIL"
    assert says(said, f"catalogue.database.{sentence}")
    assert (data / "firstdrift.db").read_bytes() == content


def test_where_there_is_no_database_none_is_made(data: Path, check: Check) -> None:
    (data / "firstdrift.db").unlink()
    mark, said = check()["database"]
    assert (mark, list(data.iterdir())) == ("FAIL", [])
    assert says(said, "catalogue.database.not_here")
    data.rmdir()
    assert check()["database"][0] == "FAIL"
    assert not data.exists()


def test_a_directory_or_a_pipe_in_place_of_the_database_is_named(data: Path, check: Check) -> None:
    (data / "firstdrift.db").unlink()
    os.mkfifo(data / "firstdrift.db")
    assert check()["database"][0] == "FAIL"
    (data / "firstdrift.db").unlink()
    (data / "firstdrift.db").mkdir()
    assert says(check()["database"][1], "catalogue.database.no_file")


def change(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "firstdrift.db")) as database:
        database.execute(statement)
        database.commit()


def test_a_table_that_is_gone_is_missed(data: Path, check: Check) -> None:
    change(data, "DROP TABLE node_notes")
    mark, said = check()["database"]
    assert mark == "FAIL"
    assert "lacks the tables node_notes" in said


def test_rows_that_refer_to_nothing_are_counted(data: Path, check: Check) -> None:
    change(data, "DELETE FROM dumps")
    mark, said = check()["database"]
    assert mark == "FAIL"
    assert "refer to rows of dumps that are not there" in said


def test_an_earlier_version_is_well_and_a_newer_one_is_not(data: Path, check: Check) -> None:
    change(data, "UPDATE alembic_version SET version_num = '0008'")
    mark, said = check()["database"]
    assert (mark, "earlier version (0008)" in said) == ("warn", True)
    change(data, "UPDATE alembic_version SET version_num = '9999'")
    mark, said = check()["database"]
    assert (mark, HEAD in said) == ("FAIL", True)


def test_the_database_of_another_program_is_not_taken_for_ours(data: Path, check: Check) -> None:
    (data / "firstdrift.db").unlink()
    change(data, "CREATE TABLE songs (name)")
    mark, said = check()["database"]
    assert (mark, says(said, "catalogue.database.not_ours")) == ("FAIL", True)


def test_it_says_which_tables_it_had_no_time_for(check: Check) -> None:
    mark, said = check("--seconds", "0")["database"]
    assert mark == "warn"
    assert re.search(r"0 s were not enough to read sqlite_schema, .*pair_blocks", said)


def test_a_quick_check_does_not_read_it_all(data: Path, check: Check) -> None:
    file = data / "firstdrift.db"
    overwrite(file, file.stat().st_size // 2)
    assert check("--quick")["database"][0] != "FAIL"


def test_who_else_may_read_it_is_said(data: Path, check: Check) -> None:
    assert check("--quick")["privacy"][0] == "ok"
    data.chmod(0o755)
    assert check("--quick")["privacy"][0] == "warn"
    data.chmod(0o700)
    (data / "firstdrift.db").chmod(0o640)
    assert "firstdrift.db" in check("--quick")["privacy"][1]


def test_room_for_bytes_and_for_files_is_looked_at(check: Check) -> None:
    found = check("--quick")
    assert "GiB free" in found["disk"][1]
    assert "files" not in found or "more files" in found["files"][1]


@pytest.fixture
def being_written(data: Path) -> Iterator[None]:
    """Let somebody write to the database while the test runs."""
    url, stop = database_url(data), threading.Event()
    upgrade(engine := open_engine(url))

    def write() -> None:
        with closing(sqlite3.connect(data / "firstdrift.db", timeout=30)) as database:
            while not stop.wait(0.001):
                database.execute("UPDATE jobs SET attempts = attempts + 1")
                database.commit()

    writer = threading.Thread(target=write)
    writer.start()
    yield
    stop.set()
    writer.join()
    engine.dispose()


@pytest.mark.usefixtures("being_written")
def test_a_database_that_is_written_to_meanwhile_is_no_damaged_one(check: Check) -> None:
    for _ in range(2):
        assert check()["database"][0] != "FAIL"


def test_a_database_on_a_server_is_looked_at_too(
    firstdrift: Callable[..., object], postgresql: str, tmp_path: Path
) -> None:
    url = new_postgresql_database(postgresql)
    empty = firstdrift("check", "--database-url", url, "--data-dir", tmp_path)
    assert "no tables of firstdrift" in empty.out
    upgrade(engine := open_engine(url))
    engine.dispose()
    found = firstdrift("check", "--database-url", url, "--data-dir", tmp_path)
    assert re.search(r"^ok +database", found.out, re.MULTILINE), found.out
