"""A backup of a database in use is whole, private, and the same when it is put back."""

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from messages import says
from serving import serving
from soak import record, rounds
from working import wait_until

from firstdrift.catalogue.backup import back_up
from firstdrift.catalogue.engine import database_url, open_engine
from firstdrift.catalogue.migrate import upgrade
from firstdrift.errors import CatalogueError

COMMAND = [sys.executable, "-m", "firstdrift.cli"]
TOKEN = "the token of these tests"  # noqa: S105
WRITE = """
import sys, time
from pathlib import Path
from firstdrift.catalogue.comparisons.records import create_comparison
from firstdrift.catalogue.backup import back_up
from firstdrift.catalogue.engine import open_engine, writing
from firstdrift.comparison.report import Options
engine = open_engine(sys.argv[1])
while True:
    with writing(engine, durable=True) as session:
        made = create_comparison(session, Path("/golden" + "x" * 5000), Path("/target"), Options())
    print(made, flush=True)
"""


def firstdrift(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100, **more
    )


def done(*arguments: object) -> str:
    finished = firstdrift(*arguments)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


def refused(*arguments: object, **more: Any) -> str:  # noqa: ANN401
    finished = firstdrift(*arguments, **more)
    assert finished.returncode == 2, finished.stdout
    assert "Traceback" not in finished.stderr
    assert finished.stderr.count("\n") == 1
    return finished.stderr


def number_of(file: Path, query: str) -> int:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
        (number,) = database.execute(query).fetchone()
    return int(number)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with a database that has some hundred pages."""
    folder = tmp_path / "data"
    upgrade(engine := open_engine(database_url(folder)))
    engine.dispose()
    with closing(sqlite3.connect(folder / "firstdrift.db")) as database:
        database.execute("CREATE TABLE filling (bytes BLOB)")
    fill(folder, 500)
    return folder


def fill(folder: Path, pages: int) -> None:
    """Make a database larger, while others may write to it."""
    with closing(sqlite3.connect(folder / "firstdrift.db", timeout=60)) as database:
        database.executemany("INSERT INTO filling VALUES (?)", [(os.urandom(4000),) for _ in range(pages)])
        database.commit()


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.fixture
def writers(data: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Let two processes write as fast as they can."""
    command = [sys.executable, "-c", WRITE, database_url(data)]
    with ExitStack() as all_:
        started = [
            all_.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) for _ in range(2)
        ]
        try:
            for one in started:
                assert one.stdout is not None
                assert one.stdout.readline()
            yield started
        finally:
            for one in started:
                one.kill()


def test_a_backup_while_others_write_is_whole_and_of_one_moment(
    data: Path, backups: Path, writers: list[subprocess.Popen[str]]
) -> None:
    fill(data, 10_000)  # it takes several steps to copy
    made, copies = [], rounds(3, 30)
    for number in range(copies):
        file = backups / f"{number}.db"
        done("backup", file, "--data-dir", data)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with closing(sqlite3.connect(file)) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert copy.execute("PRAGMA foreign_key_check").fetchall() == []
        # Each comparison is made together with its job.
        made.append(number_of(file, "SELECT count(*) FROM comparisons"))
        assert number_of(file, "SELECT count(*) FROM jobs") == made[-1]
    assert made == sorted(made)
    assert made[-1] > made[0] > 0
    assert [one.poll() for one in writers] == [None, None]  # nobody was kept from writing
    assert {file.name for file in backups.iterdir()} == {f"{number}.db" for number in range(copies)}
    written = made[-1] - made[0]
    record("backup", f"{copies} backups while {written} rows were written: each whole, and of one moment")


def answer(url: str) -> Any:  # noqa: ANN401 (JSON)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as got:  # noqa: S310 (our own server)
        return json.load(got)


def test_what_was_put_back_answers_as_before(
    unpacked: Callable[[str], Path], tmp_path: Path, backups: Path
) -> None:
    golden = unpacked("msit/llama4_golden_fp32")
    pair = (golden, unpacked("msit/llama4_perturb_L2_T3"))
    before, after, file = tmp_path / "before", tmp_path / "after", backups / "backup.db"
    with serving(golden.parent.parent, before, [pair], TOKEN) as url:
        wait_until(lambda: answer(f"{url}/api/v1/comparisons/1")["first_bad_node"] is not None, 100)
        known = answer(f"{url}/api/v1/comparisons/1")
        done("backup", file, "--data-dir", before)
    assert done("restore", file, "--data-dir", after).startswith("restored")
    with serving(golden.parent.parent, after, [], TOKEN) as url:
        assert answer(f"{url}/api/v1/comparisons/1") == known
    tables = counts_of(file)
    assert tables == counts_of(after / "firstdrift.db")
    record("backup", f"restored: {sum(tables.values())} rows of {len(tables)} tables, all there")
    assert stat.S_IMODE((after / "firstdrift.db").stat().st_mode) == 0o600


