"""Workers for the tests."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from msgspec.structs import replace
from sqlalchemy import Engine

from firstdrift.catalogue.comparisons.records import Comparison, create_comparison, get_comparison
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.report import Options
from firstdrift.verdict.judgement import Finding, Findings
from firstdrift.wording.message import Message
from firstdrift_worker import main

# Who waits for hundreds of jobs looks more often whether there is one.
main.POLL_SECONDS = 0.1


@contextmanager
def worker(
    url: str, *, processes: int = 1, lease: float = 15.0, cluster: str | None = None
) -> Iterator[None]:
    """Let a worker take jobs in a thread while the block runs."""
    stopping = threading.Event()
    work = {"processes": processes, "until": stopping, "lease": lease, "cluster": cluster}
    thread = threading.Thread(target=main.run, args=(url,), kwargs=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def wait_for_comparison(engine: Engine, comparison_id: int, seconds: float = 60.0) -> Comparison:
    """Wait until the job of a comparison is over; give the comparison."""

    def now() -> Comparison:
        with reading(engine) as session:
            return get_comparison(session, comparison_id)

    wait_until(lambda: now().job.is_over, seconds)
    return now()


def ask_to_compare(engine: Engine, golden: Path, target: Path, options: Options | None = None) -> int:
    """Ask for a comparison, as a page does."""
    with writing(engine, durable=True) as session:
        return create_comparison(session, golden, target, options or Options())


def compare_with_worker(
    url: str,
    golden: Path,
    target: Path,
    options: Options | None = None,
    *,
    processes: int = 1,
    cluster: str | None = None,
) -> Comparison:
    """Ask for a comparison and let a worker do it."""
    engine = open_engine(url)
    upgrade(engine)
    comparison_id = ask_to_compare(engine, golden, target, options)
    with worker(url, processes=processes, cluster=cluster):
        comparison = wait_for_comparison(engine, comparison_id)
    engine.dispose()
    assert comparison.state is JobState.DONE, comparison.job.traceback or comparison.job.error
    return comparison


def unseen(findings: Findings | None) -> Findings | None:
    """Leave out what values show, and what is said where they were not looked at: a preview does not look."""
    if findings is None or findings.first_bad_node is None:
        return findings
    first, *others = (
        replace(one, shown=(), cause=(), reasons=tuple(r for r in one.reasons if _is_seen(r, one)))
        for one in (findings.first_bad_node, *findings.suspects)
    )
    summary = _without_cause(findings.summary)
    return replace(findings, summary=summary, first_bad_node=first, suspects=tuple(others))


def _is_seen(reason: Message, finding: Finding) -> bool:
    return reason not in finding.shown and reason.id != "reason.order_of_weights"


def _without_cause(said: Message) -> Message:
    if said.id == "summary.with_cause":
        return cast("Message", said.arguments["said"])
    parts = {
        name: _without_cause(one) if isinstance(one, Message) else one for name, one in said.arguments.items()
    }
    return Message(said.id, parts)
