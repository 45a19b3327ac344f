"""How long people wait for the database while workers write to it.

    .venv/bin/python benchmarks/waits.py GOLDEN TARGET                                         SQLite
    .venv/bin/python benchmarks/waits.py GOLDEN TARGET --database-url postgresql://.../empty   PostgreSQL

Two workers compare the same two dumps again and again; meanwhile two threads read what the pages show and
one keeps a note, as durably as what a person makes is kept.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Engine

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.outline import load_outline
from firstdrift.catalogue.comparisons.records import (
    create_comparison,
    get_comparison,
    list_comparisons,
    set_note,
)
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.migrate import upgrade
from firstdrift.comparison.report import Options

WORKERS = 2
PAUSE_SECONDS = 0.005


def show_pages(engine: Engine) -> None:
    """Read what the list, the tree and a node show."""
    with reading(engine) as session:
        for comparison in list_comparisons(session, limit=5):
            for pair in slice_pairs_of(session, comparison.id)[:3]:
                load_outline(session, pair.id)
                tree.rows_at(session, pair.id, range(50))
                tree.pairs_of_row(session, pair.id, 0)
            tree.bad_rows(session, comparison.id, 1)


def keep_a_note(engine: Engine) -> None:
    """Write what a person typed."""
    with writing(engine, durable=True) as session:
        set_note(session, 1, f"seen at {time.time()}")


def time_again_and_again(use: Callable[[], None], waits: list[float], until: threading.Event) -> None:
    """Do something until told to stop, and note how long it took each time."""
    while not until.is_set():
        started = time.perf_counter()
        use()
        waits.append(time.perf_counter() - started)
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("golden", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--database-url")
    parser.add_argument("--comparisons", type=int, default=8)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = chosen.database_url or database_url(Path(folder))
        engine = open_engine(url)
        stack.callback(engine.dispose)
        upgrade(engine)
        with writing(engine) as session:
            made = [
                create_comparison(session, chosen.golden.resolve(), chosen.target.resolve(), Options())
                for _ in range(chosen.comparisons)
            ]
        worker = [sys.executable, "-m", "firstdrift.cli", "worker", *map(str, (chosen.golden, chosen.target))]
        command = [*worker, "--database-url", url, "--workers", "1"]
        workers = [subprocess.Popen(command) for _ in range(WORKERS)]
        reads: list[float] = []
        writes: list[float] = []
        until = threading.Event()
        uses = [(show_pages, reads), (show_pages, reads), (keep_a_note, writes)]
        threads = [
            threading.Thread(target=time_again_and_again, args=(lambda use=use: use(engine), waits, until))
            for use, waits in uses
        ]
        for thread in threads:
            thread.start()
        try:
            while not _all_over(engine, made):
                time.sleep(0.1)
        finally:
            until.set()
            for thread in threads:
                thread.join()
            for started in workers:
                started.terminate()
                started.wait()
        for what, waits in (("pages", reads), ("notes", writes)):
            print(
                f"{what}: {len(waits)} in all, median {statistics.median(waits) * 1000:.0f} ms, "
                f"slowest {max(waits) * 1000:.0f} ms"
            )


def _all_over(engine: Engine, made: list[int]) -> bool:
    with reading(engine) as session:
        return all(get_comparison(session, comparison_id).job.is_over for comparison_id in made)


if __name__ == "__main__":
    main()
