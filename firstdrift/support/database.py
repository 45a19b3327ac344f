"""What a database is like: its schema, how much there is of what, and the jobs that failed last."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, func, inspect, select, text
from sqlalchemy.orm import Session

from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.catalogue.integrity import file_of
from firstdrift.catalogue.jobs.queue import job_record
from firstdrift.catalogue.jobs.waiting import standing
from firstdrift.catalogue.migrate import HEAD, missing_tables, step_of
from firstdrift.catalogue.tables import Entry, JobEntry, JobState
from firstdrift.errors import FirstdriftError
from firstdrift.support.hiding import Hider
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

MOST_JOBS: Final = 20
"""So many of the jobs that failed last are told of."""


def database(url: str, hider: Hider) -> dict[str, Any]:
    """Describe a database; where it cannot be read, say why."""
    try:
        file = file_of(url)
        if file is not None and not file.is_file():
            return {"there": False}
        engine = open_engine(url)
        try:
            return _described(engine, file, hider)
        finally:
            engine.dispose()
    except FirstdriftError as error:
        said = {"said": hider.text(str(error))} if hider.with_names else {}
        return {"error": ids_of(error.message)} | said


def _described(engine: Engine, file: Path | None, hider: Hider) -> dict[str, Any]:
    with reading(engine) as session:
        known = {
            "kind": engine.dialect.name,
            "schema": step_of(session),
            "newest_schema": HEAD,
            "missing_tables": missing_tables(session),
            "bytes": _bytes(session, file),
            "rows": dict(_rows(session)),
        }
        if known["missing_tables"]:
            return known
        jobs = standing(session)
        return known | {
            "jobs": {f"{kind} {state}": count for (kind, state), count in jobs.counts.items()},
            "oldest_job_seconds": jobs.waiting,
            "workers_alive": len(jobs.workers),
            "workers_stuck": jobs.is_stuck,
            "failed": [_failed(one, hider) for one in _last_failed(session)],
        }


def _rows(session: Session) -> Iterator[tuple[str, int]]:
    there = set(inspect(session.connection()).get_table_names())
    for name, table in sorted(Entry.metadata.tables.items()):
        if name in there:
            yield name, session.scalar(select(func.count()).select_from(table)) or 0


def _bytes(session: Session, file: Path | None) -> dict[str, int]:
    if file is None:
        return {"database": session.scalar(text("SELECT pg_database_size(current_database())")) or 0}
    ends = ("", "-wal", "-shm")
    parts = {f"database{end}": file.with_name(f"{file.name}{end}") for end in ends}
    return {what: part.stat().st_size for what, part in parts.items() if part.exists()}


def _last_failed(session: Session) -> list[JobEntry]:
    failed = select(JobEntry).where(JobEntry.state == JobState.FAILED).order_by(JobEntry.id.desc())
    return list(session.scalars(failed.limit(MOST_JOBS)))


def _failed(entry: JobEntry, hider: Hider) -> dict[str, Any]:
    job = job_record(entry)
    told: dict[str, Any] = {
        "job": job.id,
        "kind": job.kind,
        "comparison": job.comparison_id,
        "attempts": job.attempts,
        "created_at": str(job.created_at),
        "finished_at": str(job.finished_at),
        "error": None if job.error is None else ids_of(job.error),
        "traceback": hider.traceback(job.traceback),
    }
    if hider.with_names:
        said = "" if job.error is None else text_of(job.error)
        told |= {"said": hider.text(said), "path": hider.text(str(job.path))}
    return told


def ids_of(message: Message) -> list[str]:
    """Name a message and those in its gaps, without what else stands there."""
    inner = [ids_of(one) for one in message.arguments.values() if isinstance(one, Message)]
    return [message.id, *(name for names in inner for name in names)]
