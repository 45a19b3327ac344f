import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from messages import ids_of, refuses
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from firstdrift.catalogue import engine as engines
from firstdrift.catalogue.comparisons.records import create_comparison, list_comparisons
from firstdrift.catalogue.engine import database_url, journal_mode, open_engine, reading, writing
from firstdrift.catalogue.migrate import upgrade
from firstdrift.comparison.report import Options
from firstdrift.errors import CatalogueError, SettingsError

A, B = Path("/dumps/golden"), Path("/dumps/target")


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Engine]:
    with opened(sqlite_url) as engine:
        upgrade(engine)
        yield engine


def make_a_good_and_a_bad_one(session: Session) -> None:
    create_comparison(session, B, A, Options())
    create_comparison(session, B, A, Options(rules="no such rules"))


def test_what_was_written_is_there_and_what_failed_has_left_nothing(engine: Engine) -> None:
    with writing(engine) as session:
        create_comparison(session, A, B, Options())
    with pytest.raises(SettingsError), writing(engine) as session:
        make_a_good_and_a_bad_one(session)
    with reading(engine) as session:
        assert [found.golden_path for found in list_comparisons(session)] == [A]


def test_a_reader_cannot_write(engine: Engine) -> None:
    with pytest.raises(CatalogueError), reading(engine) as session:
        create_comparison(session, A, B, Options())


def test_a_reader_sees_one_moment(engine: Engine) -> None:
    with reading(engine) as session:
        assert list_comparisons(session) == ()
        with writing(engine) as other:
            create_comparison(other, A, B, Options())
        assert list_comparisons(session) == ()


def test_writers_that_read_first_wait_for_each_other(engine: Engine) -> None:
    with writing(engine) as session:
        comparison = create_comparison(session, A, B, Options())
    errors = []

    def count_up() -> None:
        for _ in range(20):
            try:
                with writing(engine) as session:
                    lock = " FOR UPDATE" if engine.dialect.name == "postgresql" else ""
                    query = f"SELECT revision FROM comparisons WHERE id = {comparison}{lock}"  # noqa: S608
                    revision = session.scalar(text(query))
                    session.execute(text(f"UPDATE comparisons SET revision = {revision + 1}"))  # noqa: S608
            except CatalogueError as error:
                errors.append(error)

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with reading(engine) as session:
        assert session.scalar(text("SELECT revision FROM comparisons")) == 1 + 4 * 20


def test_a_query_that_was_not_read_to_its_end_leaves_no_view_behind(engine: Engine) -> None:
    for name in ("one", "two", "three"):
        with writing(engine) as session:
            create_comparison(session, Path(name), B, Options())
    with reading(engine) as session:
        unfinished = session.execute(text("SELECT id FROM comparisons"))
        assert unfinished.fetchone() is not None
    with opened(engine.url.render_as_string(hide_password=False)) as other, writing(other) as session:
        create_comparison(session, A, B, Options())
    with reading(engine) as session:
        assert len(list_comparisons(session)) == 4
    with writing(engine) as session:
        create_comparison(session, B, A, Options())
    del unfinished


def test_sqlite_is_set_up_to_be_shared_by_processes(sqlite: Engine) -> None:
    with reading(sqlite) as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA busy_timeout")) == 15_000
        assert session.scalar(text("PRAGMA foreign_keys")) == 1


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
def test_what_a_person_made_survives_a_power_cut(sqlite: Engine, durable: bool, synchronous: int) -> None:
    with writing(sqlite, durable=durable) as session:
        assert session.scalar(text("PRAGMA synchronous")) == synchronous


