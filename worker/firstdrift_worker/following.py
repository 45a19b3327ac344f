"""The job that looks whether there is more of a dump that is still being written.

index what has changed ─▶ read it, where somebody looks at the dump ─▶ let its comparisons go on
"""

import logging
from pathlib import Path

from firstdrift.catalogue.dumps import following
from firstdrift.catalogue.dumps.jobs import last_job, newest_index
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.jobs.queue import finish_job, put_back
from firstdrift.errors import DumpError
from firstdrift.wording.message import Message
from firstdrift_worker.indexing import index_dump, read_indexed
from firstdrift_worker.work import Work

log = logging.getLogger(__name__)


def look_again(work: Work, path: Path) -> None:
    """Do the job: look once, and have the next look done later, until nothing has changed for long.

    A dump that cannot be used now, as one of which a file is just being replaced, is looked at again.

    Raises:
        DumpError: the dump as a whole cannot be used, and has not changed for long.
        CatalogueError: as `Work.check`.
    """
    work.lease.progress(0, 0, Message.of("stage.looking"))
    try:
        dump_id = _look(work, path)
    except DumpError as error:
        with work.writing() as session:
            wait = following.seconds_to_wait(session, path)
            if wait is None:
                raise
            put_back(session, work.lease.claim, wait)
        log.info("looked at again in %.0f s: %s", wait, error)
        return
    with work.writing() as session:
        following.go_on(session, dump_id)
        wait = following.seconds_to_wait(session, path)
        if wait is not None:
            put_back(session, work.lease.claim, wait)
            return
        following.end_following(session, dump_id)
        finish_job(session, work.lease.claim)


def _look(work: Work, path: Path) -> int:
    """Index what has changed, and read it where somebody looks at the dump; return its id."""
    with reading(work.engine) as session:
        known, was_read = newest_index(session, path), last_job(session, path) is not None
    indexed = index_dump(work, path, known)
    offered = set(indexed.dump.slices)
    for one in indexed.slices.values():
        if was_read and one.listing in offered and one.nodes is None and not one.problems:
            work.check()
            read_indexed(work, indexed, one.id)
    return indexed.id
