"""Whatever somebody does to a file that firstdrift reads: the answer is a value, or an error that has a name.

Each mutant of each kind of file takes the way that a real one takes, in a process that may have 1 GiB more
than it began with, and not a minute for one. Mutants that once were no answer lie in `corpus/`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest
from fuzz.reading import Change, Tally, apply, change_of, read
from fuzz.seeds import write_seeds
from soak import record, rounds

from firstdrift.dumps.detect import READERS, open_dump
from firstdrift.errors import FirstdriftError
from firstdrift.parallel.slices import read_slice

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
PROCESSES = rounds(1, max(2, (os.cpu_count() or 2) // 2))
FAST = ("container-", "mapping", "rollout-", "archive")
"""Kinds whose mutants are read in less than a millisecond or two; the others are whole dumps."""

NO_MAPPINGS = ("odd.yaml", "postprocess.yaml")
"""They lie beside those that are good: full of what only YAML has, and without the matrix that it names."""

SLOWEST = 60.0
LARGEST = 1 << 30


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    write_seeds(folder, unpacked)
    return folder


def count_of(kind: str) -> int:
    return rounds(10, 5200) if kind.startswith(FAST) else rounds(4, 1000)


def tried(asked: list[tuple[str, int, int]], seeds: Path, folder: Path) -> list[Tally]:
    """Read mutants in a process of their own."""
    kept = Path(os.environ.get("FIRSTDRIFT_FUZZ_KEPT", folder / "kept"))
    folder.mkdir()
    progress = folder / "progress"
    command = [sys.executable, str(HERE / "reading.py"), str(seeds), str(kept), str(folder), str(progress)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    at = progress.read_text().strip() if progress.exists() else "the start"
    assert done.returncode == 0, f"ended by {done.returncode} at {at}: {done.stderr[-3000:]}"
    return [Tally(*tally) for tally in json.loads(done.stdout)]


def batches(kinds: list[str]) -> Iterator[list[tuple[str, int, int]]]:
    """Give each process a like share of each kind."""
    for place in range(PROCESSES):
        shares = {kind: count_of(kind) // PROCESSES for kind in kinds}
        yield [(kind, place * share, share) for kind, share in shares.items()]


def test_each_seed_is_read_as_what_it_is(seeds: Path) -> None:
    found = set()
    for seed in sorted(seeds.iterdir()):
        if not seed.name.startswith(FAST):
            top = next(seed.iterdir()) if seed.name == "polygraphy" else seed
            dump = open_dump(top)
            assert any(read_slice(dump, listing).nodes for listing in dump.slices), seed.name
            found.add(dump.format)
        elif seed.name != "archive":
            for file in seed.iterdir():
                if file.name not in NO_MAPPINGS:
                    read(seed.name, seed, seed, Change(file, file.read_bytes()), 1)
    assert found == READERS.keys()


def test_every_mutant_is_a_value_or_a_named_error(seeds: Path, tmp_path: Path) -> None:
    kinds = sorted(seed.name for seed in seeds.iterdir())
    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = pool.map(
            lambda at, asked: tried(asked, seeds, tmp_path / str(at)), range(99), list(batches(kinds))
        )
        tallies = list(chain.from_iterable(parts))
    faults = [fault for tally in tallies for fault in tally.faults]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:5]])
    assert max(tally.longest for tally in tallies) < SLOWEST
    assert max(tally.memory for tally in tallies) < LARGEST
    refused = sum(tally.refused for tally in tallies)
    assert 0 < refused < sum(tally.tried for tally in tallies)
    record("damaged", summary(tallies))


def summary(tallies: list[Tally]) -> str:
    total, refused = sum(tally.tried for tally in tallies), sum(tally.refused for tally in tallies)
    longest, largest = max(tally.longest for tally in tallies), max(tally.memory for tally in tallies) >> 20
    of_each = ", ".join(
        f"{kind} {sum(tally.tried for tally in tallies if tally.kind == kind):,}"
        f" ({sum(tally.refused for tally in tallies if tally.kind == kind):,})"
        for kind in dict.fromkeys(tally.kind for tally in tallies)
    )
    return (
        f"{total:,} mutants, {refused:,} refused by name and {total - refused:,} read, 0 other answers;"
        f" at most {longest:.2f} s of the processor and {largest} MB for one;"
        f" of each kind (refused): {of_each}"
    )


@pytest.mark.parametrize(
    "kept", sorted(CORPUS.glob("*/*")), ids=lambda kept: f"{kept.parent.name}-{kept.name}"
)
def test_what_once_was_no_answer_is_one(seeds: Path, tmp_path: Path, kept: Path) -> None:
    seed, copied = seeds / kept.parent.name, tmp_path / "copied"
    shutil.copytree(seed, copied)
    for file in (file for file in kept.rglob("*") if file.is_file()):
        change = Change(seed / file.relative_to(kept), file.read_bytes())
        apply(change, seed, copied)
        for number in (0, 1):
            try:
                read(seed.name, seed, copied, change, number)
            except FirstdriftError as error:
                assert str(error)  # noqa: PT017 (both outcomes are right)


def test_a_mutant_is_the_same_in_every_run(seeds: Path) -> None:
    for seed in sorted(seeds.iterdir()):
        assert change_of(seed, 3) == change_of(seed, 3)
