"""Run server and worker together on one machine: what `firstdrift serve` does.

    this process: holds the address ──┬── child process: the web server
                                      └── child process: the worker
                                                └──── one SQLite file ────┘

A child that dies is started again: the address stays, and a job goes on where it stood.
"""

import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from firstdrift.exits import CRASHED
from firstdrift.processes.apart import end_with_parent, status_of
from firstdrift.processes.endings import why_it_ended
from firstdrift.wording.text import text_of
from firstdrift_server import listen
from firstdrift_server.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.2
_RESTART_SECONDS: Final = 1.0
_LONGEST_RESTART_SECONDS: Final = 30.0
"""A child that dies again and again is started again less and less often."""

_LIVES_SECONDS: Final = 60.0
"""Whoever lived so long did not die of what kept it from starting."""

_STOP_SECONDS: Final = 10.0

Announce = Callable[[str, Sequence[int]], None]
"""Called with the address and the ids of the comparisons that were asked for, once pages are answered."""


def serve(settings: Settings, wanted: Sequence[tuple[Path, Path]], announce: Announce) -> int:
    """Run server and worker until this process is told to stop; return the exit status.

    Args:
        settings: of both.
        wanted: pairs of dumps to be compared, unless they already were.
        announce: called in the web process as soon as pages are answered, once.

    Raises:
        SettingsError: the address cannot be listened at.
    """
    with _signals_to_stop() as numbers, listen(settings) as listener:
        web, worker = _Web(settings, listener), _Worker(settings)
        web.start(wanted, announce)
        while not (web.is_ready() or numbers):
            if (status := web.status()) is not None:
                return status if status >= 0 else CRASHED
        children = [_Kept("the web process", web), _Kept("the worker", worker)]
        if not numbers:
            worker.start()
        while not numbers:
            for child in children:
                child.see_to()
            time.sleep(_LOOK_SECONDS)
        for child in children:
            child.child.ask_to_stop()
        until = time.monotonic() + _STOP_SECONDS
        for child in children:
            child.child.stop(until)
    return 128 + numbers[0]


