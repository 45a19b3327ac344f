"""Processes that compare pairs of slices side by side, each with a connection of its own to the catalogue."""

import multiprocessing
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import Struct

from firstdrift.catalogue.comparisons.baselines import noise_places
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.catalogue.jobs.queue import Claim
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.side_by_side import serve
from firstdrift.files import allow_mapping, confine_process
from firstdrift.logs import Carried, carried, take_over
from firstdrift.matching.plan import SlicePairing
from firstdrift.processes.children import OUTLASTS
from firstdrift.processes.lanes import Lane
from firstdrift.processes.limits import Limits, be_first_to_go, collect_garbage_seldom, limit_memory
from firstdrift.wording.message import Message
from firstdrift_worker.indexing import load_indexed
from firstdrift_worker.measuring import Measurer, end_with_parent
from firstdrift_worker.storage import CatalogueStorage, DumpPair
from firstdrift_worker.work import Work


class LaneTask(Struct, frozen=True):
    """What a lane works on.

    Attributes:
        database_url: where the catalogue is, with the password if there is one.
        claim: the job, in the hands of the process that asks.
        comparison_id: what is compared.
        dumps: ids of the golden and the target dump, both indexed.
        pairing: which of their slices are compared.
        processes: how many measure at once.
        roots: as `Manner` has them; likewise limits.
    """

    database_url: str
    claim: Claim
    comparison_id: int
    dumps: tuple[int, int]
    pairing: SlicePairing
    processes: int
    roots: Sequence[Path] | None
    limits: Limits | None


@dataclass(frozen=True, slots=True)
class _HeldElsewhere:
    """A job that another process holds, which ends this one if the job is lost or cancelled."""

    claim: Claim

    def check(self) -> None:
        """Go on."""

    def progress(self, done: int, total: int, stage: Message) -> None:
        """Leave it to the other process, which is told through the line."""


class WorkerLane(Lane):
    """A process that compares pairs of slices."""

    def __init__(self, task: LaneTask) -> None:
        """Start it.

        Raises:
            OSError: there may be no more processes.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([OUTLASTS, __name__])
        self.line, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there, task, carried()), name="lane")
        self._process.start()
        there.close()

    def end(self) -> None:
        """End the process, if it has not ended yet."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.line.close()


def _work(line: Connection, task: LaneTask, logs: Carried) -> None:
    """Answer until nobody asks any more: what a lane does."""
    take_over(logs)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    be_first_to_go()
    collect_garbage_seldom()
    if task.limits is not None:
        limit_memory(task.limits.memory)
    confine_process(task.roots)
    allow_mapping(allowed=True)
    engine = open_engine(task.database_url)
    work = Work(engine, task.database_url, _HeldElsewhere(task.claim), threading.Event(), task.limits)
    with reading(engine) as session:
        comparison = get_comparison(session, task.comparison_id)
        baseline = noise_places(session, comparison.options.baseline)
    golden, target = (load_indexed(work, dump) for dump in task.dumps)
    pair = DumpPair(golden, target, task.pairing)
    with Measurer(task.processes, roots=task.roots) as measurer:
        storage = CatalogueStorage(work, comparison, pair, measurer, baseline)
        options = comparison.options
        with suppress(EOFError, OSError):
            serve(ComparisonSession(storage, options.rules, options.thresholds), storage, line)
