"""Jobs that read one dump, so that it can be looked at without a partner."""

from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.jobs.queue import COMPUTE, INDEX, INTERACTIVE, Job, enqueue, job_record
from firstdrift.catalogue.tables import DumpEntry, JobEntry


def read_dump_later(session: Session, path: Path, *, computes: bool = False) -> int:
    """Ask for a dump to be read into the catalogue; return the id of the job, an open one if there is one.

    Args:
        session: a writing session.
        path: real path of the dump.
        computes: also compute the statistics of tensors that were saved without them.
    """
    last = last_job(session, path)
    kind = COMPUTE if computes else INDEX
    if last is not None and not last.is_over and last.kind in (kind, COMPUTE) and not last.cancel_requested:
        return last.id
    return enqueue(session, kind, path=str(path), priority=INTERACTIVE)


def last_job(session: Session, path: Path) -> Job | None:
    """Look up the newest job that reads the dump at a path."""
    return newest_job(session, path, INDEX, COMPUTE)


def newest_job(session: Session, path: Path, *kinds: str) -> Job | None:
    """Look up the newest job of some kinds that works on the dump at a path."""
    here = select(JobEntry).where(JobEntry.path == str(path), JobEntry.kind.in_(kinds))
    found = session.scalars(here.order_by(JobEntry.id.desc()).limit(1)).one_or_none()
    return None if found is None else job_record(found)


def newest_index(session: Session, path: Path) -> int | None:
    """Return the id under which the dump at a path was indexed last; None if it never was."""
    return session.scalar(select(func.max(DumpEntry.id)).where(DumpEntry.path == str(path)))
