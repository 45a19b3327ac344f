"""Whether anybody is there to do the work."""

from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.jobs.queue import list_workers

SILENT_SECONDS = 20.0
"""A worker says every few seconds that it is alive; after so many without a word it is taken for gone."""


def worker_view(session: Session) -> dict[str, Any]:
    """Say which workers are alive, and when one was last seen."""
    workers = list_workers(session)
    alive = [worker.name for worker in workers if abs(worker.seconds_since_seen) < SILENT_SECONDS]
    return {"alive": alive, "last_seen": max((worker.seen_at for worker in workers), default=None)}
