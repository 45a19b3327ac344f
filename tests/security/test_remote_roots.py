"""What a server was started with lies below its roots; an address that a visitor sends reaches nothing."""

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from running import Running, running
from working import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples/msprobe-llama-statistics"
PROGRAM = """
import sys
from pathlib import Path
import fsspec
from fsspec.implementations.memory import MemoryFileSystem
system = fsspec.filesystem("memory")
system.put({example!r}, "/dumps/runs", recursive=True)
system.pipe("/private/secret.npy", b"secret")
def noting(name):
    done = getattr(MemoryFileSystem, name)
    def note(self, *given, **named):
        with Path({log!r}).open("a") as log:
            print(name, *given, file=log)
        return done(self, *given, **named)
    setattr(MemoryFileSystem, name, note)
for name in ("ls", "info", "get_file", "open", "_open", "cat_file", "exists"):
    noting(name)
from firstdrift.cli import run
run()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remote").resolve()
    (folder / "dumps").mkdir()
    (folder / "cache" / "other" / "files").mkdir(parents=True)
    shutil.copytree(EXAMPLE, folder / "cache" / "other" / "files" / "dump")
    return folder


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Running]:
    """A server that was started with a folder and an address, and fetches into a cache that holds more."""
    program = PROGRAM.format(example=str(EXAMPLE), log=str(place / "log"))
    options = ("memory://dumps", "--no-token", "--workers", "1")
    cache = {"FIRSTDRIFT_CACHE": str(place / "cache")}
    with running(place / "dumps", "serve", *options, program=program, **cache) as started:
        yield started


def browse(server: Running, path: str) -> tuple[int, str]:
    return server.ask(f"GET /api/v1/browse?path={quote(path, safe='')} HTTP/1.1", "Host: localhost")


def post(server: Running, where: str, **sent: str) -> tuple[int, str]:
    body = json.dumps(sent)
    lines = (f"POST /api/v1/{where} HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return server.ask(*lines, f"Content-Length: {len(body)}", body=body)


def answer_of(said: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(said.partition("\r\n\r\n")[2])
    return found


def test_what_lies_at_the_address_is_browsed_and_compared(server: Running, place: Path) -> None:
    status, said = browse(server, "")
    assert status == 200
    roots = [Path(entry["path"]) for entry in answer_of(said)["entries"]]  # type: ignore[index, attr-defined]
    (fetched,) = (root for root in roots if root.is_relative_to(place / "cache"))
    assert roots == [place / "dumps", fetched]
    runs = [entry["name"] for entry in answer_of(browse(server, str(fetched))[1])["entries"]]  # type: ignore[attr-defined]
    assert runs == ["runs"]
    golden, target = (str(fetched / "runs" / side) for side in ("golden", "target"))
    status, said = post(server, "comparisons", golden=golden, target=target)
    assert status == 201, said
    where = f"GET /api/v1/comparisons/{answer_of(said)['id']} HTTP/1.1"

    def is_done() -> bool:
        return answer_of(server.ask(where, "Host: localhost")[1])["job"]["state"] == "done"  # type: ignore[index]

    wait_until(is_done)


@pytest.fixture
def bait() -> Iterator[tuple[str, list[object]]]:
    """An address on this machine, and who came there."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def wait() -> None:
            while True:
                try:
                    came.append(listener.accept())
                except OSError:
                    return

        threading.Thread(target=wait, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", came
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "form",
    [
        "memory://private",
        "memory://dumps/runs/golden",
        "memory://dumps/../private",
        "memory:/private",
        "http://{bait}/dump",
        "ftp://{bait}/dump",
        "sftp://{bait}/dump",
        "webdav://{bait}/dump",
        "simplecache::http://{bait}/dump",
        "file:///etc/passwd",
        "{fetched}/../../../other/files/dump",
        "{cache}/other/files/dump/golden",
        "{cache}",
    ],
)
def test_an_address_that_a_visitor_sends_is_refused_and_not_asked(
    server: Running, place: Path, bait: tuple[str, list[object]], form: str
) -> None:
    log, cache = place / "log", place / "cache"
    fetched = next(folder for folder in cache.glob("*/files/dumps") if folder.is_dir())
    sent = form.format(bait=bait[0], fetched=fetched, cache=cache)
    good, before = str(fetched / "runs" / "golden"), log.read_text()
    tries = [
        browse(server, sent),
        post(server, "comparisons", golden=sent, target=good),
        post(server, "comparisons", golden=good, target=sent),
        post(server, "comparisons", golden=good, target=good, mapping=sent),
        post(server, "dumps", path=sent),
        server.ask(f"GET /new?golden={quote(sent)}&golden_at={quote(sent)} HTTP/1.1", "Host: localhost"),
        server.ask(f"GET /rollout?rollout={quote(sent)} HTTP/1.1", "Host: localhost"),
    ]
    assert all(400 <= status < 500 for status, _ in tries[:5]), [status for status, _ in tries]
    assert all("secret" not in said and "root:" not in said for _, said in tries)
    assert log.read_text() == before
    assert bait[1] == []