def test_a_locked_database_is_an_error_that_says_so(sqlite: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUSY_TIMEOUT_MS", 50)
    with (
        opened(str(sqlite.url)) as impatient,
        writing(sqlite),
        refuses(CatalogueError, "catalogue.database.held_too_long"),
        writing(impatient),
    ):
        pass


def test_when_all_connections_are_in_use_that_is_an_error_that_says_so(sqlite: Engine) -> None:
    scarce = create_engine(sqlite.url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01)
    with reading(scarce) as session:
        session.execute(text("SELECT 1"))
        for use in (reading, writing):
            with (
                refuses(CatalogueError, "catalogue.database.no_connection_free"),
                use(scarce) as other,
            ):
                other.execute(text("SELECT 1"))
    scarce.dispose()


def test_a_full_disk_is_an_error_and_work_goes_on_when_there_is_space(sqlite: Engine) -> None:
    def fill() -> None:
        with writing(sqlite) as session:
            for _ in range(100):
                create_comparison(session, A, B, Options(), note="x" * 10_000)

    with sqlite.connect() as connection:  # a limit holds for the connection that set it
        pages = connection.scalar(text("PRAGMA page_count"))
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")
    with refuses(CatalogueError, "catalogue.database.full_disk") as caught:
        fill()
    assert "catalogue.hint.free_space_and_go_on" in ids_of(caught.value.advice)
    with reading(sqlite) as session:
        assert list_comparisons(session) == ()
    with sqlite.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    fill()
    with reading(sqlite) as session:
        assert session.scalar(text("SELECT count(*) FROM comparisons")) == 100
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"


def test_a_file_that_is_no_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "firstdrift.db"
    file.write_bytes(b"this is no database at all, whatever its name says" * 100)
    with (
        opened(database_url(tmp_path)) as engine,
        refuses(CatalogueError, "catalogue.database.damaged_or_none") as caught,
    ):
        upgrade(engine)
    assert caught.value.path == file


def test_a_data_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refuses(CatalogueError, "catalogue.database.no_data_directory"):
        open_engine(database_url(tmp_path / "file" / "data"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Be a user without rights while the block runs; root would be let through everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_data_directory_that_is_read_only_is_an_error(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with somebody_else(), refuses(CatalogueError, "catalogue.database.not_opened") as caught:
        upgrade(open_engine(database_url(open_folder)))
    assert "catalogue.hint.check_permissions" in ids_of(caught.value.advice)


def test_a_database_that_is_read_only_is_an_error_when_it_is_written(open_folder: Path) -> None:
    with opened(database_url(open_folder)) as engine:
        upgrade(engine)
        with reading(engine):  # keeps the files of the log there
            for file in open_folder.iterdir():
                file.chmod(0o444)
            open_folder.chmod(0o555)
            with somebody_else(), opened(database_url(open_folder)) as theirs:
                with reading(theirs) as session:
                    assert list_comparisons(session) == ()
                with refuses(CatalogueError, "catalogue.database.not_writable"), writing(theirs) as session:
                    create_comparison(session, A, B, Options())
            open_folder.chmod(0o755)


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true", "mysql://host/name"],
)
def test_an_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(CatalogueError):
        open_engine(url)


def test_a_server_that_does_not_answer_is_an_error_without_its_password() -> None:
    pytest.importorskip("psycopg")
    engine = open_engine("postgresql://user:secret@127.0.0.1:1/name")
    with pytest.raises(CatalogueError) as caught:
        upgrade(engine)
    assert "secret" not in str(caught.value)


def test_a_network_drive_gets_a_journal_that_works_there() -> None:
    mounts = (
        "/dev/sda1 / ext4 rw 0 0\n"
        "server:/export /shared nfs4 rw 0 0\n"
        "/dev/sdb1 /shared/fast xfs rw 0 0\n"
        "//nas/x /with\\040space cifs rw 0 0\n"
    )
    assert journal_mode(Path("/data"), mounts) == "WAL"
    assert journal_mode(Path("/shared"), mounts) == "DELETE"
    assert journal_mode(Path("/shared/team/data"), mounts) == "DELETE"
    assert journal_mode(Path("/shared-not"), mounts) == "WAL"
    assert journal_mode(Path("/shared/fast/data"), mounts) == "WAL"
    assert journal_mode(Path("/with space/data"), mounts) == "DELETE"
    assert journal_mode(Path("/data"), "") == "WAL"


def test_on_a_network_drive_it_works_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "NETWORK_FILE_SYSTEMS", frozenset({mount_type(tmp_path)}))
    with opened(database_url(tmp_path)) as engine:
        upgrade(engine)
        assert "network drive" in caplog.text
        with writing(engine) as session:
            create_comparison(session, A, B, Options())
            assert session.scalar(text("PRAGMA journal_mode")) == "delete"
        with reading(engine) as session:
            assert len(list_comparisons(session)) == 1


def mount_type(directory: Path) -> str:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return max((len(at), kind) for _, at, kind, *_ in mounts if directory.is_relative_to(at))[1]


def test_a_process_that_does_not_checkpoint_leaves_the_log_to_others(sqlite: Engine) -> None:
    reader = open_engine(str(sqlite.url), checkpoints=False)
    with reading(reader) as session:
        assert session.scalar(text("PRAGMA wal_autocheckpoint")) == 0
    reader.dispose()
