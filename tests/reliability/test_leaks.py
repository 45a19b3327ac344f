"""A server that has answered thousands of pages, and a worker that has done its jobs, hold what they held."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from clients import Client
from running import running
from soak import record, rounds
from working import wait_until

PAGES = rounds(150, 10_000)
JOBS = rounds(2, 50)
MIB = 1 << 20
MOST_MORE = 24 * MIB
"""Of memory, once all caches are full; those of SQLite and of what was looked at last grow a little still."""

PLACES = (
    *("", "?q=llama", "board?c=1", "dumps", "dumps/1", "new", "help", "version", "ready", "health"),
    *("c/1", "c/1.json", "c/1/rules", "c/1/share", "c/1/export", "c/1/s/0/tree", "c/1/s/1/tree?open=1"),
    *("c/1/s/0/n/1", "c/1/s/1/n/20", "c/1/s/0/graph", "c/1/s/0/unmatched", "c/1/s/0/match"),
    *("api/v1/comparisons", "api/v1/comparisons/1", "api/v1/comparisons/1/layers", "static/no-such-file"),
    *(
        "api/v1/comparisons/1/export?format=csv",
        "api/v1/comparisons/1/slices/0/rows/1/tensors/0",
        "c/99",
        "c/1/s/99/tree",
    ),
)

ANSWERS = {200, 303, 307, 404}


class Held(NamedTuple):
    """What the processes of a server hold."""

    descriptors: int
    threads: int
    memory: int

    @classmethod
    def by(cls, *processes: psutil.Process) -> "Held":
        return cls(
            sum(one.num_fds() for one in processes),
            sum(one.num_threads() for one in processes),
            sum(one.memory_info().rss for one in processes),
        )


def said(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


@pytest.mark.timeout(300 + PAGES // 5 + 20 * JOBS)
def test_nothing_leaks(tmp_path: Path, unpacked: Callable[[str], Path]) -> None:
    pair = [str(unpacked("msit/llama4_golden_fp32")), str(unpacked("msit/llama4_perturb_L2_T3"))]
    with running(tmp_path, "serve", *pair, "--workers", "1", "--no-token") as server:
        client = Client(server.url)
        asked = {"golden": pair[0], "target": pair[1]}

        def compare(count: int) -> None:
            made = [client.data("POST", "/api/v1/comparisons", asked)["id"] for _ in range(count)]
            for one in made:
                wait_until(
                    lambda one=one: client.data("GET", f"/api/v1/comparisons/{one}")["state"] == "done", 120
                )

        def look(count: int) -> list[int]:
            return [
                client.ask("GET", f"/{place}")[0]
                for place in itertools.islice(itertools.cycle(PLACES), count)
            ]

        compare(2)
        children = psutil.Process(server.process.pid).children()
        (worker,) = (one for one in children if "cli worker" in said(one))
        (web,) = (one for one in children if one != worker and "serve" in said(one))
        statuses = look(4 * len(PLACES))
        assert set(statuses) <= ANSWERS
        pages = Held.by(web)
        statuses = look(PAGES)
        assert set(statuses) <= ANSWERS
        wait_until(lambda: Held.by(web).descriptors <= pages.descriptors + 4)
        after_pages = Held.by(web)
        jobs = Held.by(worker)
        compare(JOBS)
        after_jobs = Held.by(worker)
        assert web.is_running()
        assert worker.is_running()
    for before, after in ((pages, after_pages), (jobs, after_jobs)):
        assert after.descriptors <= before.descriptors + 4
        assert after.threads <= before.threads + 2
        assert after.memory <= before.memory + MOST_MORE
    for what, before, after in ((f"{PAGES:,} pages", pages, after_pages), (f"{JOBS} jobs", jobs, after_jobs)):
        more = [now - then for now, then in zip(after, before, strict=True)]
        record(
            "leaks",
            f"{what}: {more[0]:+d} descriptors, {more[1]:+d} threads, {more[2] / MIB:+.1f} MiB "
            f"({after.memory / MIB:.0f} MiB held)",
        )
