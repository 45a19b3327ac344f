"""How long a command takes, and how much memory it and all that it starts hold at a time."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds by the clock, and the largest memory (proportional set size) in MB."""

    seconds: float
    megabytes: float

    def __str__(self) -> str:
        """Write both."""
        return f"{self.seconds:.2f} s, {self.megabytes:.0f} MB"


def command_of_firstdrift() -> str:
    """Name the command that belongs to this Python."""
    return str(Path(sys.executable).with_name("firstdrift"))


def memory_of(processes: Iterable[psutil.Process]) -> float:
    """Sum up the memory of processes, and of all that they have started, in MB."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    total += one.memory_full_info().pss
    return total / 1e6


def cost_of(*command: str | Path, cores: int | None = None) -> Cost:
    """Run a command, on so many cores; stop the benchmark if it fails."""
    with on_cores(cores):
        started = time.perf_counter()
        process = psutil.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, memory_of([process]))
        with suppress(psutil.TimeoutExpired):
            process.wait(LOOK_SECONDS)
    if process.returncode not in {0, 1}:
        sys.exit(f"{command} ended with status {process.returncode}")
    return Cost(time.perf_counter() - started, peak)


@contextmanager
def on_cores(count: int | None) -> Iterator[None]:
    """Let what is started in the block have so many cores; None for all."""
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, set(sorted(cores)[: count or len(cores)]))
        yield
    finally:
        os.sched_setaffinity(0, cores)


def peak_while(processes: Iterable[psutil.Process], is_done: Callable[[], bool]) -> Cost:
    """Look at processes until something is done."""
    watched, started, peak = list(processes), time.perf_counter(), 0.0
    while not is_done():
        peak = max(peak, memory_of(watched))
        time.sleep(LOOK_SECONDS)
    return Cost(time.perf_counter() - started, peak)


def linked_steps(written: Path, count: int) -> Path:
    """Make dumps of so many steps, each of which is the first step of dumps that were written."""
    folder = written.with_name(f"{written.name}x{count}")
    for side in ("golden", "target"):
        for step in range(count):
            if not (folder / side / f"step{step}").is_dir():
                shutil.copytree(
                    written / side / "step0", folder / side / f"step{step}", copy_function=os.link
                )
    return folder


def fit(sizes: Iterable[float], values: Iterable[float]) -> tuple[float, float, float]:
    """Fit values = start + slope x size by least squares; return start, slope and R2."""
    points = list(zip(sizes, values, strict=True))
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    start = mean_y - slope * mean_x
    left = sum((y - start - slope * x) ** 2 for x, y in points)
    whole = sum((y - mean_y) ** 2 for _, y in points)
    return start, slope, 1.0 - left / whole if whole else 1.0
