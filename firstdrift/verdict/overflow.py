"""Nodes with NaN or infinities that the golden run does not have, by msprobe's levels.

| inputs and parameters | outputs | level    |
| --------------------- | ------- | -------- |
| bad                   | good    | medium   |
| bad                   | bad     | high     |
| good                  | bad     | critical |

What every healthy model has is no finding: a causal mask's mean of -infinity stands on both sides.
"""

from collections.abc import Sequence

from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role
from firstdrift.verdict.judgement import MOST_OVERFLOW, Overflow
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import roles_named


def find_overflow(
    rows: Sequence[TreeRow], errors: Sequence[RowErrors], coordinates: Coordinates
) -> tuple[Overflow, ...]:
    """List the first nodes with non-finite values on one side only, of rows in that order."""
    found = [row for row in rows if errors[row.index].non_finite]
    return tuple(
        Overflow(coordinates, (row.target or row.golden)[0], *_level(errors[row.index].non_finite))
        for row in found[:MOST_OVERFLOW]
    )


def _level(roles: frozenset[Role]) -> tuple[str, Message]:
    out = bool(roles & {Role.OUTPUT, Role.GRADIENT})
    entering = bool(roles & {Role.INPUT, Role.PARAMETER})
    level = "critical" if out and not entering else "high" if out else "medium"
    return level, Message.of("overflow.on_one_side", roles=roles_named(roles))
