"""Two servers on one data directory: both write, are killed in turn, and know what the other has done."""

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from clients import Client
from running import Browser, Running, running
from soak import record, rounds
from working import compare_with_worker, wait_until

from firstdrift.catalogue.engine import database_url

WRITES = rounds(20, 1000)
"""Notes that are written through each of the two."""

KILLS = rounds(2, 20)
NOTES = "/api/v1/comparisons/1/slices/0/rows/1/notes"
TOKEN = "the token of these two servers"  # noqa: S105
pytestmark = pytest.mark.timeout(rounds(600, 7200))


@pytest.fixture
def dumps(unpacked: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Path]:
    """Two dumps, which are compared in the data directory below `tmp_path`."""
    pair = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    compare_with_worker(database_url(tmp_path / "data"), *pair)
    return pair


def written(url: str, name: str, count: int) -> list[int]:
    """Write so many notes through a server; return their ids."""
    client = Client(url)
    said = [{"author": name, "text": f"note {number}"} for number in range(count)]
    return [client.data("POST", NOTES, one)["id"] for one in said]


def notes(url: str) -> set[int]:
    return {one["id"] for one in Client(url).data("GET", "/api/v1/comparisons/1/notes")["notes"]}


def test_both_write_at_once_and_show_what_the_other_wrote(tmp_path: Path, dumps: tuple[Path, Path]) -> None:
    made: dict[str, list[int]] = {}
    roots = [str(dump) for dump in dumps]
    with (
        running(tmp_path, "serve", *roots, "--workers", "1", "--no-token") as one,
        running(tmp_path, "serve", *roots, "--workers", "1", "--no-token") as other,
    ):

        def write(url: str) -> None:
            made[url] = written(url, url, WRITES)

        threads = [threading.Thread(target=write, args=(server.url,)) for server in (one, other)]
        for thread in threads:
            thread.start()
        asked = {"golden": roots[0], "target": roots[1]}
        comparison = Client(one.url).data("POST", "/api/v1/comparisons", asked)["id"]
        for thread in threads:
            thread.join()
        place = f"/api/v1/comparisons/{comparison}"
        wait_until(lambda: Client(other.url).data("GET", place)["state"] == "done", 120)
        assert Client(other.url).data("GET", place) == Client(one.url).data("GET", place)
        all_of_them = {note for ids in made.values() for note in ids}
        assert len(all_of_them) == 2 * WRITES
        assert notes(one.url) == notes(other.url) == all_of_them
    record(
        "two_servers", f"two servers and two workers: {2 * WRITES} notes written at once, 0 lost, 0 errors"
    )


def test_an_upload_begun_at_one_is_finished_at_the_other_however_often_one_is_killed(
    tmp_path: Path, dumps: tuple[Path, Path]
) -> None:
    del dumps
    content = random.Random(1).randbytes(KILLS * 100_000)  # noqa: S311
    with ExitStack() as stack:
        servers: list[Running] = [stack.enter_context(start(tmp_path)) for _ in range(2)]
        files = [{"path": "run/tensor.bin", "size": len(content)}]
        made = Client(servers[0].url).data("POST", "/api/v1/uploads", {"name": "run", "files": files})["id"]
        there = 0
        for number in range(KILLS):
            for turn in (number, number + 1):
                piece = content[there : there + 50_000]
                path = f"/api/v1/uploads/{made}/files/0?offset={there}"
                there = Client(servers[turn % 2].url).data("PUT", path, raw=piece)["arrived"]
            os.kill(servers[number % 2].process.pid, signal.SIGKILL)
            written(servers[(number + 1) % 2].url, "Ada", 1)
            servers[number % 2] = stack.enter_context(start(tmp_path))
        landed = Client(servers[1].url).data("POST", f"/api/v1/uploads/{made}/complete")["dump"]["path"]
        (file,) = (one for one in Path(landed).rglob("*") if one.is_file())
        assert file.read_bytes() == content
        assert len(notes(servers[0].url)) == KILLS
    record("two_servers", f"{KILLS} kills in turn: an upload goes on at the other one, 0 bytes lost")


def start(folder: Path) -> AbstractContextManager[Running]:
    return running(folder, "server", "--no-token")


def test_who_logs_out_at_one_is_logged_out_at_the_other(tmp_path: Path, dumps: tuple[Path, Path]) -> None:
    del dumps
    with (
        running(tmp_path, "server", FIRSTDRIFT_TOKEN=TOKEN) as one,
        running(tmp_path, "server", FIRSTDRIFT_TOKEN=TOKEN) as other,
    ):
        browser = Browser()
        assert browser.open(f"{one.url}login", f"token={TOKEN}".replace(" ", "+").encode())[0] == 200
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies)

        def is_in(server: Running) -> bool:
            status, _ = server.ask("GET /c/1 HTTP/1.1", "Host: localhost", f"Cookie: {cookies}")
            return status == 200

        assert is_in(one)
        assert is_in(other)
        assert browser.open(f"{one.url}logout", b"")[1].endswith("left=yes")
        assert not is_in(one)
        wait_until(lambda: not is_in(other))
