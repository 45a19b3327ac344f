"""Two hundred viewers browse while a large comparison is measured and a million rows are exported."""

import asyncio
import json
import os
import random
import shutil
import socket
import statistics
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import pytest
from clients import PATIENCE, Client
from coroutines import run
from running import running
from soak import record, rounds
from working import wait_until

VIEWERS = rounds(30, 200)
SECONDS = rounds(4, 90)
NODES, STEPS = rounds(300, 18_000), rounds(4, 28)
"""Each node has two pairs of tensors: 28 steps of 18,000 nodes are a million pairs."""

THINKING = rounds(1, 8)
"""Seconds that a viewer looks at a page on average."""

PAGES: Mapping[str, tuple[str, ...]] = {
    "home": ("",),
    "comparison": ("c/1", "c/2", "c/3"),
    "tree": ("c/1/s/0/tree", "c/2/s/0/tree", "c/2/s/2/tree"),
    "tree rows": ("c/2/s/1/tree/rows?next=bad&row=1", "c/1/s/0/tree/rows?next=bad&row=1"),
    "node": ("c/1/s/0/n/7", "c/2/s/0/n/70", "c/2/s/3/n/200"),
    "graph": ("c/1/s/0/graph",),
    "rules": ("c/1/rules", "c/2/rules"),
    "heat map": ("api/v1/comparisons/2/layers", "api/v1/comparisons/1/layers"),
    "health": ("health",),
}


LAYERS = rounds(4, 128)
KINDS = ("gate_proj", "up_proj", "down_proj", "act_fn", "norm")


def write_dump(folder: Path, seed: int) -> None:
    """Write one step of statistics of a mixture of experts, and link the others to it.

    All dumps are alike but for rounding; from the middle on, those of a seed other than 0 are off by more.
    """
    chance, rounding = random.Random(0), random.Random(seed)  # noqa: S311
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 8], "requires_grad": False}

    def recorded(number: int) -> dict[str, Any]:
        largest = (1.0 + chance.random()) * (1.0 + 1e-7 * rounding.random())
        if seed and number >= NODES // 2:
            largest *= 1.0 + 1e-3 * rounding.random()
        numbers = {"Max": largest, "Min": -largest, "Mean": 0.1, "Norm": 2.0 * largest}
        return tensor | numbers | {"data_name": None}

    data = {
        f"Module.{name_of(number)}.Linear.forward.0": {
            "input_args": [recorded(number)],
            "input_kwargs": {},
            "output": [recorded(number)],
        }
        for number in range(NODES)
    }
    whole = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None, "data": data}
    first = folder / "step0" / "rank0"
    first.mkdir(parents=True)
    (first / "dump.json").write_text(json.dumps(whole))
    for step in range(1, STEPS):
        shutil.copytree(folder / "step0", folder / f"step{step}", copy_function=os.link)


def name_of(number: int) -> str:
    expert, kind = divmod(number, len(KINDS))
    return f"model.layers.{number * LAYERS // NODES}.mlp.experts.{expert}.{KINDS[kind]}"


class Seen(NamedTuple):
    """An answer that a viewer got: what kind of page, when it was asked for, and the seconds it took."""

    kind: str
    status: int
    at: float
    seconds: float


Line: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def viewer(address: tuple[str, int], number: int, until: float, seen: list[Seen]) -> None:
    """Look at one page after the other on a connection that is kept."""
    chance = random.Random(number)  # noqa: S311
    await asyncio.sleep(chance.uniform(0, THINKING))
    kept: Line | None = None
    while time.monotonic() < until:
        kind = chance.choice(list(PAGES))
        page = chance.choice(PAGES[kind])
        began = time.monotonic()
        if kept is None or kept[0].at_eof():  # nobody keeps a line for ever
            kept = await _opened(address, kept)
        try:
            status = await asyncio.wait_for(_answer(*kept, page), PATIENCE)
        except (asyncio.IncompleteReadError, ConnectionError):  # closed just as it was to be used
            kept = await _opened(address, kept)
            status = await asyncio.wait_for(_answer(*kept, page), PATIENCE)
        seen.append(Seen(kind, status, began, time.monotonic() - began))
        await asyncio.sleep(chance.expovariate(1 / THINKING))
    if kept is not None:
        kept[1].close()


