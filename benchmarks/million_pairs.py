"""Time a comparison of a million pairs, its exports, and the pages of its database.

28 slices of a 128-layer statistics dump, on the command line and through the worker.

    .venv/bin/python benchmarks/million_pairs.py --peer .venv-interop/bin/msprobe

    --database-url    where the catalogue is; SQLite in benchmarks/data unless said
    --slices 28       how many slices

The real msprobe compares one slice, in the same run: it knows no more of them, and so its time is that of one
times their number. Prints Markdown tables.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from against_graph_pages import free_port, json_of, wait_for
from make_dumps import write_dumps
from measuring import Cost, command_of_firstdrift, cost_of, linked_steps, on_cores, peak_while

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
PAGES = {
    "Home": "",
    "Comparison": "c/1",
    "Tree": "c/1/s/{last}/tree",
    "Node": "c/1/s/{last}/n/{row}",
    "next bad": "c/1/s/{last}/tree/rows?next=bad&row={row}",
    "heat map": "api/v1/comparisons/1/layers",
    "Rules": "c/1/rules",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, default=HERE.parent / ".venv-interop" / "bin" / "msprobe")
    parser.add_argument("--slices", type=int, default=28)
    parser.add_argument("--database-url")
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    written = write_dumps(chosen.peer.with_name("python"), DATA / "statistics128", layers=128)
    folder = linked_steps(written, chosen.slices)
    dumps = folder / "golden", folder / "target"
    theirs = time_msprobe(chosen.peer, dumps)
    print("| work | firstdrift | msprobe | ratio |\n|---|---|---|---|")
    one = cost_of(command_of_firstdrift(), "compare", *(dump / "step0" for dump in dumps))
    line("128 layers, statistics, one slice", one, theirs)
    whole = [cost_of(command_of_firstdrift(), "compare", *dumps, cores=cores) for cores in (1, None)]
    line(f"{chosen.slices} slices, one core", whole[0], theirs * chosen.slices)
    line(f"{chosen.slices} slices, all cores", whole[1], theirs * chosen.slices)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "xlsx"):
            file = Path(folder) / f"pairs.{kind}"
            cost = cost_of(command_of_firstdrift(), "compare", *dumps, f"--{kind}", file)
            size = file.stat().st_size / 1e6
            further = Cost(cost.seconds - whole[1].seconds, cost.megabytes)
            line(f"the same with --{kind} ({size:.0f} MB): further", further, None)
    through_the_worker(dumps, chosen.database_url, chosen.rounds)


def line(work: str, ours: Cost, theirs: float | None) -> None:
    """Print a row of the table."""
    told = "-" if theirs is None else f"{theirs:.1f} s"
    ratio = "-" if theirs is None else f"{theirs / ours.seconds:.1f}"
    print(f"| {work} | {ours} | {told} | {ratio} |", flush=True)


def time_msprobe(peer: Path, dumps: tuple[Path, Path]) -> float:
    """Time one `msprobe compare` of one slice."""
    golden, target = dumps
    sides = ["-tp", target / "step0", "-gp", golden / "step0"]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([peer, "compare", *sides, "-o", folder], check=True, **quiet)
        return time.perf_counter() - started


def through_the_worker(dumps: tuple[Path, Path], database_url: str | None, rounds: int) -> None:
    """Compare through server and worker; then time exports, and pages with and without one under way."""
    data = DATA / "million"
    shutil.rmtree(data, ignore_errors=True)
    with server(data, database_url) as (address, process):
        asked = {"golden": str(dumps[0]), "target": str(dumps[1])}
        post(f"{address}api/v1/comparisons", asked)

        def is_done() -> bool:
            return json_of(f"{address}api/v1/comparisons/1")["state"] in {"done", "failed"}

        line("through server and worker (memory of both)", peak_while([process], is_done), None)
        found: Any = json_of(f"{address}api/v1/comparisons/1")
        if found["state"] != "done":
            sys.exit(f"the comparison failed: {found}")
        pairs = found["counts"]["pairs"]
        if database_url is None:
            size = sum(file.stat().st_size for file in data.glob("firstdrift.db*"))
            print(f"\n{pairs} pairs, {size / 1e6:.0f} MB of database, {size / pairs:.0f} bytes a pair\n")
        places = {"last": len(found["slices"]) - 1, "row": 100}
        pages = {name: address + page.format(**places) for name, page in PAGES.items()}
        time_pages(pages, f"{address}api/v1/comparisons/1/export?format=csv", web_of(process), rounds)
        print(
            "\n| export from the server | seconds | MB | processor time of its process |\n|---|---|---|---|"
        )
        for kind in ("csv", "xlsx"):
            started = time.perf_counter()
            size, used = taken(f"{address}api/v1/comparisons/1/export?format={kind}", process)
            seconds = time.perf_counter() - started
            print(f"| {kind} | {seconds:.1f} | {size / 1e6:.0f} | {used:.1f} s |", flush=True)


def time_pages(pages: dict[str, str], export: str, web: psutil.Process, rounds: int) -> None:
    """Time pages with and without an export under way: by the clock, and of the processor."""
    print("| page | fastest | median | processor | while a CSV is exported | processor |")
    print("|---|---|---|---|---|---|")
    for page in pages.values():
        waited(page)
    alone = {name: waits(page, web, rounds) for name, page in pages.items()}
    with downloading(export):
        beside = {name: waits(page, web, rounds) for name, page in pages.items()}
    for name, (seconds, used) in alone.items():
        others, used_beside = beside[name]
        told = min(seconds), statistics.median(seconds), used, statistics.median(others), used_beside
        print(f"| {name} | " + " | ".join(f"{1000 * one:.0f} ms" for one in told) + " |", flush=True)


def waits(page: str, web: psutil.Process, rounds: int) -> tuple[list[float], float]:
    """Ask for a page some times; say how long each took, and how much of a processor on average."""
    before = processor_time(web)
    seconds = [waited(page) for _ in range(rounds)]
    return seconds, (processor_time(web) - before) / rounds


def processor_time(process: psutil.Process) -> float:
    """Say how many seconds of a processor a process has used; 0 of one that has ended."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def web_of(process: psutil.Process) -> psutil.Process:
    """Find the process that answers: of those that listen, the last that was started."""
    known = [process, *process.children(recursive=True)]
    return [one for one in known if any(at.status == psutil.CONN_LISTEN for at in one.net_connections())][-1]


