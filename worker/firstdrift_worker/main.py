"""The worker: takes jobs one at a time, until it is asked to stop.

    run("sqlite:////data/firstdrift.db", processes=4, until=stopping)    in a thread, or
    work_until_signal("sqlite:////data/firstdrift.db", processes=4)      as a process of its own

A job that is under way when the worker is asked to stop is put back at once; another worker goes on
from what has been kept.
"""

import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

from sqlalchemy import Engine

from firstdrift.catalogue import jobs
from firstdrift.catalogue.comparisons import purge_deleted
from firstdrift.catalogue.engine import open_engine, sqlite_warning, writing
from firstdrift.catalogue.jobs import Claim, Lease
from firstdrift.catalogue.migrate import upgrade
from firstdrift.errors import CatalogueError, FirstdriftError, JobCancelledError, JobLostError
from firstdrift_worker.comparing import Work, WorkerStoppedError, compare_dumps
from firstdrift_worker.measuring import Measurer
from firstdrift_worker.reading import read_dump

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
SEEN_SECONDS = 5.0
RETRY_SECONDS = 5.0
BIN_DAYS = 30
PURGE_SECONDS = 24 * 3600.0


def run(
    database_url: str, *, processes: int, until: threading.Event, lease: float = jobs.LEASE_SECONDS
) -> None:
    """Take jobs, one at a time, until the event is set.

    Args:
        database_url: where the jobs are; its tables are brought up to date first.
        processes: how many measure at once; with 1, no other process is started.
        until: when set, the worker puts its job back and returns.
        lease: seconds after which another worker may take over what a dead one had.

    Raises:
        CatalogueError: the database cannot be opened or brought up to date.
    """
    engine = open_engine(database_url)
    upgrade(engine)
    if warning := sqlite_warning(engine):
        log.info("%s", warning)
    name = jobs.worker_name()
    try:
        with _announced(engine, name):
            purge_at = time.monotonic()
            while not until.is_set():
                if time.monotonic() >= purge_at:
                    purge_at = time.monotonic() + PURGE_SECONDS
                    with _tolerated(), writing(engine) as session:
                        purge_deleted(session, older_than=timedelta(days=BIN_DAYS))
                claim = None
                with _tolerated():
                    claim = jobs.claim_job(engine, name, lease=lease)
                    if claim is not None:
                        _do(engine, claim, processes, until, lease)
                if claim is None:
                    until.wait(POLL_SECONDS)
    finally:
        engine.dispose()


def work_until_signal(database_url: str, *, processes: int = 0) -> None:
    """Run until SIGTERM or SIGINT, with as many processes as there are cores unless told.

    Raises:
        CatalogueError: the database cannot be opened or brought up to date.
    """
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    run(database_url, processes=processes or cores, until=stopping)


@contextmanager
def _announced(engine: Engine, name: str) -> Iterator[None]:
    """Let the health page see that the worker is alive while the block runs."""
    left = threading.Event()

    def announce() -> None:
        while True:
            with _tolerated():
                jobs.worker_seen(engine, name)
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
            jobs.worker_gone(engine, name)


@contextmanager
def _tolerated() -> Iterator[None]:
    """Go on after an error of the database: a full disk and a busy database may pass."""
    try:
        yield
    except CatalogueError as error:
        log.warning("%s", error)


def _work_on(work: Work, claim: Claim, measurer: Measurer) -> None:
    match claim:
        case Claim(kind=jobs.COMPARE, comparison_id=int(comparison)):
            compare_dumps(work, comparison, measurer)
        case Claim(kind=jobs.INDEX | jobs.COMPUTE, path=str(path)):
            read_dump(work, Path(path), computes=claim.kind == jobs.COMPUTE)
        case _:
            raise CatalogueError(f"this version knows no job of the kind {claim.kind!r}")


def _do(engine: Engine, claim: Claim, processes: int, until: threading.Event, lease: float) -> None:
    """Do a job, and record how it ended."""
    # A worker may have died of this job: what it died of must not take the next one along.
    isolated = claim.attempt > 1
    try:
        with Lease(engine, claim, lease) as held, Measurer(processes, isolated=isolated) as measurer:
            _work_on(Work(engine, held, until), claim, measurer)
    except JobLostError:
        raise
    except JobCancelledError:
        with writing(engine) as session:
            jobs.cancel_job(session, claim)
    except WorkerStoppedError:
        with writing(engine) as session:
            jobs.release_job(session, claim)
    except CatalogueError as error:
        log.warning("job %d failed, and is tried again: %s", claim.job_id, error)
        _fail(engine, claim, error, retry_after=RETRY_SECONDS)
    except FirstdriftError as error:
        _fail(engine, claim, error, retry_after=None)
    except Exception as error:  # a mistake of ours ends the job, not the worker
        log.exception("job %d failed", claim.job_id)
        _fail(engine, claim, error, retry_after=None)


def _fail(engine: Engine, claim: Claim, error: Exception, *, retry_after: float | None) -> None:
    text = str(error) if isinstance(error, FirstdriftError) else f"{type(error).__name__}: {error}"
    with writing(engine) as session:
        jobs.fail_job(session, claim, text, traceback.format_exc(), retry_after=retry_after)
