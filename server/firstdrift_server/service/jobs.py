"""/api/v1/jobs: what workers are doing and have done."""

from firstdrift.catalogue.jobs.queue import get_job, list_jobs, request_cancel
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.parts.summary import job_view
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("/jobs", "jobs")


@router.get("")
def list_all(context: Shared, *, only_open: bool = False) -> StrictJSONResponse:
    """List jobs, the newest first; with `only_open` those queued or running."""
    with context.reading() as session:
        jobs = list_jobs(session, only_open=only_open)
        return StrictJSONResponse({"jobs": [job_view(session, job) for job in jobs]})


@router.get("/{job}")
def show(job: int, context: Shared) -> StrictJSONResponse:
    """Say how far a job is, and what went wrong if it failed."""
    with context.reading() as session:
        return StrictJSONResponse(job_view(session, get_job(session, job)))


@router.post("/{job}/cancel")
def cancel(job: int, context: Shared) -> StrictJSONResponse:
    """Ask for a job to stop."""
    with context.writing() as session:
        get_job(session, job)
        request_cancel(session, job)
    return show(job, context)
