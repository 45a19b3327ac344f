"""Why a node has no partner, as far as the two trees tell.

    all_reduce      it lets ranks talk to each other, which the other run did not need
    view_as         the golden dump calls no Tensor.view_as in mlp; only the target run was spread over ranks
    add.2           Tensor.add is called 3 times in mlp, 2 times in the golden dump
    layers          what is in it has partners, nothing in the golden dump stands for it as a whole

Every row without a partner has a reason, the most telling that holds.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.matching.tree import operator_family
from firstdrift.model.node import Direction, NodeKind
from firstdrift.operators.kinds import Work
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.plurals import counted
from firstdrift.verdict.tree import TreeRow, work_of_row

_OTHER: Final = {"golden": "target", "target": "golden"}
_SHOWN: Final = 3
"""Modules that are named."""


def why_left_over(rows: Sequence[TreeRow]) -> dict[int, tuple[str, ...]]:
    """Say of each row that has no partner why, in clauses; by the index of the row."""
    left = [row for row in rows if row.match is None]
    if not left:
        return {}
    around = _look_around(rows)
    return {row.index: (around.why(row), *around.more(row)) for row in left}


def _only_side_that_talks(rows: Sequence[TreeRow]) -> str:
    """Return which dump alone records communication between ranks; empty if both do, or none."""
    talks = [row for row in rows if is_communication(row.type_name)]
    sides = {_side(row) for row in talks}
    return sides.pop() if len(sides) == 1 and all(row.match is None for row in talks) else ""


def _side(row: TreeRow) -> str:
    return "target" if row.target else "golden"


def _sides_that_store(rows: Sequence[TreeRow]) -> frozenset[str]:
    """Return which dumps record that keys and values are put into a cache."""
    stored = [row for row in rows if work_of_row(row) is Work.STORE]
    return frozenset(
        side for row in stored for side, names in (("golden", row.golden), ("target", row.target)) if names
    )


_Place: TypeAlias = tuple[int | None, Direction, str]
"""Children of which row, of which pass, of which dump."""


class _Surroundings(Struct, frozen=True):
    """What lies around the rows without partner.

    Attributes:
        rows: the tree.
        calls: how many calls of each family of operators there are at a place.
        modules: the first modules without partner at a place.
        matched_before: how many of the rows before each have partners; one entry more than rows.
        matched: names of the nodes that have partners, sorted.
        talks: which dump alone records communication between ranks; empty if both do, or none.
        store: which dumps record that a cache is filled.
    """

    rows: Sequence[TreeRow]
    calls: Mapping[tuple[_Place, str], int]
    modules: Mapping[_Place, Sequence[str]]
    matched_before: Sequence[int]
    matched: Sequence[str]
    talks: str
    store: frozenset[str]

    def why(self, row: TreeRow) -> str:
        """Say why a row has no partner, by what lies around and in it."""
        other = _OTHER[_side(row)]
        if self.talks and is_communication(row.type_name):
            return "it lets ranks talk to each other, which the other run did not need"
        if self._holds_matched(row):
            return f"what is in it has partners, nothing in the {other} dump stands for it as a whole"
        if row.parent is not None and self._is_left_over_as_a_whole(self.rows[row.parent]):
            return f"it lies in {self.rows[row.parent].label}, which has no partner"
        if work_of_row(row) is Work.STORE and other not in self.store:
            return f"it puts keys and values into a cache, which the {other} dump does not record"
        return self._operator(row, other) if row.kind is NodeKind.API else self._module(row, other)

    def more(self, row: TreeRow) -> Iterator[str]:
        """Say of an operator what may be the reason that only one of the two runs called it."""
        if self.talks == _side(row) and row.kind is NodeKind.API and not is_communication(row.type_name):
            yield f"only the {self.talks} run was spread over ranks"

    def _is_left_over_as_a_whole(self, row: TreeRow) -> bool:
        return row.match is None and not self._holds_matched(row)

    def _holds_matched(self, row: TreeRow) -> bool:
        """Tell whether something in a row has a partner, below which it may hang in the tree."""
        if self.matched_before[row.last + 1] > self.matched_before[row.index + 1]:
            return True
        begins = [f"{name}{separator}" for name in (*row.golden, *row.target) for separator in "./"]
        places = [(bisect_left(self.matched, begin), begin) for begin in begins]
        return any(self.matched[at : at + 1] and self.matched[at].startswith(begin) for at, begin in places)

    def _operator(self, row: TreeRow, other: str) -> str:
        """Say how often an operator is called on either side of the module around it."""
        family = operator_family(row.type_name)
        own, others = (
            self.calls.get(((row.parent, row.direction, side), family), 0) for side in (_side(row), other)
        )
        where = self._where(row)
        if not others:
            return f"the {other} dump calls no {row.type_name} {where}"
        if own > others:
            times = counted(own, "time"), counted(others, "time")
            return f"{row.type_name} is called {times[0]} {where}, {times[1]} in the {other} dump"
        return f"no {row.type_name} {where} of the {other} dump is like it in shapes, values and place"

    def _module(self, row: TreeRow, other: str) -> str:
        """Say what the module around holds on the other side that has no partner either."""
        modules = self.modules.get((row.parent, row.direction, other), ())
        if modules:
            shown = ", ".join(modules[:_SHOWN]) + (", ..." if len(modules) > _SHOWN else "")
            return f"what the {other} dump has left {self._where(row)} is not like it: {shown}"
        return f"the {other} dump has nothing left {self._where(row)} that it could be"

    def _where(self, row: TreeRow) -> str:
        return "outside of all modules" if row.parent is None else f"in {self.rows[row.parent].label}"


def _look_around(rows: Sequence[TreeRow]) -> _Surroundings:
    calls: Counter[tuple[_Place, str]] = Counter()
    modules: defaultdict[_Place, list[str]] = defaultdict(list)
    for row in rows:
        for side, names in (("golden", row.golden), ("target", row.target)):
            place = row.parent, row.direction, side
            if row.kind is NodeKind.API:
                calls[place, operator_family(row.type_name)] += len(names)
            elif names and row.match is None and len(modules[place]) <= _SHOWN:
                modules[place].append(row.label)
    return _Surroundings(
        rows=rows,
        calls=calls,
        modules=modules,
        matched_before=[0, *accumulate(row.match is not None for row in rows)],
        matched=sorted(name for row in rows if row.match is not None for name in (*row.golden, *row.target)),
        talks=_only_side_that_talks(rows),
        store=_sides_that_store(rows),
    )
