"""The job that reads one dump into the catalogue, so that it can be looked at without a partner.

    index the dump ─▶ for each slice: read its nodes ─▶ compute the statistics that were not recorded

What is in the catalogue already is not read again.
"""

import time
from pathlib import Path

from firstdrift.catalogue.dumps.computed import add_computed, computed_of_slice
from firstdrift.catalogue.dumps.following import follow
from firstdrift.catalogue.dumps.nodes import Place
from firstdrift.catalogue.dumps.records import load_slice
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.jobs.queue import finish_job
from firstdrift.comparison.single_dump import TensorView, view_recorded, view_values
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message
from firstdrift_worker.indexing import index_dump, read_indexed, still_grows
from firstdrift_worker.work import Work

KEEP_SECONDS = 1.0
"""What was computed is kept so often."""


def read_dump(work: Work, path: Path, *, computes: bool) -> None:
    """Do the job; with `computes`, read the values of tensors that were saved without statistics.

    Raises:
        FirstdriftError: the dump as a whole cannot be used; or as `Work.check`.
    """
    work.lease.progress(0, 0, Message.of("stage.indexing"))
    indexed = index_dump(work, path, None)
    offered = set(indexed.dump.slices)
    slices = [known for known in indexed.slices.values() if known.listing in offered]
    for number, known in enumerate(slices):
        work.progress(number, len(slices), 0.0, Message.of("stage.reading"))
        is_read = known.nodes is not None or read_indexed(work, indexed, known.id) is not None
        if is_read and computes:
            _compute(work, known.id, number, len(slices))
    grows = still_grows(indexed)
    with work.writing() as session:
        if grows:
            follow(session, path)
        finish_job(session, work.lease.claim)


def _compute(work: Work, slice_id: int, number: int, slices: int) -> None:
    """Compute the statistics of the tensors of which none are known, and keep them as they come."""
    with reading(work.engine) as session:
        read = load_slice(session, slice_id)
        done = computed_of_slice(session, slice_id)
    left: list[tuple[Place, TensorRecord]] = [
        ((node.order, position), record)
        for node in read.nodes
        for position, record in enumerate(node.tensors)
        if (node.order, position) not in done and view_recorded(record) is None
    ]
    found: dict[Place, TensorView] = {}
    keep_at = time.monotonic() + KEEP_SECONDS
    for count, (place, record) in enumerate(left):
        work.check()
        found[place] = view_values(record)
        if time.monotonic() > keep_at or count == len(left) - 1:
            with work.writing() as session:
                add_computed(session, slice_id, found)
            found, keep_at = {}, time.monotonic() + KEEP_SECONDS
            remaining = len(left) - count - 1
            stage = Message.of("stage.computing", left=remaining)
            work.progress(number, slices, 1 - remaining / len(left), stage)
