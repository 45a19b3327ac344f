"""What /metrics says, read when it is asked for."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from itertools import accumulate, product
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from firstdrift.catalogue.integrity import file_of
from firstdrift.catalogue.jobs.queue import COMPARE, COMPUTE, FOLLOW, INDEX
from firstdrift.catalogue.jobs.waiting import Standing, standing
from firstdrift.catalogue.sizes import free_bytes
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import CatalogueError
from firstdrift_server.context import Context
from firstdrift_server.traffic import BOUNDS, Times, Traffic

CONTENT_TYPE = CONTENT_TYPE_LATEST

_KINDS = (COMPARE, INDEX, COMPUTE, FOLLOW)
_STATES = (JobState.QUEUED, JobState.RUNNING, JobState.FAILED)


def exposition(context: Context) -> bytes:
    """Write all figures in the text format of Prometheus."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Figures(context))
    return generate_latest(registry)


class _Figures(Collector):
    """Collects the figures of a server."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """Give all figures."""
        yield _gauge("build_info", "Always 1; which version this is.", {"version": version("firstdrift")}, 1)
        yield from _of_traffic(self._context.traffic)
        yield from _of_visitors(self._context)
        yield from _of_disk(self._context)
        yield from _of_database(self._context)


def _gauge(name: str, what: str, labels: Mapping[str, str], value: float) -> Metric:
    gauge = GaugeMetricFamily(f"firstdrift_{name}", what, labels=[*labels])
    gauge.add_metric([*labels.values()], value)
    return gauge


def _of_traffic(traffic: Traffic) -> Iterator[Metric]:
    answered = CounterMetricFamily(
        "firstdrift_requests", "Requests that were answered.", labels=["route", "method", "status"]
    )
    for (route, method, status), count in traffic.answered().items():
        answered.add_metric([route, method, str(status)], count)
    yield answered
    seconds = HistogramMetricFamily(
        "firstdrift_request_seconds",
        "Seconds from the head of a request to the end of its answer.",
        labels=["route", "method"],
    )
    for of, times in traffic.times().items():
        seconds.add_metric([*of], _buckets(times), times.total)
    yield seconds
    yield _gauge("answers_under_way", "Answers that are being given.", {}, traffic.under_way)


def _buckets(times: Times) -> list[tuple[str, float]]:
    names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    return list(zip(names, accumulate(times.counts), strict=True))


def _of_visitors(context: Context) -> Iterator[Metric]:
    waiting = sum(turns.waiting for turns in (*context.turns.values(), context.checks))
    yield _gauge("visitors_waiting", "Visitors who wait for a turn.", {}, waiting)
    answered = GaugeMetricFamily(
        "firstdrift_visitors_answered", "Visitors who are being answered.", labels=["kind"]
    )
    for visit, turns in context.turns.items():
        answered.add_metric([visit.name.lower()], turns.taken)
    yield answered
    yield _gauge("exports_under_way", "Files that are being written.", {}, context.writers.at_work)


def _of_disk(context: Context) -> Iterator[Metric]:
    quota = context.uploads.quota
    yield _gauge("uploads_quota_bytes", "What uploads may take of the disk.", {}, quota)
    folder = context.uploads.folder
    taken = context.sizes.get(folder) if folder.is_dir() else 0
    if taken is not None:
        yield _gauge("uploads_bytes", "What uploads take, added up every ten minutes.", {}, taken)
    free = free_bytes(context.settings.data_dir)
    yield _gauge("disk_free_bytes", "What is free on the disk of the data directory.", {}, free)


def _of_database(context: Context) -> Iterator[Metric]:
    """Give what the database says; where it is away, that it is, and nothing else."""
    try:
        with context.reading() as session:
            jobs, size = standing(session), _size(context, session)
    except CatalogueError:
        yield _gauge("database_up", "Whether the database answers.", {}, 0)
        return
    yield _gauge("database_up", "Whether the database answers.", {}, 1)
    yield _gauge("database_bytes", "What the database takes.", {}, size)
    yield from _of_jobs(jobs)


def _of_jobs(jobs: Standing) -> Iterator[Metric]:
    counts = GaugeMetricFamily("firstdrift_jobs", "Jobs that are there.", labels=["kind", "state"])
    for kind, state in dict.fromkeys((*product(_KINDS, _STATES), *jobs.counts)):
        counts.add_metric([kind, state], jobs.counts.get((kind, state), 0))
    yield counts
    waiting = jobs.waiting or 0.0
    yield _gauge("oldest_job_seconds", "How long the oldest job that could be done waits.", {}, waiting)
    yield _gauge("workers_alive", "Workers that were heard of lately.", {}, len(jobs.workers))
    yield _gauge("workers_stuck", "1 where workers live and take nothing.", {}, jobs.is_stuck)


def _size(context: Context, session: Session) -> int:
    file = file_of(context.settings.database)
    if file is None:
        return session.scalar(select(func.pg_database_size(func.current_database()))) or 0
    return sum(_bytes_of(file.with_name(f"{file.name}{end}")) for end in ("", "-wal"))


def _bytes_of(file: Path) -> int:
    # SQLite removes the second file with its last connection.
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0
