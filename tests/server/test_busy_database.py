"""What is promised while another process writes: reading goes on, writing is told when to try again."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from messages import says

from firstdrift.catalogue import engine
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from


@pytest.fixture
def choice(unpacked: Callable[[str], Path]) -> dict[str, str]:
    """Two dumps that can be compared."""
    folder = unpacked("msprobe/llama_stat_list")
    return {"golden": str(folder / "golden"), "target": str(folder / "target")}


@pytest.fixture
def busy(tmp_path: Path, choice: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A server with one comparison, whose database another process is writing to."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 50)
    app = create_app(settings_from(roots=list(map(Path, choice.values())), data_dir=tmp_path))
    other = sqlite3.connect(tmp_path / "firstdrift.db", isolation_level=None)
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        made = client.post("/api/v1/comparisons", json=choice)
        assert made.status_code == 201, made.text
        other.execute("BEGIN IMMEDIATE")
        yield client
    other.close()


def test_who_changes_something_is_told_to_try_again(busy: TestClient, choice: dict[str, str]) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    for answer in (
        busy.post("/api/v1/comparisons", json=choice),
        busy.post("/api/v1/comparisons/1/cancel"),
        busy.post("/c/1/cancel", headers=form),
        busy.post("/new", data=choice),
    ):
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) > 0
        assert says(answer.text, "catalogue.database.held_too_long")


def test_who_looks_at_something_waits_for_nobody(busy: TestClient) -> None:
    for address in ("/", "/c/1", "/api/v1/comparisons/1"):
        assert busy.get(address).status_code == 200
