"""What firstdrift keeps is for its owner alone, whatever the umask and whoever made the folder."""

import io
import os
import sqlite3
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from running import FIRSTDRIFT, Browser, running

from firstdrift.catalogue.private import keep_to_owner
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_the_data_directory_and_the_database_are_made_so(tmp_path: Path, token: str) -> None:
    data = tmp_path / "not there" / "data"
    app = create_app(settings_from(roots=[tmp_path], data_dir=data, token=token))
    with TestClient(app, base_url="http://localhost") as client:
        client.get("/", params={"token": token})
        client.post("/logout", headers=FORM)
        kept = {path.name: mode(path) for path in data.iterdir()}
    names = ("firstdrift.db", "firstdrift.db-wal", "firstdrift.db-shm", "ended-sessions")
    assert kept == dict.fromkeys(names, 0o600)
    assert mode(data) == mode(data.parent) == 0o700


@pytest.mark.usefixtures("umask")
def test_uploads_are_made_so(tmp_path: Path) -> None:
    app = create_app(settings_from(roots=[tmp_path], data_dir=tmp_path / "data"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        wide = tarfile.TarInfo("run/rank0/dump.json")
        wide.mode, wide.size = 0o666, 2
        archive.addfile(wide, io.BytesIO(b"{}"))
    with TestClient(app, base_url="http://localhost") as client:
        for name, content in (("run/dump.json", b"{}"), ("run.tar", packed.getvalue())):
            listed = {"name": "run", "files": [{"path": name, "size": len(content)}]}
            upload = client.post("/api/v1/uploads", json=listed).json()
            arrived = client.put(f"/api/v1/uploads/{upload['id']}/files/0?offset=0", content=content)
            assert arrived.status_code == 200, arrived.text
            began = tmp_path / "data" / "uploads"
            made = [path for path in began.rglob("*") if "files" in path.parts or path.name.endswith(".json")]
            assert made
            for path in made:
                assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(tmp_path / "data" / "uploads") == 0o700


@pytest.mark.parametrize("command", ["server", "worker"])
def test_what_an_earlier_version_left_open_is_closed_and_that_is_said(tmp_path: Path, command: str) -> None:
    data = tmp_path / "data"
    (data / "uploads").mkdir(parents=True)
    database = data / "firstdrift.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    for path, wide in ((data, 0o755), (data / "uploads", 0o775), (database, 0o644)):
        path.chmod(wide)
    if command == "server":
        with running(tmp_path, command) as server:
            assert Browser().open(server.url)[0] == 200
            server.process.terminate()
            assert server.process.stderr is not None
            said = server.process.stderr.read()
    else:
        run = [*FIRSTDRIFT, command, "--data-dir", str(data), "--end-with-parent", "1"]
        said = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False).stderr
    for path, wide in ((data, "0755"), (data / "uploads", "0775"), (database, "0644")):
        assert f"others could get at {path} (mode {wide}): now its owner alone can" in said
    assert [mode(path) for path in (data, data / "uploads", database)] == [0o700, 0o700, 0o600]


def test_of_a_folder_that_holds_other_things_only_what_is_ours_is_closed(tmp_path: Path) -> None:
    for name in ("firstdrift.db", "notes.txt"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    (tmp_path / "ended-sessions").symlink_to(tmp_path / "notes.txt")
    tmp_path.chmod(0o755)
    (said,) = keep_to_owner(tmp_path, is_default=False)
    assert "firstdrift.db (mode 0644)" in said
    assert [mode(tmp_path), mode(tmp_path / "notes.txt")] == [0o755, 0o644]
    assert len(list(keep_to_owner(tmp_path, is_default=True))) == 1
    assert [mode(tmp_path), mode(tmp_path / "notes.txt")] == [0o700, 0o644]
    assert list(keep_to_owner(tmp_path, is_default=True)) == []