def counts_of(file: Path) -> dict[str, int]:
    """Count the rows of each table; of workers, one that runs has announced itself."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: number_of(file, f"SELECT count(*) FROM {name}") for name in names if name != "workers"}  # noqa: S608


def test_restoring_brings_back_what_was_and_keeps_what_is(data: Path, backups: Path) -> None:
    file, database = backups / "backup.db", data / "firstdrift.db"
    done("backup", file, "--data-dir", data)
    # What was written last is in the log alone, as after a crash: it must not be laid over the backup.
    script = (
        "import os, sqlite3, sys; database = sqlite3.connect(sys.argv[1]);"
        "database.execute('DELETE FROM filling'); database.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, database], check=True)
    assert Path(f"{database}-wal").stat().st_size
    said = done("restore", file, "--data-dir", data)
    assert number_of(database, "SELECT count(*) FROM filling") == 500
    (kept,) = data.glob("firstdrift.db.before-*Z")
    assert str(kept) in said
    assert number_of(kept, "SELECT count(*) FROM filling") == 0
    assert file.is_file()


def test_nothing_is_restored_under_a_running_server(data: Path, backups: Path) -> None:
    file = backups / "backup.db"
    with serving(backups, data, [], TOKEN):
        done("backup", file, "--data-dir", data)
        before = sorted(data.iterdir())
        said = refused("restore", file, "--data-dir", data)
        assert says(said, "catalogue.backup.in_use")
        assert not [one for one in set(data.iterdir()) - set(before) if "before" in one.name]
    wait_until(lambda: firstdrift("restore", file, "--data-dir", data).returncode == 0)


@pytest.mark.parametrize("content", [b"", b"a text", b"SQLite format 3\0" + b"\xff" * 9000, None])
def test_only_a_backup_of_firstdrift_is_restored(data: Path, backups: Path, content: bytes | None) -> None:
    file, before = backups / "backup.db", (data / "firstdrift.db").read_bytes()
    if content is None:
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE songs (name)")
    else:
        file.write_bytes(content)
    assert "backup.db" in refused("restore", file, "--data-dir", data)
    assert (data / "firstdrift.db").read_bytes() == before
    assert not list(data.glob("*before*"))


def test_a_backup_that_is_not_there_is_not_restored(data: Path, backups: Path) -> None:
    assert "backup.db" in refused("restore", backups / "lost" / "backup.db", "--data-dir", data)
    assert not list(data.glob("*before*"))


def test_a_damaged_database_can_be_replaced(data: Path, backups: Path) -> None:
    file, database = backups / "backup.db", data / "firstdrift.db"
    done("backup", file, "--data-dir", data)
    database.write_bytes(b"a text")
    done("restore", file, "--data-dir", data)
    assert number_of(database, "SELECT count(*) FROM filling") == 500


def test_a_damaged_database_does_not_replace_a_good_backup(data: Path, backups: Path) -> None:
    file, database = backups / "backup.db", data / "firstdrift.db"
    done("backup", file, "--data-dir", data)
    good = file.read_bytes()
    with database.open("r+b") as content:
        content.seek(database.stat().st_size // 8192 * 4096)
        content.write(os.urandom(65536))
    assert "damaged" in refused("backup", file, "--data-dir", data, "--force")
    assert file.read_bytes() == good
    assert list(backups.iterdir()) == [file]


def test_a_file_that_exists_is_replaced_only_if_that_is_asked_for(data: Path, backups: Path) -> None:
    file = backups / "backup.db"
    file.write_text("precious")
    file.chmod(0o644)
    assert "--force" in refused("backup", file, "--data-dir", data)
    assert file.read_text() == "precious"
    done("backup", file, "--data-dir", data, "--force")
    assert number_of(file, "SELECT count(*) FROM filling") == 500
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_name_that_would_do_harm_is_refused(
    data: Path, backups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(backups)
    database = data / "firstdrift.db"
    before = database.read_bytes()
    link, linked, pipe = backups / "link", backups / "linked-data", backups / "pipe"
    link.symlink_to(tmp_path / "elsewhere")
    linked.symlink_to(data)
    os.mkfifo(pipe)
    harmful = [
        *(database, data / "firstdrift.db-wal", data / "firstdrift.db-shm", linked / "firstdrift.db-wal"),
        *(link, pipe, backups, backups / "lost" / "backup.db", "/dev/null", backups / ("x" * 300), ""),
        *(database / "backup.db", data / "." / "firstdrift.db", "-"),
        *(data / "ended-sessions", data / "uploads"),
    ]
    for force in (False, True):
        for name in harmful:
            with pytest.raises(CatalogueError):
                back_up(database_url(data), Path(name), force=force)
    assert database.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()
    assert {one.name for one in backups.iterdir()} == {"link", "linked-data", "pipe"}
    assert Path("/dev/null").is_char_device()


def test_strange_names_are_names(data: Path, backups: Path) -> None:
    for name in (b"-rf ?mode=rwc#%41", b"new\nline", "数据.db".encode(), b"\xff\xfe a;b'c\"d"):
        file = backups / os.fsdecode(name)
        finished = firstdrift("backup", "--data-dir", data, "--", file)
        assert finished.returncode == 0, (name, finished.stderr)
        assert file.stat().st_size > 500 * 4000
        assert finished.stdout.count("\n") == 1


def test_a_data_directory_with_a_strange_name_is_backed_up(data: Path, backups: Path, tmp_path: Path) -> None:
    strange = data.rename(tmp_path / "a?mode=memory#%41 数据")
    done("backup", backups / "backup.db", "--data-dir", strange)
    assert number_of(backups / "backup.db", "SELECT count(*) FROM filling") == 500


def test_where_there_is_no_database_nothing_is_made(tmp_path: Path, backups: Path) -> None:
    said = refused("backup", backups / "backup.db", "--data-dir", tmp_path / "none")
    assert says(said, "catalogue.database.not_here")
    assert list(backups.iterdir()) == []
    assert not (tmp_path / "none").exists()


def test_a_database_on_a_server_is_left_to_its_own_means(
    backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://somebody:their-secret@127.0.0.1:1/firstdrift"
    monkeypatch.setenv("FIRSTDRIFT_DATABASE_URL", url)
    for command, means in (("backup", "pg_dump"), ("restore", "pg_restore")):
        said = refused(command, backups / "backup.db")
        assert means in said
        assert "their-secret" not in said
    assert list(backups.iterdir()) == []


def test_a_copy_that_finds_no_room_leaves_nothing_behind(data: Path, backups: Path) -> None:
    # The system refuses longer files, as it refuses more bytes on a full disk.
    limited = 'ulimit -f 1000; exec "$@"'
    file = backups / "backup.db"
    finished = subprocess.run(
        ["bash", "-c", limited, "bash", *COMMAND, "backup", file, "--data-dir", data],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2, finished.stderr
    assert says(finished.stderr, "catalogue.backup.not_written")
    assert list(backups.iterdir()) == []


def can_mount() -> bool:
    program = shutil.which("unshare")
    mount = ["--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return (
        program is not None
        and not subprocess.run([program, *mount], capture_output=True, check=False).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="nobody here may mount a disk of their own")
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_disk_that_is_too_small_is_said_to_be_before_anything_is_written(
    data: Path, backups: Path, force: list[str]
) -> None:
    script = (
        'disk=$1; shift; mount -t tmpfs -o size=1m none "$disk"; "$@"; status=$?; ls -A "$disk"; exit $status'
    )
    command = [*COMMAND, "backup", backups / "backup.db", "--data-dir", data, *force]
    finished = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", script, "bash", backups, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert says(finished.stderr, "catalogue.backup.no_room")
    assert finished.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_backup_that_is_stopped_leaves_nothing_behind(
    data: Path, backups: Path, number: signal.Signals
) -> None:
    with closing(sqlite3.connect(data / "firstdrift.db")) as database:
        for _ in range(6):
            database.execute("INSERT INTO filling SELECT bytes FROM filling")
        database.commit()
    command = [*COMMAND, "backup", str(backups / "backup.db"), "--data-dir", str(data)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and not any(backups.iterdir()):
            time.sleep(0.001)
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)
    assert "Traceback" not in errors
    if running.returncode:  # it may have been faster
        assert list(backups.iterdir()) == []
    else:
        assert [one.name for one in backups.iterdir()] == ["backup.db"]
