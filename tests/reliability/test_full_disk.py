"""The disk fills up at one point after another; each time there is a named error and nothing half written."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from messages import refuses
from soak import record, rounds
from sqlalchemy import Connection, Engine, event, text
from working import ask_to_compare, wait_for_comparison, wait_until, worker

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.compare import compare
from firstdrift.errors import CatalogueError
from firstdrift.wording.text import texts
from firstdrift_worker import job


class Disk:
    """A disk with room for so many pages of a database."""

    pages = 10**6

    def limit(self, connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA max_page_count = {self.pages}")


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    event.listen(Engine, "begin", disk.limit)
    yield disk
    event.remove(Engine, "begin", disk.limit)


def test_a_comparison_goes_on_each_time_there_is_space_again(
    engine: Engine,
    disk: Disk,
    sqlite_url: str,
    unpacked: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(job, "RETRY_SECONDS", 0.1)
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_bf16_bad_L7_T2")
    comparison_id = ask_to_compare(engine, golden, target)
    with writing(engine) as session:
        session.execute(text("UPDATE jobs SET max_attempts = 1000"))
        pages = session.scalar(text("PRAGMA page_count"))
    points, full = 0, texts("en")["catalogue.database.full_disk"]
    with worker(sqlite_url, lease=1.5):
        for space in sorted({2, 5, 10, 20, 40, 80, 160, 320} | set(range(2, rounds(2, 320), 4))):
            disk.pages = pages + space
            caplog.clear()
            wait_until(lambda: full in caplog.text or is_over(engine, comparison_id))
            points += not is_over(engine, comparison_id)
            assert_nothing_is_half_there(engine, comparison_id)
        disk.pages = 10**6
        comparison = wait_for_comparison(engine, comparison_id)
    assert points > 3
    record("full_disk", f"the database of a job, full at {points} points: it goes on, the answer is the same")
    assert comparison.state is JobState.DONE
    assert comparison.findings == compare(golden, target).findings
    assert_nothing_is_half_there(engine, comparison_id)


def is_over(engine: Engine, comparison_id: int) -> bool:
    with reading(engine) as session:
        return get_comparison(session, comparison_id).job.is_over


def assert_nothing_is_half_there(engine: Engine, comparison_id: int) -> None:
    with reading(engine) as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        for pair in slice_pairs_of(session, comparison_id):
            assert len(list(tree.all_rows(session, pair.id))) == pair.rows
            assert len(list(tree.all_pairs(session, pair.id))) == pair.pairs


def ask_for_many(engine: Engine, dump: Path) -> None:
    for _ in range(1000):
        ask_to_compare(engine, dump / ("x" * 1000), dump)


def test_what_a_person_asks_for_is_refused_by_name_while_the_disk_is_full(
    engine: Engine, disk: Disk, tmp_path: Path
) -> None:
    disk.pages = 1
    with refuses(CatalogueError, "catalogue.database.full_disk"):
        ask_for_many(engine, tmp_path)
    disk.pages = 10**6
    with reading(engine) as session:
        made = session.scalar(text("SELECT count(*) FROM comparisons"))
        assert session.scalar(text("SELECT count(*) FROM jobs")) == made
    ask_to_compare(engine, tmp_path, tmp_path)
