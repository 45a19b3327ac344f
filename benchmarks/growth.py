"""How time and memory grow with pairs, bytes, nodes and cores, with straight lines fitted to them.

    .venv/bin/python benchmarks/growth.py --peer .venv-interop/bin/msprobe

Slices are links to one that the real msprobe wrote, so that files lie in memory however many there are. Each
command is run as often as `--rounds` says, in turn with all others of its curve, and the fastest run counts.
Prints Markdown tables.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from make_dumps import write_dumps
from measuring import Cost, command_of_firstdrift, cost_of, fit, linked_steps

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
SLICES = (1, 2, 4, 8, 16, 28)
STEPS = (1, 2, 4, 6)
LAYERS = (4, 16, 32, 64, 128)
PAIRS_OF_SLICE = 33_792
GIGABYTES_OF_STEP = 1.75
NODES_OF_LAYER = 120


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, default=HERE.parent / ".venv-interop" / "bin" / "msprobe")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    python = chosen.peer.with_name("python")
    statistics = write_dumps(python, DATA / "statistics128", layers=128)
    tensors = write_dumps(python, DATA / "tensors1750", layers=6, tensors=True)
    curve(
        "thousands of pairs",
        [PAIRS_OF_SLICE * count / 1000 for count in SLICES],
        [linked_steps(statistics, count) for count in SLICES],
        chosen.rounds,
    )
    curve(
        "gigabytes of tensors",
        [GIGABYTES_OF_STEP * count for count in STEPS],
        [linked_steps(tensors, count) for count in STEPS],
        chosen.rounds,
    )
    curve(
        "thousands of nodes of a slice",
        [NODES_OF_LAYER * count / 1000 for count in LAYERS],
        [write_dumps(python, DATA / f"statistics{count}", layers=count) for count in LAYERS],
        chosen.rounds,
    )
    print("| cores | 28 slices of statistics | 4 steps of tensors |\n|---|---|---|")
    cores = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= len(os.sched_getaffinity(0))]
    works = [compare_of(linked_steps(statistics, SLICES[-1])), compare_of(linked_steps(tensors, 4))]
    costs = fastest([lambda n=n, w=w: w(n) for n in cores for w in works], chosen.rounds)
    for at, count in enumerate(cores):
        told = costs[2 * at : 2 * at + 2]
        gains = [costs[place].seconds / one.seconds for place, one in enumerate(told)]
        cells = [f"{one} (x {gain:.2f})" for one, gain in zip(told, gains, strict=True)]
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


def compare_of(folder: Path) -> Callable[[int | None], Cost]:
    """Make what compares the two dumps of a folder on so many cores."""
    command = (command_of_firstdrift(), "compare", folder / "golden", folder / "target")
    return lambda cores: cost_of(*command, cores=cores)


def curve(of: str, sizes: Sequence[float], folders: Sequence[Path], rounds: int) -> None:
    """Measure one curve, and print it with its fits."""
    costs = fastest([lambda folder=folder: compare_of(folder)(None) for folder in folders], rounds)
    print(f"| {of} | seconds | MB |\n|---|---|---|")
    for size, cost in zip(sizes, costs, strict=True):
        print(f"| {size:.1f} | {cost.seconds:.2f} | {cost.megabytes:.0f} |")
    for name, unit, values in (
        ("time", "s", [cost.seconds for cost in costs]),
        ("memory", "MB", [cost.megabytes for cost in costs]),
    ):
        start, slope, share = fit(sizes, values)
        print(f"\n{name} = {start:.3g} {unit} + {slope:.3g} {unit} for each of the {of}; R2 = {share:.4f}")
    print(flush=True)


def fastest(works: Sequence[Callable[[], Cost]], rounds: int) -> list[Cost]:
    """Do all works in turn, several times; return the fastest run of each, with its largest memory."""
    taken = [[work() for work in works] for _ in range(rounds)]
    return [
        Cost(min(one.seconds for one in of_one), max(one.megabytes for one in of_one))
        for of_one in zip(*taken, strict=True)
    ]


if __name__ == "__main__":
    main()