def taken(address: str, process: psutil.Process) -> tuple[int, float]:
    """Read an answer to its end; return its size, and the processor time of the process that was started."""
    before = {one.pid for one in process.children(recursive=True)}
    size, used = 0, dict[int, float]()
    with urllib.request.urlopen(address, timeout=600) as answer:  # noqa: S310 - our own server
        while piece := answer.read(1 << 22):
            size += len(piece)
            for one in process.children(recursive=True):
                if one.pid not in before:
                    used[one.pid] = max(processor_time(one), used.get(one.pid, 0.0))
    return size, sum(used.values())


@contextmanager
def server(data: Path, database_url: str | None) -> Iterator[tuple[str, psutil.Process]]:
    """Run server and worker while the block runs."""
    port = free_port()
    command = [command_of_firstdrift(), "serve", str(DATA), "--port", str(port), "--no-token"]
    command += ["--data-dir", str(data)]
    if database_url is not None:
        command += ["--database-url", database_url]
    started = time.perf_counter()
    with on_cores(None), subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            address = wait_for(f"http://127.0.0.1:{port}/")
            print(f"| `firstdrift serve` answers after | {time.perf_counter() - started:.2f} s | - | - |")
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def downloading(address: str) -> Iterator[None]:
    """Download something in another process while the block runs."""
    code = "import sys, urllib.request as u; a = u.urlopen(sys.argv[1])\nwhile a.read(1 << 20): pass"
    with subprocess.Popen([sys.executable, "-c", code, address]) as process:
        time.sleep(0.5)
        yield
        process.kill()


def post(address: str, asked: dict[str, str]) -> None:
    """Ask our own server for something."""
    request = urllib.request.Request(  # noqa: S310 - our own server
        address, json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60):  # noqa: S310
        pass


def waited(address: str) -> float:
    """Ask for a page and say how long the answer took."""
    started = time.perf_counter()
    download(address)
    return time.perf_counter() - started


def download(address: str) -> int:
    """Read an answer to its end; return its size."""
    size = 0
    with urllib.request.urlopen(address, timeout=600) as answer:  # noqa: S310 - our own server
        while piece := answer.read(1 << 20):
            size += len(piece)
    return size


if __name__ == "__main__":
    main()
