"""Comparisons as lists show them: what was compared, how far it is, and what came out, in one line each."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.jobs.queue import Job, jobs_before, list_workers
from firstdrift.catalogue.jobs.waiting import alive
from firstdrift.catalogue.lookup import record_of
from firstdrift.catalogue.tables import JobState
from firstdrift.exports.report_json import counts_object
from firstdrift.verdict.judgement import Counts
from firstdrift.wording.message import Message


class Side(Struct, frozen=True):
    """A dump of a comparison: its path, and the end of it that tells it from the other."""

    path: str
    name: str


class JobView(Struct, frozen=True):
    """How far a job is.

    Attributes:
        comparison: the id of the comparison it works on, if it works on one; `path` that of a dump.
        jobs_before: how many are done before it begins.
    """

    id: int
    kind: str
    comparison: int | None
    path: str | None
    state: JobState
    is_open: bool
    stage: Message | None
    done: int
    total: int
    share_done: float
    jobs_before: int
    error: Message | None
    attempts: int
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ComparisonSummary(Struct, frozen=True, kw_only=True):
    """A comparison in a few words and numbers.

    Attributes:
        moved: the thresholds that are not at their defaults.
        summary: what it says first; None until it is finished.
        tone: by which icon it is shown: its state, or when it is done, what came out.
    """

    id: int
    address: str
    golden: Side
    target: Side
    state: JobState
    rules: str
    moved: Mapping[str, float]
    baseline: int | None
    note: str
    created_at: datetime
    finished_at: datetime | None
    summary: Message | None
    tone: str
    counts: Mapping[str, int] | None
    job: JobView


class WorkerView(Struct, frozen=True):
    """Whether anybody is there to do the work: who is alive, and when one was last seen."""

    alive: list[str]
    last_seen: datetime | None


def comparison_summary(session: Session, comparison: Comparison) -> ComparisonSummary:
    """Describe a comparison in a few words and numbers."""
    paths = str(comparison.golden_path), str(comparison.target_path)
    golden, target = map(Side, paths, distinct_names(*paths))
    return record_of(
        ComparisonSummary,
        comparison,
        address=f"/c/{comparison.id}",
        golden=golden,
        target=target,
        rules=comparison.options.rules,
        moved=comparison.options.thresholds.moved(),
        baseline=comparison.options.baseline,
        summary=comparison.findings and comparison.findings.summary,
        tone=_tone(comparison),
        counts=comparison.counts and counts_object(comparison.counts),
        job=job_view(session, comparison.job),
    )


def job_view(session: Session, job: Job) -> JobView:
    """Say how far a job is."""
    before = jobs_before(session, job)
    return record_of(JobView, job, comparison=job.comparison_id, is_open=not job.is_over, jobs_before=before)


def worker_view(session: Session) -> WorkerView:
    """Say which workers are alive, and when one was last seen."""
    workers = list_workers(session)
    return WorkerView(list(alive(workers)), max((worker.seen_at for worker in workers), default=None))


def _tone(comparison: Comparison) -> str:
    if comparison.state is JobState.DONE and comparison.findings is not None:
        return comparison.findings.tone(comparison.counts or Counts(), comparison.unreadable or 0)
    return "error" if comparison.state is JobState.FAILED else comparison.state


def distinct_names(golden: str, target: str) -> tuple[str, str]:
    """Shorten two paths to their last two parts, or to as many as it takes to tell them apart."""
    golden_parts, target_parts = golden.strip("/").split("/"), target.strip("/").split("/")
    shared = 1
    while (
        golden_parts != target_parts
        and golden_parts[-1 - shared :] == target_parts[-1 - shared :]
        and shared + 1 < min(len(golden_parts), len(target_parts))
    ):
        shared += 1
    return "/".join(golden_parts[-1 - shared :]), "/".join(target_parts[-1 - shared :])
