"""Nodes that stand out among their peers: the same node of the other layers of one slice.

Peers do the same work on numbers of the same kind, so that their rounding is alike. In healthy runs no
node with a noticeable error was found to amplify it more than 2.5 times as much as the most amplifying
of its peers (`docs/verdict.md`).
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from firstdrift.model.node import API, BACKWARD
from firstdrift.verdict.fixed_thresholds import PEERS
from firstdrift.verdict.tree import TreeRow

_NUMBERS = re.compile(r"\d+")

PeerGroup: TypeAlias = tuple[object, ...]
"""What rows that are peers have in common."""


def outstanding(rows: Sequence[TreeRow], jumps: Sequence[float | None], factor: float) -> frozenset[int]:
    """Return the rows whose jump is `factor` times that of any of two peers or more, and of rounding."""
    groups: dict[PeerGroup, list[int]] = {}
    for row in rows:
        jump = jumps[row.index]
        if jump is not None and math.isfinite(jump) and row.direction is not BACKWARD:
            groups.setdefault(peer_group(row), []).append(row.index)
    found = set()
    for group in groups.values():
        if len(group) <= PEERS.value:
            continue
        *others, largest = sorted(group, key=lambda index: jumps[index] or 0.0)
        if (jumps[largest] or 0.0) > factor * max(1.0, jumps[others[-1]] or 0.0):
            found.add(largest)
    return frozenset(found)


def peer_group(row: TreeRow) -> PeerGroup:
    """Return what the peers of a row share.

    They differ in layer numbers only; operators also stand at the same place.
    """
    place = row.index - row.parent if row.parent is not None and row.kind is API else 0
    return (row.kind, row.type_name, row.direction, _without_numbers(row.path or ""), place)


@lru_cache(maxsize=1 << 14)  # a module's operators share its path, and each row is asked about three times
def _without_numbers(path: str) -> str:
    return _NUMBERS.sub("*", path)
