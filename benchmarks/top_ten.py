"""Say where the processor time of a comparison goes: what a flame graph shows, as a table.

    .venv/bin/python benchmarks/top_ten.py GOLDEN TARGET [--folded FILE] [--rows 10]

    --folded FILE     also write the stacks that were seen, a line each, as flame graph tools read them
    --rows COUNT      how many functions are listed

The comparison runs in this process alone, and is interrupted every few milliseconds of processor time, as the
clock of the system allows. "Itself" is the share of samples in which a function ran, "with callees" that in
which it was on the stack.
"""

import argparse
import gc
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from firstdrift.comparison.compare import compare

_EVERY = 0.001  # seconds

Stack: TypeAlias = tuple[str, ...]
"""Functions, the innermost last."""


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("golden", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--folded", type=Path)
    parser.add_argument("--rows", type=int, default=10)
    chosen = parser.parse_args()
    gc.disable()  # as the command line does
    stacks: Counter[Stack] = Counter()
    since = time.process_time()
    with sampled(stacks):
        compare(chosen.golden, chosen.target)
    seconds = time.process_time() - since
    if chosen.folded is not None:
        lines = (f"{';'.join(stack)} {count}\n" for stack, count in sorted(stacks.items()))
        chosen.folded.write_text("".join(lines))
    samples = stacks.total()
    if not samples:
        raise SystemExit("The comparison was over before anything was seen.")
    print(f"{samples} samples in {seconds:.1f} s of processor time")
    own, all_of = by_function(stacks)
    for title, counts in (("itself", own), ("with callees", all_of)):
        print(f"\n| function | {title} |\n|---|---|")
        for function, count in counts.most_common(chosen.rows):
            print(f"| {function} | {count / samples:.1%} |")


@contextmanager
def sampled(stacks: Counter[Stack]) -> Iterator[None]:
    """Count the stacks that are seen."""

    def look(_: int, frame: FrameType | None) -> None:
        stacks[stack_of(frame)] += 1

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def stack_of(frame: FrameType | None) -> Stack:
    """Name the functions that are under way, the innermost last."""
    functions = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        functions.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(functions))


def by_function(stacks: Counter[Stack]) -> tuple[Counter[str], Counter[str]]:
    """Count in how many samples each function ran itself, and in how many it was on the stack."""
    own: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
        for function in set(stack):
            all_of[function] += count
    return own, all_of


if __name__ == "__main__":
    main()