@contextmanager
def _signals_to_stop() -> Iterator[list[int]]:
    """Collect the signals that ask this process to stop while the block runs."""
    numbers: list[int] = []

    before = {
        number: signal.signal(number, lambda number, _frame: numbers.append(number)) for number in _STOPPING
    }
    try:
        yield numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class _Web:
    """The web process: a copy of this one, which has loaded what settings need and holds the address."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings, self._listener = settings, listener
        self._process = 0
        self._status: int | None = None
        self._alive = self._ready = -1

    def start(self, wanted: Sequence[tuple[Path, Path]] = (), announce: Announce | None = None) -> None:
        """Start it; it ends when this process does."""
        ended, alive = os.pipe()
        is_ready, ready = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()
        process = os.fork()
        if process == 0:
            os.close(alive)
            os.close(is_ready)
            os._exit(self._serve(wanted, announce, ended, ready))
        os.close(ended)
        os.close(ready)
        self._process, self._status = process, None
        self._alive, self._ready = alive, is_ready

    def is_ready(self) -> bool:
        """Wait a moment for it to answer pages; tell whether it does."""
        found, _, _ = select.select([self._ready], [], [], _LOOK_SECONDS)
        return bool(found) and bool(os.read(self._ready, 1))

    def status(self) -> int | None:
        """Return its exit status, less than 0 for a signal; None while it lives."""
        if self._status is None:
            found, status = os.waitpid(self._process, os.WNOHANG)
            if found:
                self._status = os.waitstatus_to_exitcode(status)
                os.close(self._alive)
                os.close(self._ready)
        return self._status

    def ask_to_stop(self) -> None:
        if self.status() is None:
            os.kill(self._process, signal.SIGTERM)

    def stop(self, until: float) -> None:
        """Wait until it has ended; kill it if that takes too long."""
        while self.status() is None:
            if time.monotonic() > until:
                os.kill(self._process, signal.SIGKILL)
            time.sleep(_LOOK_SECONDS / 4)

    def _serve(
        self, wanted: Sequence[tuple[Path, Path]], announce: Announce | None, ended: int, ready: int
    ) -> int:
        """Do what the web process does; return its exit status."""
        for number in _STOPPING:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=end_with_parent, args=(ended,), daemon=True).start()
        from firstdrift_server import run

        comparisons: list[int] = []

        def listening(url: str) -> None:
            if announce is not None:
                announce(url, comparisons)
                sys.stdout.flush()
            os.write(ready, b"1")
            os.close(ready)

        def work() -> None:
            nonlocal comparisons
            comparisons = ask_for(self._settings, wanted) if wanted else []
            run(self._settings, listening, self._listener)

        return status_of(work)


class _Worker:
    """The worker: a process of its own program, which shares nothing with this one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "firstdrift.cli", "worker", "--end-with-parent", str(os.getpid())]
        command += ["--data-dir", str(self._settings.data_dir)]
        if self._settings.workers:
            command += ["--workers", str(self._settings.workers)]
        command += ["--", *map(str, self._settings.roots)]
        # The server's own settings are no business of the worker's, its secret least of all; the address
        # of the database may hold a password, which a command line would show to everybody.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FIRSTDRIFT_")
        }
        environment["FIRSTDRIFT_DATABASE_URL"] = self._settings.database
        environment["FIRSTDRIFT_CLUSTER"] = self._settings.cluster or ""
        environment["FIRSTDRIFT_JOB_MEMORY"] = str(int(self._settings.job_memory))
        environment["FIRSTDRIFT_LOG_FORMAT"] = self._settings.log_format
        environment["FIRSTDRIFT_READING_SECONDS"] = str(self._settings.reading_seconds)
        self._process = subprocess.Popen(command, env=environment)  # noqa: S603

    def status(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def stop(self, until: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Kept:
    """A child that is started again when it dies."""

    def __init__(self, name: str, child: _Web | _Worker) -> None:
        self.child = child
        self._name = name
        self._since = time.monotonic()
        self._died_at: float | None = None
        self._pause = _RESTART_SECONDS

    def see_to(self) -> None:
        """Start it again if it has died, after a pause; say so."""
        now = time.monotonic()
        if self._died_at is None:
            status = self.child.status()
            if status is not None:
                lived_long = now - self._since > _LIVES_SECONDS
                self._pause = (
                    _RESTART_SECONDS if lived_long else min(2 * self._pause, _LONGEST_RESTART_SECONDS)
                )
                self._died_at = now
                why = text_of(why_it_ended(status))
                log.warning("firstdrift: %s died (%s) and is started again", self._name, why)
        elif now - self._died_at > self._pause:
            self._died_at, self._since = None, now
            self.child.start()


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
    """Let SIGTERM end this process as an exit does, so that what it holds is put away."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def ask_for(settings: Settings, wanted: Sequence[tuple[Path, Path]]) -> list[int]:
    """Have pairs of dumps compared unless they already were; return the ids of the comparisons."""
    from firstdrift.catalogue.comparisons.records import find_comparison
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
                find_comparison(session, golden, target, Options()) or _asked_for(session, golden, target)
                for golden, target in pairs
            ]
    finally:
        engine.dispose()


def _asked_for(session: "Session", golden: Path, target: Path) -> int:
    from firstdrift.catalogue.comparisons.records import create_comparison
    from firstdrift.catalogue.people.audit import Act, Deed, at_terminal, enter
    from firstdrift.comparison.report import Options

    made = create_comparison(session, golden, target, Options())
    enter(session, Deed(Act.COMPARED, at_terminal(), comparison=made))
    return made


def describe_address(url: str, settings: Settings, comparisons: Sequence[int] = ()) -> str:
    """Return what to say when the server is ready; the last line says what to open.

    That is the comparison that was asked for, or the list of several. A token that was made up is in the
    address, so that it opens with a click; the operator's own is not.
    """
    shown = f"?token={settings.shown_token}" if settings.shown_token is not None else ""
    lines = []
    address = urlsplit(url)
    if address.hostname in {"127.0.0.1", "localhost", "::1"}:
        port = address.port
        lines.append(
            f"from another machine: ssh -L {port}:localhost:{port} {_machine()}, then open the same URL"
        )
    if settings.token is not None and not shown:
        lines.append("log in with the token you gave")
    page = f"c/{comparisons[0]}" if len(comparisons) == 1 else ""
    return "\n".join([*lines, f"open {url}{page}{shown}"])


def _machine() -> str:
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"
