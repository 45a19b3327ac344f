"""The job that looks whether there is more of a dump that is still being written.

index what has changed ─▶ read it, where somebody looks at the dump ─▶ let its comparisons go on
"""

from pathlib import Path

from firstdrift.catalogue.dumps import following
from firstdrift.catalogue.dumps.jobs import last_job, newest_index
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.jobs.queue import finish_job, put_back
from firstdrift.wording.message import Message
from firstdrift_worker.indexing import index_dump, read_indexed
from firstdrift_worker.work import Work


def look_again(work: Work, path: Path) -> None:
    """Do the job: look once, and have the next look done later, until nothing has changed for long.

    Raises:
        FirstdriftError: the dump as a whole cannot be used; or as `Work.check`.
    """
    work.lease.progress(0, 0, Message.of("stage.looking"))
    with reading(work.engine) as session:
        known, was_read = newest_index(session, path), last_job(session, path) is not None
    indexed = index_dump(work, path, known)
    offered = set(indexed.dump.slices)
    for one in indexed.slices.values():
        if was_read and one.listing in offered and one.nodes is None and not one.problems:
            work.check()
            read_indexed(work, indexed, one.id)
    with work.writing() as session:
        following.go_on(session, indexed.id)
        wait = following.seconds_to_wait(session, path)
        if wait is not None:
            put_back(session, work.lease.claim, wait)
            return
        following.end_following(session, indexed.id)
        finish_job(session, work.lease.claim)
