"""What the scripts that write pairs of dumps have in common."""

import argparse
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path


def write_pairs(about: str | None, names: Sequence[str], write_side: Callable[[str, str, str], None]) -> None:
    """Write the pairs that the command line asks for, or all.

    Args:
        about: what the script says of itself; its first line is shown by `--help`.
        names: of all pairs.
        write_side: writes one side of a pair, given the pair's name, the side, and the folder of the dump; it
            runs in a process of its own, for msprobe counts the calls of a process.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    chosen = parser.parse_args()
    for name in chosen.only:
        for side in ("golden", "target"):
            dump = str(chosen.folder.resolve() / name / side)
            writer = multiprocessing.Process(target=write_side, args=(name, side, dump))
            writer.start()
            writer.join()
            if writer.exitcode:
                raise SystemExit(f"{name}/{side} could not be written")
