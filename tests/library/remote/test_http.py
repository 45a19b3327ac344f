"""Dumps that a web server lists are fetched from it, and what it breaks off is no file."""

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import firstdrift
from firstdrift.errors import DumpNotFoundError, DumpUnreadableError
from firstdrift.remote.fetch import fetched

pytest.importorskip("aiohttp", reason="fsspec reads http by aiohttp, which is not installed")

EXAMPLE = Path(__file__).parents[3] / "examples/msprobe-llama-statistics"


PAGES = {
    "/hostile/": b'<a href="%2e%2e/%2e%2e/evil.npy">evil</a>',
    "/sorted/": b'<a href="?C=N;O=D">Name</a> <a href="/">Parent</a> <a href="./a%20b.npy">a b</a>',
}


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and notes what was asked for."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if "broken" in self.path and not self.path.endswith("/"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
            return
        if page := PAGES.get(self.path):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTDRIFT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


@pytest.fixture
def server(folder: Path) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_what_a_server_lists_is_compared_and_comes_once(
    server: ThreadingHTTPServer, address: str, folder: Path
) -> None:
    shutil.copytree(EXAMPLE, folder / "a dump")
    dumps = f"{address}/a%20dump/golden", f"{address}/a%20dump/target/"
    there, here = firstdrift.compare(*dumps), firstdrift.compare(EXAMPLE / "golden", EXAMPLE / "target")
    assert there.findings == here.findings
    asked: list[str] = server.asked  # type: ignore[attr-defined]
    asked.clear()
    firstdrift.compare(*dumps)
    assert asked
    assert not [path for path in asked if path.endswith(".json")]


def test_a_file_that_a_server_breaks_off_is_an_error(address: str, folder: Path) -> None:
    (folder / "golden").mkdir()
    (folder / "golden/broken.npy").write_bytes(bytes(1000))
    with pytest.raises(DumpUnreadableError, match=r"golden/broken\.npy"):
        fetched(f"{address}/golden")
    assert not list((folder.parent / "cache").rglob("broken.npy"))


def test_links_that_lead_elsewhere_are_refused(address: str, folder: Path) -> None:
    (folder / "hostile").mkdir()
    with pytest.raises(DumpUnreadableError) as refused:
        fetched(f"{address}/hostile/")
    assert refused.value.message.id == "remote.refused"
    assert not (folder.parent / "cache").exists()


def test_a_page_may_have_links_beside_those_to_files(address: str, folder: Path) -> None:
    (folder / "sorted").mkdir()
    (folder / "sorted/a b.npy").write_bytes(b"one")
    (file,) = fetched(f"{address}/sorted").iterdir()
    assert (file.name, file.read_bytes()) == ("a b.npy", b"one")


def test_a_single_file_is_fetched(address: str, folder: Path) -> None:
    (folder / "golden.npz").write_bytes(b"one")
    assert fetched(f"{address}/golden.npz").read_bytes() == b"one"


def test_what_is_not_there_is_told(address: str) -> None:
    with pytest.raises(DumpNotFoundError):
        fetched(f"{address}/golden")


def test_a_server_that_does_not_answer_is_told() -> None:
    with pytest.raises(DumpUnreadableError, match=r"http://127\.0\.0\.1:1/golden"):
        fetched("http://127.0.0.1:1/golden")
