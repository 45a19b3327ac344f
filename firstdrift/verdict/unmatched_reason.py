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
from firstdrift.operators.kinds import OpKind
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.judgement import Reasons
from firstdrift.verdict.tree import TreeRow, kind_of_row
from firstdrift.wording.message import Argument, Message
from firstdrift.wording.phrases import side_named

_OTHER: Final = {"golden": "target", "target": "golden"}
_SHOWN: Final = 3
"""Modules that are named."""


def why_left_over(rows: Sequence[TreeRow]) -> dict[int, Reasons]:
    """Say of each row that has no partner why; by the index of the row."""
    left = [row for row in rows if row.match is None]
    if not left:
        return {}
    around = _look_around(rows)
    return {row.index: (around.why(row), *around.more(row)) for row in left}


def _only_side_that_talks(rows: Sequence[TreeRow]) -> str:
    """Return which dump alone records communication between ranks; empty if both do, or none."""
    talks = [row for row in rows if is_communication(row.type_name)]
    sides = {row.side for row in talks}
    return sides.pop() if len(sides) == 1 and all(row.match is None for row in talks) else ""


def _sides_that_store(rows: Sequence[TreeRow]) -> frozenset[str]:
    """Return which dumps record that keys and values are put into a cache."""
    stored = [row for row in rows if kind_of_row(row) is OpKind.STORE]
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

    def why(self, row: TreeRow) -> Message:
        """Say why a row has no partner, by what lies around and in it."""
        other = _OTHER[row.side]
        if self.talks and is_communication(row.type_name):
            return Message.of("unmatched.communication")
        if self._holds_matched(row):
            return Message.of("unmatched.holds_matched", other=side_named(other))
        if row.parent is not None and self._is_left_over_as_a_whole(self.rows[row.parent]):
            return Message.of("unmatched.inside", parent=self.rows[row.parent].label)
        if kind_of_row(row) is OpKind.STORE and other not in self.store:
            return Message.of("unmatched.cache", other=side_named(other))
        return self._operator(row, other) if row.kind is NodeKind.API else self._module(row, other)

    def more(self, row: TreeRow) -> Iterator[Message]:
        """Say of an operator what may be the reason that only one of the two runs called it."""
        if self.talks == row.side and row.kind is NodeKind.API and not is_communication(row.type_name):
            yield Message.of("unmatched.only_side_with_ranks", side=side_named(self.talks))

    def _is_left_over_as_a_whole(self, row: TreeRow) -> bool:
        return row.match is None and not self._holds_matched(row)

    def _holds_matched(self, row: TreeRow) -> bool:
        """Tell whether something in a row has a partner, below which it may hang in the tree."""
        if self.matched_before[row.last + 1] > self.matched_before[row.index + 1]:
            return True
        begins = [f"{name}{separator}" for name in (*row.golden, *row.target) for separator in "./"]
        places = [(bisect_left(self.matched, begin), begin) for begin in begins]
        return any(self.matched[at : at + 1] and self.matched[at].startswith(begin) for at, begin in places)

    def _operator(self, row: TreeRow, other: str) -> Message:
        """Say how often an operator is called on either side of the module around it."""
        family = operator_family(row.type_name)
        own, others = (
            self.calls.get(((row.parent, row.direction, side), family), 0) for side in (row.side, other)
        )
        place: dict[str, Argument] = {
            "other": side_named(other),
            "operator": row.type_name,
            "where": self._where(row),
        }
        if not others:
            return Message.of("unmatched.not_called", **place)
        if own > others:
            return Message.of("unmatched.called_more_often", **place, own=own, others=others)
        return Message.of("unmatched.no_operator_like_it", **place)

    def _module(self, row: TreeRow, other: str) -> Message:
        """Say what the module around holds on the other side that has no partner either."""
        modules = self.modules.get((row.parent, row.direction, other), ())
        if modules:
            shown = (*modules[:_SHOWN], *(["…"] if len(modules) > _SHOWN else []))
            return Message.of(
                "unmatched.no_module_like_it", other=side_named(other), where=self._where(row), modules=shown
            )
        return Message.of("unmatched.nothing_left", other=side_named(other), where=self._where(row))

    def _where(self, row: TreeRow) -> Message:
        if row.parent is None:
            return Message.of("unmatched.outside_modules")
        return Message.of("unmatched.in_module", module=self.rows[row.parent].label)


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
