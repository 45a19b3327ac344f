"""Read mutants as firstdrift reads what it is given, until the last value, and write down what came of it.

    python tests/fuzz/reading.py SEEDS KEPT WORK PROGRESS     runs what is asked for on its standard input:
                                                              [["npy", 0, 500], ["plain", 40, 10], …]

Each mutant must be a value or a named error, in bounded time and memory. What else comes of one is kept, and
told as JSON when all is done. Which one is being read stands in PROGRESS, should the process die of it.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from fuzz.containers import changed_sqlite, mutated  # noqa: E402

from firstdrift.errors import FirstdriftError, TensorUnreadableError  # noqa: E402
from firstdrift.model.tensor import DataLocation  # noqa: E402

MOST_MEMORY = 1 << 30
LONGEST = 60
"""Seconds of the processor that one mutant may take."""

MOST_TENSORS = 8
"""So many tensors of a mutant are read to their values."""

COMPARED_EACH = 25
"""One of so many mutants of a dump is compared with the dump itself."""

CONTAINERS = {
    "npy": "npy",
    "npz": "npz",
    "pt": "pt",
    "pth": "pt",
    "safetensors": "safetensors",
    "bin": "bin",
    "ge": "ge",
}


class Change(NamedTuple):
    """One file of a seed, and what is in its place: other bytes, nothing, or what is no such file."""

    file: Path
    content: bytes | None
    special: str = ""


def change_of(seed: Path, number: int) -> Change:
    """Say what the mutant of a number changes in a seed: always the same."""
    chance = random.Random(f"{seed.name} {number}")  # noqa: S311 (the same in every run)
    files = sorted(file for file in seed.rglob("*") if file.is_file())
    # Indexes are what most hangs on.
    indexes = [file for file in files if file.suffix in (".json", ".csv", ".txt", ".log")]
    file = chance.choice(indexes if indexes and chance.random() < 0.6 else files)
    special = chance.choice(("gone", "folder", "loop", "renamed", "twin")) if chance.random() < 0.02 else ""
    if special:
        return Change(file, None, special)
    content = file.read_bytes()
    if content.startswith(b"SQLite format 3") and chance.random() < 0.6:
        return Change(file, changed_sqlite(content, chance))
    return Change(file, mutated(content, chance, is_yaml=file.suffix == ".yaml"))


def apply(change: Change, seed: Path, copied: Path) -> Callable[[], None]:
    """Make a change in a copy of its seed; give what takes it back."""
    file = copied / change.file.relative_to(seed)
    if change.content is not None:
        file.write_bytes(change.content)
        return lambda: _restore(change.file, file)
    other = file.with_name(f"other-{file.name}")
    if change.special == "twin":
        shutil.copyfile(file, other)
        return other.unlink
    if change.special == "renamed":
        file.rename(other)
        return lambda: _back(other, file)
    file.unlink()
    if change.special == "folder":
        file.mkdir()
    elif change.special == "loop":
        file.symlink_to(file.name)
    return lambda: _restore(change.file, file)


def _restore(whole: Path, file: Path) -> None:
    if file.is_symlink():
        file.unlink()
    elif file.is_dir():
        file.rmdir()
    shutil.copyfile(whole, file)


def _back(other: Path, file: Path) -> None:
    other.rename(file)


def read(kind: str, seed: Path, top: Path, change: Change, number: int) -> None:
    """Read a mutant of a kind to the end.

    Raises:
        FirstdriftError: it cannot be read; this is one of the two right answers.
    """
    file = top / change.file.relative_to(seed)
    if kind.startswith("container-"):
        read_container(file)
    elif kind.startswith("rollout-"):
        read_rollout(top, seed)
    elif kind == "mapping":
        read_mapping(file, number)
    elif kind == "archive":
        read_archive(file, top.with_name("unpacked"))
    else:
        read_dump(top / "golden.json" if kind == "polygraphy" else top, seed, number)


def read_container(file: Path) -> None:
    """Read the headers and the values of a file of tensors."""
    from firstdrift.dumps.storage.tensor_data import read_headers

    container = CONTAINERS[file.suffix[1:]]
    for header in islice(read_headers(file, container), MOST_TENSORS):
        summarise(DataLocation(file, container, header.entry))


def summarise(location: DataLocation) -> None:
    """Compute what is told of a tensor that has no partner."""
    from firstdrift.dumps.storage.tensor_data import load_tensor
    from firstdrift.metrics.arrays import IncomparableError, summarise_values

    with suppress(IncomparableError, TensorUnreadableError):
        summarise_values(location, "", load_tensor)


def read_dump(top: Path, seed: Path, number: int) -> None:
    """Open a dump, read its slices, nodes, stacks and tensors; some are compared with what they were."""
    from firstdrift.comparison.compare import compare
    from firstdrift.comparison.inspection import inspect_dump
    from firstdrift.dumps.detect import bases_of, open_dump
    from firstdrift.parallel.slices import read_slice, read_stacks

    dump = open_dump(top)
    bases_of(dump)
    left = MOST_TENSORS
    for listing in dump.slices:
        with suppress(FirstdriftError):
            read_stacks(dump, listing)
        try:
            nodes = read_slice(dump, listing).nodes
        except FirstdriftError:
            continue
        for location in islice(
            (one.location for node in nodes for one in node.tensors if one.location), left
        ):
            left -= 1
            summarise(location)
    if number % COMPARED_EACH == 0:
        inspect_dump(top)
        compare(seed if top.is_dir() else seed / top.name, top)


def read_mapping(file: Path, number: int) -> None:
    """Read a mapping file as who owns it does, or as somebody to whom nothing of it may be quoted."""
    from firstdrift.comparison.postprocess import read_postprocess
    from firstdrift.matching.manual.match_set_file import read_matches

    if file.name == "postprocess.yaml":
        read_postprocess(file)
    else:
        read_matches([file], within=[file.parent.resolve()] if number % 2 else None)


def read_rollout(folder: Path, seed: Path) -> None:
    """Read a rollout and compare it with what it was."""
    from firstdrift.rollout.compare import RolloutOptions, compare_sides
    from firstdrift.rollout.read import read_side

    compare_sides(read_side(folder, "rollout"), read_side(seed, "trainer"), RolloutOptions())


def read_archive(file: Path, into: Path) -> None:
    """Unpack an upload; nothing may come to be beside the folder that it is unpacked into."""
    from firstdrift_server.uploads.archives import Limits, unpack

    around = set(into.parent.iterdir())
    into.mkdir()
    try:
        unpack(file, into, Limits(size=16 << 20), lambda *_: None)
        for found in into.rglob("*"):
            if not found.resolve().is_relative_to(into.resolve()):
                raise AssertionError(found)
    finally:
        shutil.rmtree(into)
    if set(into.parent.iterdir()) != around:
        raise AssertionError(set(into.parent.iterdir()) - around)


class Tally(NamedTuple):
    """What came of the mutants of a kind: seconds of the processor, bytes of memory beyond the start."""

    kind: str
    tried: int
    refused: int
    longest: float
    memory: int
    faults: list[str]


def run(kind: str, numbers: range, seeds: Path, work: Path, kept: Path, mark: Callable[[str], None]) -> Tally:
    """Read some mutants of a kind."""
    seed, copied = seeds / kind, work / kind
    shutil.copytree(seed, copied, dirs_exist_ok=True)
    refused, longest, start, faults = 0, 0.0, _peak(), []
    for number in numbers:
        change = change_of(seed, number)
        mark(f"{kind} {number}")
        restore = apply(change, seed, copied)
        _touch(copied / change.file.relative_to(seed), number)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        began = time.process_time()
        try:
            read(kind, seed, copied, change, number)
        except FirstdriftError:
            refused += 1
        except Exception:  # noqa: BLE001 (this is what is looked for)
            faults.append(keep(kind, number, change, seed, kept))
        longest = max(longest, time.process_time() - began)
        signal.setitimer(signal.ITIMER_PROF, 0)
        restore()
    shutil.rmtree(copied)
    return Tally(kind, len(numbers), refused, round(longest, 3), _peak() - start, faults)


def keep(kind: str, number: int, change: Change, seed: Path, kept: Path) -> str:
    """Write a mutant down that was no answer, and say what came of it instead."""
    folder = kept / kind / str(number) / change.file.relative_to(seed).parent
    folder.mkdir(parents=True, exist_ok=True)
    if change.content is not None:
        (folder / change.file.name).write_bytes(change.content)
    return f"{kind} {number} {change.file.name} {change.special}\n{traceback.format_exc()}"


def _touch(file: Path, number: int) -> None:
    """Give a file a time of its own: what was read of another of the same size is not to stand for it."""
    with suppress(OSError):
        os.utime(file, ns=(10**18 + number, 10**18 + number))


def _peak() -> int:
    # What getrusage says is at first the peak of the process that began this one.
    said = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    return int(said.split()[0]) << 10


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _imported() -> None:
    """Import what takes long, so that the first mutant does not pay for it."""
    import numpy  # noqa: F401, ICN001
    import pyarrow.parquet  # noqa: F401
    import torch  # noqa: F401
    import yaml  # noqa: F401


def main() -> None:
    """Run what standard input asks for."""
    seeds, kept, work, progress = map(Path, sys.argv[1:])
    asked: Iterator[list[Any]] = iter(json.load(sys.stdin))
    _imported()
    _limit_memory()
    with progress.open("w") as marks:

        def mark(what: str) -> None:
            marks.seek(0)
            marks.write(what.ljust(80))
            marks.flush()

        tallies = [
            run(kind, range(first, first + count), seeds, work, kept, mark) for kind, first, count in asked
        ]
    json.dump(tallies, sys.stdout)


if __name__ == "__main__":
    main()
