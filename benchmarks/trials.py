"""Time what is tried before it is applied: a moved threshold on Rules, ranked suggestions on Match.

    .venv/bin/python benchmarks/trials.py benchmarks/data/pages/layers128

The folder holds two dumps, `golden` and `target`, such as `against_graph_pages.py` writes. Each round starts
a server of its own on the same results; its first answer loads what its later ones find at hand. Prints
seconds by the clock, of which a local request takes a few thousandths.
"""

import argparse
import statistics
import time
from pathlib import Path
from urllib.parse import urlencode

from against_graph_pages import firstdrift, json_of

ROUNDS = 3
LATER = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    taken: dict[str, list[float]] = {}
    for _ in range(chosen.rounds):
        with firstdrift(folder, folder / "golden", folder / "target") as tree:
            address = tree.partition("c/1/")[0] + "api/v1/comparisons/1/"
            # What a server loads with its first answer of any kind is not what is measured.
            rows = json_of(f"{address}slices/0/rows")["rows"]
            name = next(row["target"][0] for row in reversed(rows) if row["target"])
            trials = [f"rules/preview?factor={2 + step / 10}" for step in range(LATER + 1)]
            asked = [f"suggestions?{urlencode({'target': name})}"] * (LATER + 1)
            for what, addresses in (("moved threshold", trials), ("suggestions", asked)):
                seconds = [waited(address + one) for one in addresses]
                taken.setdefault(f"{what}, first", []).append(seconds[0])
                taken.setdefault(f"{what}, later", []).extend(seconds[1:])
    print("| answer | fastest | median | slowest |\n|---|---|---|---|")
    for what, seconds in taken.items():
        print(f"| {what} | {min(seconds):.2f} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")


def waited(address: str) -> float:
    """Ask and say how long the answer took."""
    started = time.perf_counter()
    json_of(address)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
