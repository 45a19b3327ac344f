"""Dumps that are looked at again by themselves while they grow: one job for each, put back after each look.

a job finds that a dump grows ─▶ look ─▶ wait ─▶ look ─▶ …      until nothing has changed for five minutes,
                                   │                              or a person stops it
                                   └── more of it: its comparisons go on
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sqlalchemy import Double, or_, select, type_coerce, update
from sqlalchemy.orm import Session

from firstdrift.catalogue.columns import Now
from firstdrift.catalogue.comparisons.records import compare_what_is_new, get_comparison
from firstdrift.catalogue.dumps.jobs import newest_index, newest_job
from firstdrift.catalogue.jobs.queue import FOLLOW, ORDINARY, Job, enqueue, request_cancel
from firstdrift.catalogue.tables import ComparisonEntry, DumpEntry, JobState

LOOK_SECONDS: Final = 5.0
"""From one look to the next; longer where nothing has changed for long."""

LONGEST_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 300.0
"""A dump that has not changed for so long is not looked at again."""


def follow(session: Session, path: Path) -> None:
    """Look at a dump again by itself, unless it is already, or a person has stopped that."""
    known = _alone(session, path)
    if known is None or known.state not in (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLED):
        enqueue(session, FOLLOW, path=str(path), after=LOOK_SECONDS)


def follow_again(session: Session, path: Path) -> None:
    """Look at a dump again by itself, though a person has stopped that."""
    known = _alone(session, path)
    if known is None or known.is_over:
        enqueue(session, FOLLOW, path=str(path))


def _alone(session: Session, path: Path) -> Job | None:
    """Give the job that looks at a dump, or did last; nobody else adds one before this transaction ends."""
    of_path = select(DumpEntry.id).where(DumpEntry.path == str(path)).order_by(DumpEntry.id)
    session.scalars(of_path.with_for_update()).all()
    return following(session, path)


def stop_following(session: Session, path: Path) -> None:
    """Look at a dump no more by itself, as a person asks for it."""
    known = following(session, path)
    if known is not None:
        request_cancel(session, known.id)


def following(session: Session, path: Path) -> Job | None:
    """Give the job that looks at a dump, or did last; None if there was none."""
    return newest_job(session, path, FOLLOW)


def is_followed(session: Session, path: Path) -> bool:
    """Tell whether a dump is looked at again by itself."""
    known = following(session, path)
    return known is not None and not known.is_over and not known.cancel_requested


def let_follow(session: Session, comparison_id: int, growing: Iterable[Path]) -> None:
    """Let a comparison go on by itself whenever there is more of dumps that grow."""
    if get_comparison(session, comparison_id).job.cancel_requested:
        return
    for path in sorted(growing):  # in one order for all: each waits for whoever has the entry of a dump
        follow(session, path)
        change = update(ComparisonEntry).where(ComparisonEntry.id == comparison_id).values(follows=True)
        session.execute(change)


def go_on(session: Session, dump_id: int) -> list[int]:
    """Let the comparisons that follow a dump compare what is new; return their ids.

    They wait behind what people have asked for: a dump that changes without end must keep nobody waiting.
    """
    files = select(DumpEntry.fingerprint).where(DumpEntry.id == dump_id).scalar_subquery()
    one = ComparisonEntry
    golden = (one.golden_id == dump_id) & (one.golden_files != files)
    target = (one.target_id == dump_id) & (one.target_files != files)
    wanted = select(one.id).where(one.follows, one.deleted_at.is_(None), or_(golden, target))
    found = list(session.scalars(wanted.order_by(one.id)))
    for comparison_id in found:
        compare_what_is_new(session, comparison_id, priority=ORDINARY)
    return found


def seconds_to_wait(session: Session, path: Path) -> float | None:
    """Say in how many seconds a dump is looked at next; None if it is unknown, or as it was for long."""
    age = type_coerce(Now(), Double) - type_coerce(DumpEntry.indexed_at, Double)
    quiet = session.scalar(select(age).where(DumpEntry.id == newest_index(session, path)))
    return (
        None
        if quiet is None or quiet >= QUIET_SECONDS
        else min(LONGEST_SECONDS, max(LOOK_SECONDS, quiet / 4))
    )


def end_following(session: Session, dump_id: int) -> None:
    """Let no comparison wait for more of a dump any longer."""
    either = or_(ComparisonEntry.golden_id == dump_id, ComparisonEntry.target_id == dump_id)
    session.execute(update(ComparisonEntry).where(either).values(follows=False))
