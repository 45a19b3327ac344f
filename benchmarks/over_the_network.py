"""What a comparison on a Dask cluster sends over the network, and what is left to the worker that asks.

    .venv/bin/python benchmarks/over_the_network.py --peer .venv-interop/bin/msprobe

    --slices 8        how many slices of a 32-layer statistics dump
    --workers 1 2     how many workers the cluster has, one after the other

Bytes are counted by what stands between the worker and the scheduler; processor time is that of the worker's
process. Everything runs on this machine. Prints a Markdown table.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from make_dumps import write_dumps
from measuring import linked_steps
from sqlalchemy import text

from firstdrift.catalogue.engine import open_engine, reading

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
LAYERS = 32
WORK = """
import resource, sys, threading
from pathlib import Path
from firstdrift.catalogue.comparisons.records import create_comparison, get_comparison
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.migrate import upgrade
from firstdrift.comparison.report import Options
from firstdrift_worker.main import run
url, golden, target, cluster = sys.argv[1:]
engine, ended = open_engine(url), threading.Event()
upgrade(engine)
with writing(engine) as session:
    asked = create_comparison(session, Path(golden), Path(target), Options())
def watch():
    while not ended.wait(0.2):
        with reading(engine) as session:
            if get_comparison(session, asked).job.is_over:
                ended.set()
threading.Thread(target=watch).start()
before = resource.getrusage(resource.RUSAGE_SELF)
run(url, processes=1, until=ended, cluster=cluster or None)
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
with reading(engine) as session:
    assert get_comparison(session, asked).state == "done", get_comparison(session, asked)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, default=HERE.parent / ".venv-interop" / "bin" / "msprobe")
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    chosen = parser.parse_args()
    written = write_dumps(chosen.peer.with_name("python"), DATA / f"statistics{LAYERS}", layers=LAYERS)
    folder = linked_steps(written, chosen.slices)
    print("| workers | pairs | to the worker, a pair | from it, a pair | its processor, a pair | seconds |")
    print("|---|---|---|---|---|---|")
    for workers in (0, *chosen.workers):
        with tempfile.TemporaryDirectory() as place:
            print(row(Path(place), (folder / "golden", folder / "target"), workers), flush=True)


def row(place: Path, dumps: tuple[Path, Path], workers: int) -> str:
    """Compare with so many workers; give a row of the table."""
    url = f"sqlite:///{place}/catalogue.db"
    with ExitStack() as stack:
        meter = Meter(stack.enter_context(cluster(place, workers))) if workers else None
        address = "" if meter is None else meter.address
        command = [sys.executable, "-c", WORK, url, *map(str, dumps), address]
        since = time.perf_counter()
        spent = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        seconds = time.perf_counter() - since
    with reading(open_engine(url)) as session:
        pairs = session.scalar(text("SELECT sum(pairs) FROM slice_pairs")) or 1
    there, back = (0, 0) if meter is None else (meter.received, meter.sent)
    sizes = f"{there / pairs:.0f} B | {back / pairs:.0f} B"
    return f"| {workers or 'none'} | {pairs} | {sizes} | {spent / pairs * 1e6:.0f} µs | {seconds:.1f} |"


@contextmanager
def cluster(place: Path, workers: int) -> Iterator[int]:
    """Run a cluster while the block runs; give the port of its scheduler."""
    port = free_port()
    started = [dask("scheduler", "--host", "127.0.0.1", "--port", str(port))]
    try:
        while not is_there(port):
            time.sleep(0.1)
        for _ in range(workers):
            options = ("--nthreads", "1", "--no-nanny", "--local-directory", str(place))
            started.append(dask("worker", f"tcp://127.0.0.1:{port}", *options))
        yield port
    finally:
        for process in started:
            process.kill()
            process.wait()


def dask(kind: str, *options: str) -> "subprocess.Popen[bytes]":
    """Start a process of a cluster."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"], **quiet
    )


def free_port() -> int:
    """Find a port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def is_there(port: int) -> bool:
    """Tell whether somebody listens at a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Meter:
    """Stands between a worker and the scheduler, and counts bytes.

    Attributes:
        received: bytes that the worker was sent; likewise sent, by the worker.
    """

    def __init__(self, port: int) -> None:
        """Begin to listen; `port` is the scheduler's."""
        self.received = self.sent = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            here, _ = self._listener.accept()
            there = socket.create_connection(("127.0.0.1", self._port))
            for source, goal, name in ((here, there, "sent"), (there, here, "received")):
                threading.Thread(target=self._pass_on, args=(source, goal, name), daemon=True).start()

    def _pass_on(self, source: socket.socket, goal: socket.socket, name: str) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(content))
                goal.sendall(content)
        with suppress(OSError):
            goal.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
