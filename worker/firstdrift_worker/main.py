"""The worker: takes jobs until it is asked to stop.

    work_until_signal("sqlite:////data/firstdrift.db", processes=4)      each job in a process of its own, or
    run("sqlite:////data/firstdrift.db", processes=4, until=stopping)    in a thread of this process

A job that is under way when the worker is asked to stop is put back at once; another worker goes on
from what has been kept.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine

from firstdrift.catalogue.comparisons.records import purge_deleted
from firstdrift.catalogue.engine import open_engine, sqlite_warning, writing
from firstdrift.catalogue.jobs import queue as jobs
from firstdrift.catalogue.jobs.lease import worker_gone, worker_seen
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.people.audit import purge_audit
from firstdrift.errors import CatalogueError
from firstdrift.processes.limits import Limits, usable_cores
from firstdrift_worker.manner import Manner
from firstdrift_worker.supervisor import Supervisor

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
SEEN_SECONDS = 5.0
BIN_DAYS = 30
PURGE_SECONDS = 24 * 3600.0


def run(
    database_url: str,
    *,
    processes: int,
    until: threading.Event,
    lease: float = jobs.LEASE_SECONDS,
    cluster: str | None = None,
) -> None:
    """Take jobs and do them in this process, one at a time, until the event is set.

    Args:
        database_url: where the jobs are; its tables are brought up to date first.
        processes: how many measure at once; with 1, no other process is started.
        until: when set, the worker puts its job back and returns.
        lease: seconds after which another worker may take over what a dead one had.
        cluster: as that of `work_until_signal`.

    Raises:
        CatalogueError: the database cannot be opened or brought up to date.
    """
    from firstdrift_worker.job import do_job

    with _open(database_url) as engine:
        name, manner = jobs.worker_name(), Manner(database_url, processes, lease=lease, cluster=cluster)

        def turn() -> bool:
            claim = jobs.claim_job(engine, name, lease=lease)
            if claim is not None:
                do_job(engine, claim, until, manner)
            return claim is not None

        _take_turns(engine, name, until, turn)


def work_until_signal(
    database_url: str,
    *,
    processes: int = 0,
    roots: Sequence[Path] | None = None,
    limits: Limits | None = None,
    cluster: str | None = None,
) -> None:
    """Take jobs and have each done by a child process, until SIGTERM or SIGINT.

    Args:
        database_url: where the jobs are; its tables are brought up to date first.
        processes: how many measure at once; 0 for as many as there are cores.
        roots: real paths of the directories outside of which nothing is read; None for no bounds.
        limits: what a child process may use; None for no limits.
        cluster: address of the scheduler of a Dask cluster that does the work; None to do it here.

    Raises:
        CatalogueError: the database cannot be opened or brought up to date.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    manner = Manner(database_url, processes or usable_cores(), roots, limits, cluster=cluster)
    with _open(database_url) as engine, Supervisor(engine, jobs.worker_name(), manner) as supervisor:
        _take_turns(engine, supervisor.name, stopping, supervisor.turn)


@contextmanager
def _open(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    try:
        upgrade(engine)
        if warning := sqlite_warning(engine):
            log.info("%s", warning)
        yield engine
    finally:
        engine.dispose()


def _take_turns(engine: Engine, name: str, until: threading.Event, turn: Callable[[], bool]) -> None:
    """Call `turn` again and again, and wait a little where it found nothing to do."""
    with _announced(engine, name):
        purge_at = time.monotonic()
        while not until.is_set():
            if time.monotonic() >= purge_at:
                purge_at = time.monotonic() + PURGE_SECONDS
                with _tolerated(), writing(engine) as session:
                    purge_deleted(session, older_than=timedelta(days=BIN_DAYS))
                    purge_audit(session)
            is_done = False
            with _tolerated():
                is_done = turn()
            if not is_done:
                until.wait(POLL_SECONDS)


@contextmanager
def _announced(engine: Engine, name: str) -> Iterator[None]:
    """Let the health page see that the worker is alive while the block runs."""
    left = threading.Event()

    def announce() -> None:
        while True:
            with _tolerated():
                worker_seen(engine, name)
            if left.wait(SEEN_SECONDS):
                return

    thread = threading.Thread(target=announce, name="announce", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
        with _tolerated():
            worker_gone(engine, name)


@contextmanager
def _tolerated() -> Iterator[None]:
    """Go on after an error of the database: a full disk and a busy database may pass."""
    try:
        yield
    except CatalogueError as error:
        log.warning("%s", error)
