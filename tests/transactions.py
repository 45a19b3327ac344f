"""A process of those who use a catalogue: a server, whose threads read and write, or a worker.

    python tests/transactions.py URL server COUNT      notes, edits of rows, and what pages read
    python tests/transactions.py URL worker COUNT      takes jobs, beats, writes blocks, finishes

Prints how many transactions there were, and the errors.
"""

import json
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine

from firstdrift.catalogue.comparisons.records import (
    compare_again,
    create_comparison,
    delete_comparison,
    get_comparison,
    list_comparisons,
    restore_comparison,
    set_note,
)
from firstdrift.catalogue.dumps.records import add_dump, list_dumps
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.jobs.lease import beat, worker_seen
from firstdrift.catalogue.jobs.queue import claim_job, finish_job, list_jobs, list_workers
from firstdrift.comparison.report import Options
from firstdrift.errors import CatalogueError, JobLostError
from firstdrift.model.slice import Coordinates, Dump, SliceListing
from firstdrift.wording.message import Message

THREADS = 3
LEASE = 3600.0


def server(engine: Engine, chance: random.Random) -> int:
    """Do what one visitor makes a server do; return how many transactions that was."""
    kind = chance.random()
    if kind < 0.7:
        with reading(engine) as session:
            for comparison in list_comparisons(session, limit=5):
                get_comparison(session, comparison.id)
            list_jobs(session, only_open=True)
            list_workers(session)
            list_dumps(session, limit=5)
        return 1
    with writing(engine, durable=True) as session:
        if kind < 0.75:
            create_comparison(session, Path("/golden"), Path("/target"), Options())
        elif kind < 0.95:
            set_note(session, 1, f"seen {chance.random()}")
        elif kind < 0.98:
            compare_again(session, 1)
        else:
            delete_comparison(session, 1)
            restore_comparison(session, 1)
    return 1


def worker(engine: Engine, _chance: random.Random) -> int:
    """Do a job, or what there is to do without one; return how many transactions that was."""
    name = f"worker:{threading.get_ident()}"
    claim = claim_job(engine, name, lease=LEASE)
    worker_seen(engine, name)
    if claim is None:
        return 2
    for step in range(8):
        beat(engine, claim, LEASE, step, 8, Message.of("stage.indexing"))
        listings = [SliceListing(Coordinates(step=at), Path("/dump")) for at in range(20)]
        with writing(engine) as session:
            add_dump(session, Dump(Path("/dump"), "msprobe", (), tuple(listings)), uuid4().hex)
    with writing(engine) as session:
        finish_job(session, claim)
    return 2 + 16 + 1


def repeat(use: Callable[[Engine, random.Random], int], url: str, count: int) -> dict[str, object]:
    """Use the catalogue from several threads until there were so many transactions."""
    engine = open_engine(url, checkpoints=use is worker)
    done, errors, lock = [0], [], threading.Lock()

    def run(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        while done[0] < count:
            try:
                made = use(engine, chance)
            except JobLostError:  # a person asked for it to be made again, or moved it to the bin
                made = 1
            except CatalogueError as error:
                errors.append(str(error))
                made = 1
            with lock:
                done[0] += made

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(THREADS if use is server else 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.dispose()
    return {"done": done[0], "errors": errors}


if __name__ == "__main__":
    _, address, role, how_many = sys.argv
    told = repeat(server if role == "server" else worker, address, int(how_many))
    sys.stdout.write(json.dumps(told))
