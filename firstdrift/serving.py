"""Run server and worker together on one machine: what `firstdrift serve` does.

    this process: the web server          child process: the worker
                         └──── one SQLite file ────┘

A worker that dies is started again; its job goes on where it stood.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from firstdrift_server.settings import Settings

_RESTART_SECONDS = 2.0
_STOP_SECONDS = 10.0


@contextmanager
def worker_beside(settings: Settings) -> Iterator[None]:
    """Keep a worker process running while the block runs."""
    keeper = _Keeper(settings)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class _Keeper(threading.Thread):
    """Starts the worker again when it dies, until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(daemon=True, name="keep the worker running")
        self._settings = settings
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._child = _start_worker(settings)

    def run(self) -> None:
        while True:
            self._child.wait()
            if self._stopping.wait(_RESTART_SECONDS):
                return
            with self._starting:
                if self._stopping.is_set():
                    return
                self._child = _start_worker(self._settings)

    def stop(self) -> None:
        with self._starting:
            self._stopping.set()
        self._child.terminate()
        try:
            self._child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self.join(_STOP_SECONDS)


def _start_worker(settings: Settings) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "firstdrift.cli", "worker", "--end-with-parent", str(os.getpid())]
    if settings.workers:
        command += ["--workers", str(settings.workers)]
    # The server's own settings are no business of the worker's, its secret least of all; the address
    # of the database may hold a password, which a command line would show to everybody.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTDRIFT_")}
    environment["FIRSTDRIFT_DATABASE_URL"] = settings.database
    return subprocess.Popen(command, env=environment)  # noqa: S603


def stop_without_parent(parent: int) -> None:
    """Ask this process to stop, as SIGTERM does, once the process that started it has ended.

    It says its number itself: it may have ended before this one could ask whose child it is.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="stop without parent").start()


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process as an exit does, so that the worker is stopped too."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


def ask_for(settings: Settings, wanted: Sequence[tuple[Path, Path]]) -> list[int]:
    """Have pairs of dumps compared unless they already were; return the ids of the comparisons."""
    from firstdrift.catalogue.comparisons import create_comparison, find_comparison
    from firstdrift.catalogue.engine import open_engine, writing
    from firstdrift.catalogue.migrate import upgrade
    from firstdrift.comparison.report import Options
    from firstdrift.paths import inside

    pairs = [(inside(settings.roots, golden), inside(settings.roots, target)) for golden, target in wanted]
    engine = open_engine(settings.database)
    try:
        upgrade(engine)
        with writing(engine, durable=True) as session:
            return [
                find_comparison(session, golden, target, Options())
                or create_comparison(session, golden, target, Options())
                for golden, target in pairs
            ]
    finally:
        engine.dispose()


def describe_address(url: str, settings: Settings, comparisons: Sequence[int] = ()) -> str:
    """Return what to say when the server is ready: where it is, also from elsewhere, and what to look at.

    A token that was made up is in each address, so that each opens with a click; the operator's own is not.
    """
    shown = f"?token={settings.shown_token}" if settings.shown_token is not None else ""
    lines = [f"firstdrift is at {url}{shown}"]
    if settings.token is not None and not shown:
        lines.append("log in there with the token you gave")
    address = urlsplit(url)
    if address.hostname in {"127.0.0.1", "localhost", "::1"}:
        port = address.port
        lines.append(
            f"from another machine: ssh -L {port}:localhost:{port} {_machine()}, then open the same URL"
        )
    lines += [f"comparison {number}: {url}c/{number}{shown}" for number in comparisons]
    return "\n".join(lines)


def _machine() -> str:
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"
