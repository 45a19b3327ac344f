"""Do one job, and record how it ended."""

import logging
import threading
import traceback
from pathlib import Path

from sqlalchemy import Engine

from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.jobs import queue as jobs
from firstdrift.catalogue.jobs.lease import Lease
from firstdrift.catalogue.jobs.queue import Claim
from firstdrift.cluster.lanes import Cluster
from firstdrift.errors import CatalogueError, FirstdriftError, JobCancelledError, JobLostError
from firstdrift.logs import about
from firstdrift.wording.message import Message
from firstdrift_worker.comparing import compare_dumps
from firstdrift_worker.following import look_again
from firstdrift_worker.manner import Manner
from firstdrift_worker.measuring import Measurer
from firstdrift_worker.reading import read_dump
from firstdrift_worker.work import Work, WorkerStoppedError

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


def _work_on(work: Work, claim: Claim, measurer: Measurer) -> None:
    match claim:
        case Claim(kind=jobs.COMPARE, comparison_id=int(comparison)):
            compare_dumps(work, comparison, measurer)
        case Claim(kind=jobs.INDEX | jobs.COMPUTE, path=str(path)):
            read_dump(work, Path(path), computes=claim.kind == jobs.COMPUTE)
        case Claim(kind=jobs.FOLLOW, path=str(path)):
            look_again(work, Path(path))
        case _:
            raise CatalogueError(Message.of("worker.unknown_job", kind=claim.kind))


def do_job(engine: Engine, claim: Claim, until: threading.Event, manner: Manner) -> None:
    """Do a job, and record how it ended.

    Args:
        engine: where the jobs are.
        claim: the job, in these hands.
        until: when set, the job is put back.
        manner: how it is done.

    Raises:
        CatalogueError: the database cannot be written, or another worker has the job.
    """
    with about(job=claim.job_id, comparison=claim.comparison_id):
        log.info("job %d begins: %s, attempt %d", claim.job_id, claim.kind, claim.attempt)
        ended = _do(engine, claim, until, manner)
        log.info("job %d %s", claim.job_id, ended)


def _do(engine: Engine, claim: Claim, until: threading.Event, manner: Manner) -> str:
    """Do a job, and record how it ended; return that in a word."""
    # A process may have died of this job: what it died of must not take the next one along.
    measurer = Measurer(manner.processes, isolated=claim.attempt > 1, roots=manner.roots)
    try:
        with Lease(engine, claim, manner.lease) as held, measurer:
            crew = Cluster(manner.cluster) if manner.cluster is not None else None
            _work_on(Work(engine, manner.database_url, held, until, manner.limits, crew), claim, measurer)
    except JobLostError:
        raise
    except JobCancelledError:
        with writing(engine) as session:
            jobs.cancel_job(session, claim)
        return "was cancelled"
    except WorkerStoppedError:
        with writing(engine) as session:
            jobs.release_job(session, claim)
        return "is put back"
    except CatalogueError as error:
        log.warning("job %d failed, and is tried again: %s", claim.job_id, error)
        if claim.kind == jobs.FOLLOW:  # nobody asks for it again
            with writing(engine) as session:
                jobs.put_back(session, claim, RETRY_SECONDS)
        else:
            _fail(engine, claim, error, retry_after=RETRY_SECONDS)
    except FirstdriftError as error:
        log.info("job %d cannot be done: %s", claim.job_id, error)
        _fail(engine, claim, error, retry_after=None)
    except Exception as error:  # a mistake of ours ends the job, not the worker
        log.exception("job %d failed", claim.job_id)
        _fail(engine, claim, error, retry_after=None)
    else:
        return "is done"
    return "failed"


def _fail(engine: Engine, claim: Claim, error: Exception, *, retry_after: float | None) -> None:
    unexpected = Message.of("worker.unexpected", kind=type(error).__name__, error=str(error))
    reason = error.whole() if isinstance(error, FirstdriftError) else unexpected
    with writing(engine) as session:
        jobs.fail_job(session, claim, reason, traceback.format_exc(), retry_after=retry_after)
