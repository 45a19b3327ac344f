"""A server is killed at random moments while people work; what it acknowledged is there afterwards."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest
from clients import Client
from running import running
from soak import record, rounds
from working import compare_with_worker, wait_until

from firstdrift.catalogue.comparisons.records import list_comparisons
from firstdrift.catalogue.engine import database_url, open_engine, reading
from firstdrift.catalogue.matches.match_sets import get_match_set
from firstdrift.catalogue.sharing.links import active_links
from firstdrift.catalogue.sharing.notes import notes_of

KILLS = rounds(2, 200)
MOST_LINKS = 20
CHUNK, SIZE = 50_000, 1_000_000
SLICES = "/api/v1/comparisons/1/slices/0"


class Acknowledged:
    """What a server said that it had done, by those who asked for it."""

    def __init__(self, dumps: tuple[Path, Path]) -> None:
        self.url, self.dumps, self.said = "", dumps, ""
        self.notes: dict[int, str] = {}
        self.links: dict[int, str] = {}
        self.comparisons: list[int] = []
        self.versions: dict[int, int] = {}
        self.uploads: dict[str, bytes] = {}
        self.resumed = self.chunks = 0
        self.is_ending = False
        self.wrong: list[str] = []
        self.stopping = threading.Event()

    @property
    def count(self) -> int:
        small = len(self.notes) + len(self.links) + len(self.comparisons)
        return small + sum(self.versions.values()) + len(self.versions) + self.chunks + len(self.uploads)

    def repeat(self, work: Callable[[Client, int], None]) -> threading.Thread:
        """Do something again and again, with whatever server there is."""

        def run() -> None:
            client = Client("")
            number, at = 0, ""
            while not self.stopping.is_set():
                number += 1
                if at != self.url:
                    client, at = Client(self.url), self.url
                try:
                    work(client, number)
                except (OSError, HTTPException):
                    time.sleep(0.02)  # it was killed: nothing was acknowledged
                except AssertionError as error:
                    if not self.is_ending:  # who loses its parent answers 500 to what it does not end in time
                        self.wrong.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def note(self, client: Client, number: int) -> None:
        said = {"author": "Ada", "text": f"note {number} of {time.monotonic_ns()}"}
        made = client.data("POST", f"{SLICES}/rows/1/notes", said)
        self.notes[made["id"]] = said["text"]
        time.sleep(0.1)

    def link(self, client: Client, number: int) -> None:
        label = f"link {number}"
        made = client.data("POST", "/api/v1/comparisons/1/links", {"hours": 2, "label": label})
        self.links[made["id"]] = label
        if len(self.links) > MOST_LINKS:  # no more than a hundred may be open
            self.links.pop(oldest := min(self.links))
            client.data("DELETE", f"/api/v1/comparisons/1/links/{oldest}")
        time.sleep(0.1)

    def edit(self, client: Client, number: int) -> None:
        name = f"set {number} {time.monotonic_ns()}"
        made = client.data("POST", "/api/v1/comparisons/1/match-sets", {"name": name})
        known = made["id"]
        self.versions[known] = 0
        edit = {"kind": "match", "golden": ["root.model.layers.1.mlp"], "target": ["root.model.layers.2.mlp"]}
        said = client.data("POST", f"/api/v1/match-sets/{known}/edits", {"version": 0, "edits": [edit]})
        self.versions[known] = said["version"]
        time.sleep(0.3)

    def compare(self, client: Client, _number: int) -> None:
        golden, target = map(str, self.dumps)
        made = client.data("POST", "/api/v1/comparisons", {"golden": golden, "target": target})
        self.comparisons.append(made["id"])
        time.sleep(0.3)

    def upload(self, client: Client, number: int) -> None:
        """Send a file in chunks, going on where it stands after each broken connection."""
        content = random.Random(number).randbytes(SIZE)  # noqa: S311
        files = [{"path": f"run{number}/tensor.bin", "size": SIZE}]
        made = client.data("POST", "/api/v1/uploads", {"name": f"run{number}", "files": files})["id"]
        there = 0
        while there < SIZE and not self.stopping.is_set():
            at = Client(self.url)
            try:
                there = self._go_on(at, made, content, there)
            except (OSError, HTTPException):
                self.resumed += 1
                time.sleep(0.05)
        while there == SIZE and made not in self.uploads and not self.stopping.is_set():
            at = Client(self.url)
            try:
                done = at.data("POST", f"/api/v1/uploads/{made}/complete")
            except (OSError, HTTPException):
                time.sleep(0.05)
            else:
                self.uploads[done["dump"]["path"]] = content
                return

    def _go_on(self, client: Client, upload: str, content: bytes, acknowledged: int) -> int:
        there: int = client.data("GET", f"/api/v1/uploads/{upload}")["files"][0]["arrived"]
        assert there >= acknowledged, f"of {acknowledged} acknowledged bytes {there} are there"
        while there < SIZE:
            piece = content[there : there + CHUNK]
            path = f"/api/v1/uploads/{upload}/files/0?offset={there}"
            there = client.data("PUT", path, raw=piece)["arrived"]
            self.chunks += 1
        return there


def kill(process: "subprocess.Popen[str]") -> str:
    """Kill a server, and see that all that it started ends by itself; give what it said."""
    started = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, left = psutil.wait_procs(started, timeout=30)
    assert left == []
    assert process.stderr is not None
    return process.stderr.read()


@pytest.mark.timeout(300 + 20 * KILLS)
def test_what_a_killed_server_acknowledged_is_there(tmp_path: Path, unpacked: Callable[[str], Path]) -> None:
    dumps = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    data = tmp_path / "data"
    compare_with_worker(database_url(data), *dumps)
    told = Acknowledged(dumps)
    chance = random.Random(1)  # noqa: S311 (moments to kill at are no secrets)
    with ExitStack() as threads:
        for number in range(KILLS):
            command = ("serve", "--workers", "1") if number % 4 == 0 else ("server",)
            roots = [str(dump) for dump in dumps]
            with running(tmp_path, command[0], *roots, *command[1:], "--no-token") as server:
                told.url, told.is_ending = server.url, False
                if not number:
                    for work in (told.note, told.link, told.edit, told.compare, told.upload, told.upload):
                        threads.callback(told.repeat(work).join)
                    threads.callback(told.stopping.set)
                before = told.count
                wait_until(lambda before=before: told.count > before)
                time.sleep(chance.uniform(0, 0.5))
                told.is_ending = True
                told.said += kill(server.process)
        with running(tmp_path, "server", "--no-token", *roots) as server:
            told.url, told.is_ending = server.url, False
            uploads = len(told.uploads)
            wait_until(lambda: len(told.uploads) > uploads + 1, 120)
            told.stopping.set()
            threads.close()
            wait_until(lambda: Client(server.url).ask("GET", "/c/1")[0] == 200)
    assert told.wrong == [], told.said
    lost = lost_of(told, data)
    assert lost == []
    with closing(sqlite3.connect(data / "firstdrift.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    record(
        "killed_server",
        f"{KILLS} kills, {told.count} acknowledged ({len(told.notes)} notes, {len(told.versions)} sets, "
        f"{len(told.comparisons)} comparisons, {told.chunks} chunks): {len(lost)} lost; "
        f"{len(told.uploads)} uploads whole, resumed {told.resumed} times; it started again each time",
    )


def lost_of(told: Acknowledged, data: Path) -> list[Any]:
    """List what was acknowledged and is not there."""
    engine = open_engine(database_url(data))
    with reading(engine) as session:
        notes = {note.id: note.text for note in notes_of(session, 1)}
        links = {link.id: link.label for link in active_links(session, 1)}
        comparisons = {one.id for one in list_comparisons(session, limit=1_000_000)}
        versions = {known: get_match_set(session, known).version for known in told.versions}
    engine.dispose()
    lost: list[Any] = [one for one in told.notes.items() if one not in notes.items()]
    lost += [one for one in told.links.items() if one not in links.items()]
    lost += [one for one in told.comparisons if one not in comparisons]
    lost += [one for one, version in told.versions.items() if versions[one] < version]
    return lost + [path for path, content in told.uploads.items() if content_of(Path(path)) != content]


def content_of(folder: Path) -> bytes:
    (file,) = (one for one in folder.rglob("*") if one.is_file())
    return file.read_bytes()


def test_an_upload_that_was_not_put_in_its_place_does_not_take_another_for_its_own(tmp_path: Path) -> None:
    """The server died between writing down where it is to lie and putting it there."""
    from firstdrift_server.uploads.records import UploadFile
    from firstdrift_server.uploads.store import Uploads

    uploads = Uploads(tmp_path, 1 << 30)
    first = uploads.begin("run", [UploadFile("run/a", 1)])
    uploads.write(first.id, 0, 0, b"1")
    record_of = tmp_path / ".incoming" / first.id / "upload.json"
    known = json.loads(record_of.read_text())
    source = tmp_path / ".incoming" / first.id / "files" / "run"
    record_of.write_text(json.dumps(known | {"landed": str(tmp_path / "run"), "inode": source.stat().st_ino}))
    second = uploads.begin("run", [UploadFile("run/a", 1)])
    uploads.write(second.id, 0, 0, b"2")
    assert (uploads.finish(second.id) / "a").read_bytes() == b"2"
    again = Uploads(tmp_path, 1 << 30)
    assert again.get(first.id).landed is None
    landed = again.finish(first.id)
    assert (landed / "a").read_bytes() == b"1"
    assert again.finish(first.id) == landed
