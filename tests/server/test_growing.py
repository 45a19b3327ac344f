"""Pages of dumps that are still being written: how far they are, what is new at a click, and an end to it."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from messages import stated
from working import wait_until, worker
from writers import Writer

from firstdrift.catalogue.dumps import following
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

Unpacked = Callable[[str], Path]
STEPS = "msprobe/llama_stat_mix_3steps"


@pytest.fixture
def root(tmp_path: Path, unpacked: Unpacked) -> Path:
    root = tmp_path.resolve() / "root"
    shutil.copytree(unpacked(STEPS) / "golden", root / "golden")
    return root


@pytest.fixture
def client(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A server with a worker that looks seldom: all that comes is asked for."""
    monkeypatch.setattr(following, "LOOK_SECONDS", 3600.0)
    settings = settings_from(roots=[root], data_dir=tmp_path / "data")
    with (
        worker(settings.database),
        TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client,
    ):
        yield client


@pytest.fixture
def writer(root: Path, unpacked: Unpacked) -> Iterator[Writer]:
    """A run that has written a step, and is at the next."""
    with Writer(unpacked(STEPS) / "target", root / "target") as writing:
        writing.write("step0/rank0")
        writing.write("step1/rank0", "half")
        yield writing


def jobs(client: TestClient) -> list[Any]:
    return [
        job for job in client.get("/api/v1/jobs?only_open=true").json()["jobs"] if job["kind"] != "follow"
    ]


def sent(client: TestClient, address: str, **fields: str) -> str:
    """Send a form, wait until a worker has done what it asks for, and give the address of the page."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = client.post(address, data=fields, headers=form)
    assert answer.status_code == 303, answer.text
    wait_until(lambda: not jobs(client))
    there = client.get(answer.headers["location"])
    return str(there.headers.get("location", answer.headers["location"]))


def rest(path: Path) -> None:
    """Let a step have been written for as long as it takes to be held to be complete."""
    then = time.time() - 30
    for file in path.rglob("*"):
        os.utime(file, (then, then))


def test_the_page_of_a_dump_says_what_is_complete_and_reads_what_is_new(
    client: TestClient, root: Path, writer: Writer
) -> None:
    address = sent(client, "/dumps", path=str(root / "target"))
    page = client.get(address).text
    assert stated(page) == ["growing"]
    assert 'data-live="4000"' in page
    found = client.get(f"{address}.json").json()
    assert [(one["step"], bool(one["unfinished"]), one["nodes"]) for one in found["slices"]] == [
        (0, False, 568),
        (1, True, None),
    ]
    assert (found["unread"], found["growing"]["complete"], found["growing"]["is_followed"]) == (0, 1, True)
    writer.write("step1/rank0")
    rest(root / "target")
    assert sent(client, "/dumps", path=str(root / "target")) == address
    found = client.get(f"{address}.json").json()
    assert [(one["step"], one["unfinished"], one["nodes"]) for one in found["slices"]] == [
        (0, None, 568),
        (1, None, 568),
    ]


def test_looking_again_is_stopped_and_begun_by_hand(client: TestClient, root: Path, writer: Writer) -> None:
    target = str(root / "target")
    address = sent(client, "/dumps", path=target)
    sent(client, "/dumps/follow", path=target, stops="yes")
    page = client.get(address).text
    assert stated(page) == ["growing-unfollowed"]
    assert "data-live" not in page
    sent(client, "/dumps", path=target)
    assert not client.get(f"{address}.json").json()["growing"]["is_followed"]
    asked = client.post("/api/v1/dumps/follow", json={"path": target})
    assert asked.status_code == 200, asked.text
    assert client.get(f"{address}.json").json()["growing"]["is_followed"]
    writer.kill()


def test_the_page_of_a_comparison_says_which_side_grows_and_compares_what_is_new(
    client: TestClient, root: Path, writer: Writer
) -> None:
    paths = {side: str(root / side) for side in ("golden", "target")}
    made = client.post("/api/v1/comparisons", json=paths).json()["id"]
    wait_until(lambda: not jobs(client))
    page = client.get(f"/c/{made}").text
    assert "growing" in stated(page)
    found = client.get(f"/api/v1/comparisons/{made}").json()
    assert [one["step"] for one in found["slices"]] == [0]
    assert [one["step"] for one in found["target"]["unfinished"]] == [1]
    assert [note["id"] for note in found["notes"]] == ["growth.not_compared"]
    writer.write("step1/rank0")
    rest(root / "target")
    assert sent(client, f"/c/{made}/new") == f"/c/{made}"
    found = client.get(f"/api/v1/comparisons/{made}").json()
    assert [one["step"] for one in found["slices"]] == [0, 1]
    assert found["target"]["unfinished"] == []
    sent(client, f"/c/{made}/follow", stops="yes")
    assert stated(client.get(f"/c/{made}").text)[0] != "growing"
    sent(client, f"/c/{made}/follow")
    again = client.post(f"/api/v1/comparisons/{made}/new")
    assert again.status_code == 200, again.text


def test_a_finished_dump_says_nothing_of_it(client: TestClient, root: Path) -> None:
    address = sent(client, "/dumps", path=str(root / "golden"))
    assert client.get(f"{address}.json").json()["growing"] is None
    assert "growing" not in stated(client.get(address).text)
