"""Dask clusters for the tests: a scheduler and workers as processes of their own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from distributed import Client


class DaskCluster:
    """A scheduler and its workers on this machine."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port))
        until = time.monotonic() + 60
        while not self._listens(port):
            assert time.monotonic() < until, "the scheduler did not start"
            time.sleep(0.1)

    @staticmethod
    def _listens(port: int) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    def add_worker(self, changes: str = "") -> None:
        """Start a worker, with a process that starts it again when it dies.

        What it is to be like is Python that changes it before it begins.
        """
        options = ("--nthreads", "1", "--local-directory", str(self._folder))
        self._start("worker", self.address, *options, changes=changes)

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers have come."""
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)

    def _start(self, kind: str, *arguments: str, changes: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
        changed = Path(tempfile.mkdtemp(dir=self._folder))
        (changed / "sitecustomize.py").write_text(changes)
        path = os.pathsep.join([str(changed), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._processes.append(process)
        return process

    def worker_processes(self) -> list[psutil.Process]:
        """Give the processes that do tasks, without those that watch over them."""
        found: list[psutil.Process] = []
        for process in self._processes[1:]:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(process.pid).children(recursive=True)
                found += [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        return found

    def end(self) -> None:
        """End all of it at once."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def dask_cluster(folder: Path, workers: int) -> Iterator[DaskCluster]:
    """Run a cluster while the block runs."""
    cluster = DaskCluster(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.end()
