"""How long the stages of a comparison took."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Clock:
    """Adds up the seconds spent on each stage.

    Attributes:
        seconds: by stage; those that are given from the start, others when they are first measured.
    """

    def __init__(self, *stages: str) -> None:
        """Start at zero."""
        self.seconds = dict.fromkeys(stages, 0.0)
        self._started = time.perf_counter()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the time of the block as spent on a stage."""
        started = time.perf_counter()
        yield
        self.add({stage: time.perf_counter() - started})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count what was spent elsewhere."""
        for stage, spent in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def elapsed(self) -> float:
        """Return the seconds since the clock was started, spent on a stage or not."""
        return time.perf_counter() - self._started
