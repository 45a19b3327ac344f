"""When a module or an operator runs among its siblings, as its name tells."""

import re
from functools import cache, lru_cache
from typing import Final

from firstdrift.operators.registry import registry

OPERATOR: Final = "<operator>"
"""Stands for the last name of an operator call: after projections, before what ends the module."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@lru_cache(1 << 12)
def stage_of(label: str) -> tuple[int, int] | None:
    """Return the place of a name among those of its siblings; None if it does not tell when it runs."""
    known = registry()
    if label == OPERATOR:
        return known.stages[known.stage_of_operators], 0
    if _NUMBER.fullmatch(label):
        return known.stages[known.stage_of_numbers], int(label)
    module = known.by_name.get(label)
    if module is not None and module.stage and label not in module.unordered_names:
        return known.stages[module.stage], 0
    return next(((place, 0) for pattern, place in _further_names() if pattern.fullmatch(label)), None)


@cache
def _further_names() -> tuple[tuple[re.Pattern[str], int], ...]:
    known = registry()
    entries = (entry for entry in known.modules.values() if entry.order_like)
    return tuple((re.compile(entry.order_like), known.stages[entry.stage]) for entry in entries)
