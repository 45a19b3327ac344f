"""Time `firstdrift compare` against `msprobe compare` on the same dumps, in turn, in one run.

    make bench        # or: .venv/bin/python benchmarks/against_msprobe.py --peer .venv-interop/bin/msprobe

    --tensors         also the 1.75 GB of tensors, which take a while to make

Both start from the command line, as a user would have them do. msprobe always writes its CSV; firstdrift
is timed as it answers in the terminal, once more on one core alone, and once more with `--csv`. Prints a
Markdown table.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from make_dumps import write_dumps

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
TENSOR_ARCHIVE = HERE.parent / "tests" / "dumps" / "msprobe" / "llama_tensor_mix_perturb.tar.xz"


@dataclass(frozen=True, slots=True)
class Case:
    """A pair of dumps, and what they are."""

    title: str
    golden: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall seconds of several runs of one command."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The run in the middle."""
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        """Fastest, middle and slowest run."""
        return f"{min(self.seconds):.2f} / {self.median:.2f} / {max(self.seconds):.2f}"


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, default=HERE.parent / ".venv-interop" / "bin" / "msprobe")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tensors", action="store_true", help="compare 1.75 GB of tensors, too")
    return parser.parse_args()


def tensor_case() -> Case:
    """Unpack the dump with about 1,100 small tensor files a side."""
    folder = DATA / "llama_tensor_mix_perturb"
    if not folder.is_dir():
        with tarfile.open(TENSOR_ARCHIVE) as archive:
            archive.extractall(DATA, filter="data")
    return Case("4 layers, tensors (about 1,100 files a side)", folder / "golden", folder / "target")


def statistics_case(peer_python: Path) -> Case:
    """Have the real msprobe write the 32-layer statistics dumps, where they are not there yet."""
    folder = DATA / "statistics32"
    write_dumps(peer_python, folder, layers=32)
    return Case("32 layers, statistics (about 9,100 rows)", folder / "golden", folder / "target")


def large_case(peer_python: Path) -> Case:
    """Have the real msprobe write 1.75 GB of tensors, where they are not there yet."""
    folder = DATA / "tensors1750"
    write_dumps(peer_python, folder, layers=6, tensors=True)
    return Case("6 layers, 1.75 GB of tensors (1,593 files a side)", folder / "golden", folder / "target")


def wall_seconds(*command: str | Path, into: str) -> float:
    """Run a command and return how long it took; stop the benchmark if it wrote no table."""
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, check=False)
        seconds = time.perf_counter() - start
        if not list(Path(into).glob("*.csv")):
            said.seek(0)
            sys.exit(f"{command[0]} wrote no table:\n{said.read().decode(errors='replace')}")
    return seconds


def time_msprobe(peer: Path, case: Case) -> float:
    """Time one `msprobe compare`."""
    sides = ["-tp", case.target / "step0", "-gp", case.golden / "step0"]
    with tempfile.TemporaryDirectory() as folder:
        return wall_seconds(peer, "compare", *sides, "-o", folder, into=folder)


def time_firstdrift(case: Case, *, table: bool = False, one_core: bool = False) -> float:
    """Time one `firstdrift compare`, with or without a CSV of all pairs, on all cores or one."""
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)} if one_core else cores)
        return time_compare(case, table=table)
    finally:
        os.sched_setaffinity(0, cores)


def time_compare(case: Case, *, table: bool) -> float:
    """Time one `firstdrift compare` on the cores that this process may use."""
    firstdrift = Path(sys.executable).with_name("firstdrift")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.csv"
        options = ["--csv", file] if table else []
        if not table:
            file.touch()
        return wall_seconds(firstdrift, "compare", case.golden, case.target, *options, into=folder)


def time_all(peer: Path, case: Case, runs: int) -> list[Timing]:
    """Run them in turn, so that a busy moment of the machine meets all; the first round warms up."""
    rounds = [
        (
            time_msprobe(peer, case),
            time_firstdrift(case),
            time_firstdrift(case, one_core=True),
            time_firstdrift(case, table=True),
        )
        for _ in range(runs + 1)
    ][1:]
    return list(map(Timing, zip(*rounds, strict=True)))


def main() -> None:
    """Time every case and print the table."""
    options = parse_arguments()
    DATA.mkdir(exist_ok=True)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, ", end="")
    print(f"{options.runs} runs each, wall seconds fastest / median / slowest:\n")
    print("| dumps | msprobe compare | firstdrift compare | ratio | on one core | with --csv | ratio |")
    print("|---|---|---|---|---|---|---|")
    cases = [tensor_case(), statistics_case(options.peer.with_name("python"))]
    if options.tensors:
        cases.append(large_case(options.peer.with_name("python")))
    for case in cases:
        theirs, answer, one_core, table = time_all(options.peer, case, options.runs)
        ratios = [f"{theirs.median / ours.median:.1f}" for ours in (answer, table)]
        print(
            f"| {case.title} | {theirs} | {answer} | {ratios[0]} | {one_core} | {table} | {ratios[1]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
