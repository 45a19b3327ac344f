"""How a worker does its jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firstdrift.catalogue.jobs import queue as jobs
from firstdrift.processes.limits import Limits


@dataclass(frozen=True, slots=True)
class Manner:
    """How jobs are done.

    Attributes:
        database_url: where the jobs are.
        processes: how many measure at once.
        roots: real paths of the directories outside of which nothing is read; None for no bounds.
        limits: memory of each process; processor time for reading one slice of a dump. None for no limits.
        lease: seconds after which another worker may take over what a dead one had.
        cluster: address of the scheduler of a Dask cluster that does the work; None to do it here.
    """

    database_url: str
    processes: int
    roots: Sequence[Path] | None = None
    limits: Limits | None = None
    lease: float = jobs.LEASE_SECONDS
    cluster: str | None = None
