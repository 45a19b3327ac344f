"""Comparisons as lists show them: what was compared, how far it is, and what came out, in one line each."""

from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, list_comparisons
from firstdrift.catalogue.jobs.queue import Job, jobs_before
from firstdrift.catalogue.tables import JobState
from firstdrift.exports.report_json import counts_object
from firstdrift.verdict.judgement import Findings, Verdict


def list_view(
    session: Session, *, text: str = "", before: int | None = None, limit: int = 50
) -> dict[str, Any]:
    """List comparisons, the newest first."""
    found = list_comparisons(session, limit=limit + 1, before=before, text=text)
    shown = [comparison_summary(session, comparison) for comparison in found[:limit]]
    return {
        "comparisons": shown,
        "is_live": any(summary["job"]["is_open"] for summary in shown),
        "next_before": shown[-1]["id"] if len(found) > limit else None,
        "text": text,
    }


def comparison_summary(session: Session, comparison: Comparison) -> dict[str, Any]:
    """Describe a comparison in a few words and numbers."""
    golden, target = distinct_names(str(comparison.golden_path), str(comparison.target_path))
    return {
        "id": comparison.id,
        "address": f"/c/{comparison.id}",
        "golden": {"path": str(comparison.golden_path), "name": golden},
        "target": {"path": str(comparison.target_path), "name": target},
        "state": str(comparison.state),
        "rules": comparison.options.rules,
        "moved": comparison.options.thresholds.moved(),
        "baseline": comparison.options.baseline,
        "note": comparison.note,
        "created_at": comparison.created_at,
        "finished_at": comparison.finished_at,
        "summary": comparison.findings.summary if comparison.findings else None,
        "tone": tone(comparison),
        "counts": counts_object(comparison.counts) if comparison.counts else None,
        "job": job_view(session, comparison.job),
    }


def job_view(session: Session, job: Job) -> dict[str, Any]:
    """Say how far a job is."""
    return {
        "id": job.id,
        "kind": job.kind,
        "comparison": job.comparison_id,
        "path": job.path,
        "state": str(job.state),
        "is_open": not job.is_over,
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
        "share_done": job.share_done,
        "jobs_before": jobs_before(session, job),
        "error": job.error,
        "attempts": job.attempts,
        "cancel_requested": job.cancel_requested,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
    }


def tone(comparison: Comparison) -> str:
    """Say by which icon a comparison is shown: its state, or when it is done, what came out."""
    if comparison.state is JobState.DONE and comparison.findings is not None:
        return str(worst_of(comparison, comparison.findings))
    return "error" if comparison.state is JobState.FAILED else str(comparison.state)


def worst_of(comparison: Comparison, findings: Findings) -> Verdict:
    """Say how a comparison came out as a whole."""
    counts = comparison.counts
    if findings.first_bad_token is not None or findings.first_bad_node is not None:
        return Verdict.ERROR
    if findings.unlike is not None or findings.not_judged is not None:
        return Verdict.INCOMPARABLE
    if findings.input_differs or findings.overflow or (counts is not None and counts.error + counts.warning):
        return Verdict.WARNING
    # Where a part could not be read, nothing is said to be well.
    if counts is None or counts.pairs == counts.incomparable or comparison.unreadable:
        return Verdict.INCOMPARABLE
    return Verdict.PASS


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
