"""What this process has answered: counted while it does, shown at /metrics.

Counts go by the template of a route, never by a path that somebody asked for: there are only so many.
"""

import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPMethod
from threading import Lock

from starlette.types import Scope

UNKNOWN = "none"
"""Stands for the route of what reached none: what a guard answered, or there is nothing at."""

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds up to which answers are counted together."""

_METHODS = frozenset(HTTPMethod)
_KEY = "firstdrift.request"


@dataclass(slots=True)
class Requested:
    """A request on its way: what it is called in logs, and the template of its route once that is known."""

    id: str = ""
    route: str = UNKNOWN
    began: float = field(default_factory=time.monotonic)
    status: int = 0


def requested(scope: Scope) -> Requested:
    """Return what is known of a request, to be read and to be added to."""
    known: Requested = scope.setdefault(_KEY, Requested())
    return known


@dataclass(slots=True)
class Times:
    """How long answers took: how many up to each of BOUNDS and above, and the sum of their seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Traffic:
    """What was answered; `under_way` answers are being given."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.under_way = 0
        self._answered: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[tuple[str, str], Times] = {}
        self._lock = Lock()

    def add(self, method: str, answered: Requested) -> float:
        """Count an answer that was given; return the seconds that it took."""
        known = method if method in _METHODS else "OTHER"
        seconds = time.monotonic() - answered.began
        with self._lock:
            self._answered[answered.route, known, answered.status] += 1
            self._times.setdefault((answered.route, known), Times()).add(seconds)
        return seconds

    def answered(self) -> dict[tuple[str, str, int], int]:
        """Return how many answers were given, by route, method and status."""
        with self._lock:
            return dict(self._answered)

    def times(self) -> dict[tuple[str, str], Times]:
        """Return how long they took, by route and method."""
        with self._lock:
            return {key: Times([*known.counts], known.total) for key, known in self._times.items()}