async def _opened(address: tuple[str, int], before: Line | None) -> Line:
    if before is not None:
        before[1].close()
    return await asyncio.open_connection(*address)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, page: str) -> int:
    """Ask for a page, and read the answer to its end; return its status."""
    writer.write(f"GET /{page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    if "transfer-encoding: chunked" in head:
        while size := int((await reader.readline()).split(b";")[0], 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    else:
        length = head.partition("content-length:")[2].partition("\r\n")[0]
        await reader.readexactly(int(length))
    return int(head.split(" ", 2)[1])


async def all_viewers(address: tuple[str, int]) -> list[Seen]:
    seen: list[Seen] = []
    until = time.monotonic() + SECONDS
    await asyncio.gather(*(viewer(address, number, until, seen) for number in range(VIEWERS)))
    return seen


class SlowReader:
    """Takes a file so slowly that it is being written all the time."""

    def __init__(self, address: tuple[str, int], path: str) -> None:
        self.connection = socket.create_connection(address, PATIENCE)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert self.connection.recv(15).startswith(b"HTTP/1.1 200")

    def close(self) -> None:
        self.connection.close()


def exported(url: str, file_format: str, told: dict[str, Any]) -> None:
    """Take a whole table of the large comparison; count the bytes, and the lines of a CSV."""
    began = time.monotonic()
    lines = size = 0
    with urllib.request.urlopen(f"{url}c/2/export?format={file_format}", timeout=PATIENCE) as answer:  # noqa: S310
        while piece := answer.read(1 << 20):
            lines, size = lines + piece.count(b"\n"), size + len(piece)
    told[file_format] = (lines, size, time.monotonic() - began)


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[str, str, str]:
    """A golden dump, and two targets that are measured each by itself."""
    for number, name in enumerate(("golden", "target", "another")):
        write_dump(tmp_path / name, number)
    return (str(tmp_path / "golden"), str(tmp_path / "target"), str(tmp_path / "another"))


@pytest.mark.timeout(rounds(600, 7200))
def test_pages_stay_fast_under_load(
    tmp_path: Path, unpacked: Callable[[str], Path], dumps: tuple[str, str, str]
) -> None:
    small = [str(unpacked("msit/llama4_golden_fp32")), str(unpacked("msit/llama4_perturb_L2_T3"))]
    with running(tmp_path, "serve", *small, "--workers", "2", "--no-token") as server:
        client = Client(server.url)
        place = urlsplit(server.url)
        address = (place.hostname or "", place.port or 0)

        def ask(golden: str, target: str) -> int:
            asked = {"golden": golden, "target": target}
            return int(client.data("POST", "/api/v1/comparisons", asked)["id"])

        def state(comparison: int) -> str:
            return str(client.data("GET", f"/api/v1/comparisons/{comparison}")["state"])

        ask(*small)
        ask(*dumps[:2])
        wait_until(lambda: state(2) == "done", 1500)
        pairs = client.data("GET", "/api/v1/comparisons/2")["counts"]["pairs"]
        assert pairs == 2 * NODES * STEPS
        ask(dumps[0], dumps[2])
        wait_until(lambda: state(3) == "running", 120)
        took: dict[str, Any] = {}
        with ExitStack() as slow:
            slow_readers = [SlowReader(address, "/c/2/export?format=csv") for _ in range(2)]
            for one in slow_readers:
                slow.callback(one.close)
            for _ in range(50):
                slow_head = slow.enter_context(socket.create_connection(address, PATIENCE))
                slow_head.sendall(b"GET / HTTP/1.1\r\nHost: ")
            exports = [threading.Thread(target=exported, args=(server.url, one, took)) for one in FORMATS]
            for export in exports:
                export.start()
            seen = run(all_viewers(address))
            for export in exports:
                export.join()
        at_work = state(3)
    assert [one for one in seen if one.status != 200] == []
    assert len(seen) >= VIEWERS
    assert took["csv"][0] == pairs + 1
    assert took["xlsx"][1] > pairs  # bytes
    told = told_of(seen)
    measured = "was measured throughout" if at_work == "running" else "was measured"
    record(
        "load",
        f"{VIEWERS} viewers for {SECONDS} s, {THINKING} s on a page: {len(seen):,} pages, 0 errors, while "
        f"{pairs:,} pairs {measured}, two exports were read slowly, 50 heads did not come, and "
        f"{pairs:,} rows were exported as CSV in {took['csv'][2]:.0f} s as XLSX in {took['xlsx'][2]:.0f} s",
    )
    record("load", f"p50 / p99 on {os.cpu_count()} cores with other work: {told}")


FORMATS = ("csv", "xlsx")


def told_of(seen: list[Seen]) -> str:
    of_kinds: defaultdict[str, list[float]] = defaultdict(list)
    for one in seen:
        of_kinds[one.kind].append(one.seconds)
    of_kinds["all"] = [one.seconds for one in seen]
    return ", ".join(
        f"{kind} {statistics.median(took):.2f} / {sorted(took)[int(len(took) * 0.99)]:.2f} s"
        for kind, took in of_kinds.items()
    )
