"""A dump grows, shrinks, changes, vanishes and is replaced by links while it is read, compared and looked at.

Every answer is a value or a named error, no process dies, and afterwards it is said that the dump changed.
"""

import json
import os
import random
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
from clients import Client
from running import running
from soak import record, rounds
from working import wait_until

SECONDS = rounds(2, 100)
"""So long each dump is changed while it is used."""

PAGES = (
    *("c/{c}", "c/{c}/s/0/tree", "c/{c}/s/0/n/{row}", "api/v1/comparisons/{c}/slices/0/rows/{row}"),
    *("api/v1/comparisons/{c}/slices/0/rows/{row}/tensors/0", "c/{c}/s/0/graph", "dumps/1", "dumps/2"),
    *("dumps/1/s/0/tree", "dumps/2/s/0/n/{row}", "api/v1/dumps/1", "browse?path=", "c/{c}/s/0/n/{row}?t=0"),
)
ENDED = ("done", "failed")
NAMED = {200, 303, 400, 404, 409, 413, 422, 503, 507}
"""A value, or an error with a name; 500 is none."""


class Changes:
    """Changes the files of a dump again and again, and puts all back at the end."""

    def __init__(self, source: Path, dump: Path) -> None:
        self.source, self.dump = source, dump
        shutil.copytree(source, dump)
        self.files = [one.relative_to(source) for one in sorted(source.rglob("*")) if one.is_file()]
        self.chance = random.Random(str(source.name))  # noqa: S311
        self.done: Counter[str] = Counter()
        self.stopping = threading.Event()
        (dump.parent / "secret").write_text("nothing that may be read")

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self._go_on)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()

    def _go_on(self) -> None:
        ways = (self.grow, self.shrink, self.rewrite, self.vanish, self.forbid, self.link, self.folder)
        while not self.stopping.wait(self.chance.uniform(0, 0.02)):
            way, place = self.chance.choice(ways), self.chance.choice(self.files)
            file = self.dump / place
            way(file)
            self.done[way.__name__] += 1
            if self.chance.random() < 0.7:
                time.sleep(self.chance.uniform(0, 0.02))
                self.put_back(place)

    def grow(self, file: Path) -> None:
        if file.is_file() and not file.is_symlink():
            with file.open("ab") as opened:
                opened.write(self.chance.randbytes(1000))

    def shrink(self, file: Path) -> None:
        if file.is_file() and not file.is_symlink():
            os.truncate(file, self.chance.randrange(file.stat().st_size + 1))

    def rewrite(self, file: Path) -> None:
        if file.is_file() and not file.is_symlink():
            size = file.stat().st_size
            with file.open("r+b") as opened:
                opened.seek(self.chance.randrange(size + 1))
                opened.write(self.chance.randbytes(min(size, 500)))

    def vanish(self, file: Path) -> None:
        if file.is_symlink() or file.is_file():
            file.unlink()

    def forbid(self, file: Path) -> None:
        if file.is_file() and not file.is_symlink():
            file.chmod(0)

    def link(self, file: Path) -> None:
        self.vanish(file)
        if not file.exists():
            file.symlink_to(
                self.chance.choice(["/etc/passwd", "/dev/zero", str(self.dump.parent / "secret")])
            )

    def folder(self, file: Path) -> None:
        """Let what was a file be a folder."""
        self.vanish(file)
        file.mkdir(exist_ok=True)

    def put_back(self, place: Path) -> None:
        """Let a file be as it was, as a new one that is put in its place."""
        file = self.dump / place
        new = self.dump.with_suffix(".new")
        shutil.copyfile(self.source / place, new)
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        new.replace(file)

    def all_back(self) -> None:
        """Let the whole dump be as it was, and nothing show that it was changed a moment ago."""
        for place in self.files:
            self.put_back(place)
        for path in (self.dump, *self.dump.rglob("*")):
            os.utime(path, (1e9, 1e9))


