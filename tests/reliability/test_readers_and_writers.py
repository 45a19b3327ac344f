"""Pages read and people write while workers compare, and nobody is told that the database is locked."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from soak import record, rounds
from sqlalchemy import Engine, text
from working import ask_to_compare, wait_for_comparison, worker

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.outline import load_outline
from firstdrift.catalogue.comparisons.records import (
    delete_comparison,
    get_comparison,
    list_comparisons,
    restore_comparison,
    set_note,
)
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import CatalogueError


class Crowd:
    """Threads that use the catalogue again and again until they are told to stop."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.errors: list[CatalogueError] = []
        self.done = 0

    def repeat(self, use: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            while not self.stopping.is_set():
                try:
                    use()
                except CatalogueError as error:
                    self.errors.append(error)
                self.done += 1
                time.sleep(0.02)

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def show_pages(engine: Engine) -> None:
    with reading(engine) as session:
        for comparison in list_comparisons(session):
            for pair in slice_pairs_of(session, comparison.id):
                outline = load_outline(session, pair.id)
                assert len(outline) == pair.rows > 0
                for bad in outline.bad.nonzero()[0][:1].tolist():
                    assert len(tree.pairs_of_row(session, pair.id, bad)) > 0


def change_something(engine: Engine) -> None:
    with writing(engine, durable=True) as session:
        delete_comparison(session, 1)
        restore_comparison(session, 1)
        set_note(session, 1, f"seen at {time.time()}")


@pytest.fixture
def address(database: str) -> str:
    return database


def test_nobody_is_told_that_the_database_is_locked(
    engine: Engine, address: str, unpacked: Callable[[str], Path]
) -> None:
    golden, target = unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")
    made = [ask_to_compare(engine, golden, target) for _ in range(4)]
    crowd = Crowd()
    with worker(address), worker(address):
        threads = [crowd.repeat(lambda: show_pages(engine)) for _ in range(2)]
        threads.append(crowd.repeat(lambda: change_something(engine)))
        comparisons = [wait_for_comparison(engine, comparison_id) for comparison_id in made[1:]]
        crowd.stopping.set()
        for thread in threads:
            thread.join()
    assert crowd.errors == []
    assert crowd.done > 20
    assert [comparison.state for comparison in comparisons] == [JobState.DONE] * 3
    with reading(engine) as session:
        assert get_comparison(session, 1).deleted_at is None


ROLES = ("server", "server", "worker", "worker", "worker", "worker")


@pytest.mark.timeout(rounds(600, 7200))
def test_servers_and_workers_share_a_database_without_an_error(
    engine: Engine, address: str, tmp_path: Path
) -> None:
    kind = engine.dialect.name
    count = rounds(600, 100_000 if kind == "sqlite" else 20_000)
    ask_to_compare(engine, tmp_path, tmp_path)
    script = Path(__file__).parent.parent / "transactions.py"
    command = [sys.executable, "-X", "faulthandler", script, address]
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [*command, role, str(-(-count // len(ROLES)))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role in ROLES
    ]
    said = [process.communicate() for process in processes]
    failed = [told for process, told in zip(processes, said, strict=True) if process.returncode]
    assert not failed, "\n".join(err for _, err in failed)
    told = [json.loads(out) for out, _ in said]
    assert [error for one in told for error in one["errors"]] == []
    done = sum(one["done"] for one in told)
    assert done >= count
    if kind == "sqlite":
        with reading(engine) as session:
            assert session.scalar(text("PRAGMA integrity_check")) == "ok"
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []
    rate = done / (time.monotonic() - began)
    record(
        "locked", f"{done:,} mixed transactions of 2 servers, 4 workers on {kind}, {rate:,.0f}/s: 0 errors"
    )