@pytest.mark.timeout(400 + 6 * SECONDS)
@pytest.mark.parametrize(
    "pair",
    [
        ("msit/llama4_golden_fp32", "msit/llama4_perturb_L2_T3"),
        ("msprobe/llama_stat_mix_3steps/golden", "msprobe/llama_stat_mix_3steps/target"),
    ],
    ids=["tensors", "statistics"],
)
def test_a_dump_that_changes_while_it_is_used_is_an_answer(
    pair: tuple[str, str], unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    sources = [unpacked("/".join(name.split("/")[:2])).joinpath(*name.split("/")[2:]) for name in pair]
    (tmp_path / "dumps").mkdir()
    golden, target = (
        Changes(source, tmp_path / "dumps" / name)
        for source, name in zip(sources, ("golden", "target"), strict=True)
    )
    asked = {"golden": str(golden.dump), "target": str(target.dump)}
    with running(tmp_path, "serve", "--workers", "1", "--no-token") as server:
        client = Client(server.url)
        first = compared(client, asked)
        before = psutil.Process(server.process.pid).children()
        with golden, target:
            answers, states, begun = used(client, asked, time.monotonic() + SECONDS, known=first["id"])
        changes = golden.done + target.done
        assert alive(before), "a process died"
        assert set(answers) <= NAMED, answers
        wait_until(lambda: all(state_of(client, one) in ENDED for one in begun), 200)
        states.update(state_of(client, one) for one in begun)
        golden.all_back()
        target.all_back()
        wait_until(lambda: says_that_it_changed(client, first), 60)
        again = compared(client, asked)
        assert again["summary"] == first["summary"]
        assert again["counts"] == first["counts"]
    record(
        "changing",
        f"{changes.total():,} changes of 7 kinds to {golden.dump.name} and target ({pair[0].split('/')[0]}): "
        f"{answers.total():,} pages and {states.total()} jobs, each a value or a named error, "
        "0 processes died; it says that it changed, and whole again gives the answer of before",
    )


def says_that_it_changed(client: Client, first: dict[str, Any]) -> bool:
    """Tell whether the first comparison says so, or that more is awaited, or was made anew by itself."""
    page = client.ask("GET", f"/c/{first['id']}?check=true")[1]
    job = client.data("GET", f"/api/v1/comparisons/{first['id']}")["job"]
    growing = re.search(rb'id="part-growth" data-part>\s*<', page)
    return b'-changed">' in page or growing is not None or job["id"] != first["job"]["id"]


def compared(client: Client, asked: dict[str, str]) -> dict[str, Any]:
    made = client.data("POST", "/api/v1/comparisons", asked)["id"]
    place = f"/api/v1/comparisons/{made}"
    wait_until(lambda: client.data("GET", place)["state"] in ENDED, 200)
    found: dict[str, Any] = client.data("GET", place)
    assert found["state"] == "done", found["job"]
    return found


def used(
    client: Client, asked: dict[str, str], until: float, *, known: int
) -> tuple[Counter[int], Counter[str], list[int]]:
    """Look at pages and have the dumps compared until a time.

    Give statuses of answers, states of the comparisons that ended, and those that go on.
    """
    answers: Counter[int] = Counter()
    open_ones: list[int] = []
    states: Counter[str] = Counter()
    row = 0
    while time.monotonic() < until:
        row = (row + 7) % 60
        for page in PAGES:
            comparison = open_ones[0] if open_ones and row % 2 else known
            status, body = client.ask("GET", "/" + page.format(c=comparison, row=row))
            answers[status] += 1
            assert b"nothing that may be read" not in body
            assert b"root:x:0:0" not in body
        if len(open_ones) < 2:
            status, body = client.ask("POST", "/api/v1/comparisons", asked)
            answers[200 if status == 201 else status] += 1
            if status == 201:
                open_ones.append(json_of(body)["id"])
        now = {one: state_of(client, one) for one in open_ones}
        states.update(state for state in now.values() if state in ENDED)
        open_ones = [one for one, state in now.items() if state not in ENDED]
    return answers, states, open_ones


def state_of(client: Client, comparison: int) -> str:
    return str(client.data("GET", f"/api/v1/comparisons/{comparison}")["state"])


def json_of(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    return found


def alive(processes: list[psutil.Process]) -> bool:
    return all(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)
