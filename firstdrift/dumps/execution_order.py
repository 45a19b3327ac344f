"""Derive the order in which modules finished, where a dump does not record it.

    [gate_proj, up_proj, down_proj, act_fn]   →   [gate_proj, act_fn, up_proj, down_proj]

Four sources, the strongest first:

1. equal values: what one node gives and another takes (same checksum) was given before it was taken;
2. what takes values that no node gave (`x + attention(x)`, made by the module around it) runs after its
   siblings that take what the module was given, and after what is made of that;
3. names: `input_layernorm` runs before `self_attn`, `q_proj` before `o_proj`, layer 2 before layer 10;
4. the order in which the siblings are listed.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import takewhile
from math import prod
from types import MappingProxyType
from typing import Final
from zlib import crc32

from firstdrift.dumps.nodes import of_role
from firstdrift.groups import gathered, known, positions
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.paths import stage_of

_NOT_TOLD: Final[Mapping[str, bool]] = MappingProxyType({})
_DIGITS = re.compile(r"([0-9]{1,18})")
_SMALLEST_EVIDENCE = 32
_FEWEST = 8
_MOST_SOURCES = 16
_LARGEST_ZEROS = 1024 * 1024


def finish_order(
    children: Mapping[str | None, Sequence[str]],
    labels: Mapping[str, str],
    flows: Iterable[tuple[str, str]],
    late: Mapping[str, bool] = _NOT_TOLD,
) -> tuple[list[str], int]:
    """Order nodes by when they finished: children before their parent, siblings as they ran.

    Labels are the last parts of names ("q_proj"; `OPERATOR` for operator calls), flows pairs of siblings of
    which the first gave a value to the second, late whether a node takes values that no node gave; one of
    which that is not known stays behind the sibling before it. Says as well how many pairs of siblings a flow
    put in order.
    """
    takers: dict[str, set[str]] = defaultdict(set)
    for giver, taker in flows:
        takers[giver].add(taker)
    kept: list[int] = []

    def in_order(siblings: Sequence[str]) -> list[str]:
        ordered, count = _follow_flows(_order_by_name(siblings, labels), takers, late)
        kept.append(count)
        return ordered

    return after_children(children, in_order), sum(kept)


def after_children(
    children: Mapping[str | None, Sequence[str]], in_order: Callable[[Sequence[str]], Iterable[str]]
) -> list[str]:
    """Order nodes by when they finished: what a node contains directly before it, siblings as they ran."""
    backwards: list[str] = []
    waiting = list(in_order(children.get(None, ())))
    while waiting:
        backwards.append(waiting.pop())
        if inside := children.get(backwards[-1]):
            waiting.extend(in_order(inside))
    return backwards[::-1]


def children_of(names: Iterable[str], parents: Mapping[str, str | None]) -> Mapping[str | None, list[str]]:
    """Return the names of the children of each node, of the topmost under None, in the order given."""
    return gathered((parents[name], name) for name in names)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Sort key under which "layers.2" comes before "layers.10"."""
    parts = _DIGITS.split(name)
    return [(0, int(part)) if at % 2 else (1, part) for at, part in enumerate(parts) if part]


def value_flows(
    tensors: Mapping[str, Sequence[TensorRecord]], parents: Mapping[str, str | None]
) -> set[tuple[str, str]]:
    """Find pairs of siblings of which the first gave a value to the second.

    Values are told by their checksum, or by their recorded statistics where there is none. A value
    that several unrelated nodes give, or a trivial one, tells nothing.
    """
    givers, takers = (nodes_by_value(tensors, role, _values) for role in (Role.OUTPUT, Role.INPUT))
    flows: set[tuple[str, str]] = set()
    for value in givers.keys() & takers.keys():
        # A node that gives what it takes (dropout, identity) only passes the value on.
        if source := _innermost(givers[value] - takers[value], parents):
            flows.update(known(_branches(source, _line(taker, parents)) for taker in takers[value]))
    return flows


def takers_of_unmade(
    tensors: Mapping[str, Sequence[TensorRecord]], parents: Mapping[str, str | None]
) -> dict[str, bool]:
    """Tell whether nodes take fractions which no node gave and none around them took: made in between.

    Something beside them takes what was made before. A container of which nothing was recorded takes what its
    children take. What takes some rows alone, as an expert does, may take those of what was there from the
    beginning. Of what takes a few elements, or constants alone, nothing is said.
    """
    givers = nodes_by_value(tensors, Role.OUTPUT, _values)
    takers = nodes_by_value(tensors, Role.INPUT, _values)
    fractions = nodes_by_value(tensors, Role.INPUT, _values_of_fractions)
    # What a node gives that it takes, it only passes on.
    unmade = (value for value in fractions if givers[value] <= takers[value])
    found = {taker for value in unmade for taker in _first_takers(fractions[value], takers[value], parents)}
    late = {name for name in found if not _takes_some_rows(_line(name, parents), tensors)}
    early = set().union(*takers.values()) - late
    late, early = (_with_silent_around(names, tensors, parents) for names in (late, early))
    beside = {parents[name] for name in early - late}
    return dict.fromkeys(early, False) | {name: parents[name] in beside for name in late}


def _first_takers(names: Iterable[str], takers: set[str], parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the nodes around which no other node takes the same."""
    return (name for name in names if takers.isdisjoint(_line(name, parents)[1:]))


def _takes_some_rows(line: Sequence[str], tensors: Mapping[str, Sequence[TensorRecord]]) -> bool:
    """Tell whether the first of some nodes takes fewer rows than the innermost node around it."""
    rows = known(map(_rows_taken, known(map(tensors.get, line))))
    return len(rows) > 1 and rows[0] < rows[1]


def _rows_taken(records: Sequence[TensorRecord]) -> int | None:
    taken = (record.shape for record in of_role(records, Role.INPUT) if is_floating(record.dtype))
    return next((prod(shape[:-1]) for shape in taken if shape), None)


def _with_silent_around(
    names: Collection[str], tensors: Mapping[str, Sequence[TensorRecord]], parents: Mapping[str, str | None]
) -> set[str]:
    """Add to nodes the containers around them of which nothing was recorded, up to the first that ran."""
    lines = (_line(name, parents)[1:] for name in names)
    silent = (takewhile(lambda around: not tensors.get(around), line) for line in lines)
    return set(names).union(*silent)


def _innermost(sources: set[str], parents: Mapping[str, str | None]) -> list[str] | None:
    """Return the one source that no other lies in, and the nodes around it; None if that is not clear."""
    if len(sources) > _MOST_SOURCES:
        return None
    lines = [_line(source, parents) for source in sources]
    inner = sources.difference(*(line[1:] for line in lines))
    return _line(inner.pop(), parents) if len(inner) == 1 else None


def nodes_by_value(
    tensors: Mapping[str, Sequence[TensorRecord]],
    role: Role,
    values: Callable[[Sequence[TensorRecord], Role], Iterable[str]],
) -> defaultdict[str, set[str]]:
    """Return which nodes have each of the values of their tensors of a role."""
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for name, records in tensors.items():
        for value in values(records, role):
            nodes[value].add(name)
    return nodes


def _values(records: Iterable[TensorRecord], role: Role) -> list[str]:
    return known(map(_value, of_role(records, role)))


def _values_of_fractions(records: Iterable[TensorRecord], role: Role) -> list[str]:
    return _values((record for record in records if is_floating(record.dtype)), role)


def _value(record: TensorRecord) -> str | None:
    """Return what tells the values of a tensor from others, if anything does."""
    if record.digest is not None:
        _, checksum, size = record.digest.split(":")
        is_trivial = int(size) < _SMALLEST_EVIDENCE or int(checksum, 16) == _checksum_of_zeros(int(size))
        return None if is_trivial else record.digest
    said, shape = record.statistics, record.shape
    if said is None or shape is None or said.maximum == said.minimum or prod(shape) < _FEWEST:
        return None
    return f"{prod(shape)} {said.maximum}{said.minimum}{said.mean}{said.norm}"


@lru_cache(maxsize=256)
def _checksum_of_zeros(size: int) -> int:
    return crc32(bytes(size)) if size <= _LARGEST_ZEROS else -1


def _line(name: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return a node and the nodes around it, innermost first."""
    line = [name]
    while (parent := parents.get(line[-1])) is not None:
        line.append(parent)
    return line


def _branches(giver: list[str], taker: list[str]) -> tuple[str, str] | None:
    """Return the siblings in which two nodes lie; None if one node contains the other."""
    outermost_first = zip(reversed(giver), reversed(taker), strict=False)
    return next((pair for pair in outermost_first if pair[0] != pair[1]), None)


def _order_by_name(siblings: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """Sort the siblings whose names tell when they run; the others keep their places."""
    stages = {name: stage for name in siblings if (stage := stage_of(labels[name])) is not None}
    in_order = iter(sorted(stages, key=stages.__getitem__))
    return [next(in_order) if name in stages else name for name in siblings]


def _follow_flows(
    siblings: list[str], takers: Mapping[str, set[str]], late: Mapping[str, bool]
) -> tuple[list[str], int]:
    """Move siblings as little as it takes for givers to come before takers, what is late after others."""
    place = positions(siblings)
    flows = [
        (place[giver], place[taker])
        for giver in siblings
        for taker in (takers.get(giver, set()) & place.keys()) - {giver}
    ]
    after: dict[int, set[int]] = defaultdict(set)
    before: dict[int, set[int]] = defaultdict(set)
    # Flows that agree with the names cannot contradict one another; of the rest, those that do are left.
    for giver, taker in sorted(flows, key=lambda flow: (flow[0] > flow[1], flow)):
        if giver < taker or not _reaches((after, taker), (before, giver)):
            after[giver].add(taker)
            before[taker].add(giver)
    kept = sum(map(len, after.values()))
    keys = list(zip(_are_late(siblings, late), range(len(siblings)), strict=True))
    return [siblings[at] for at in _topological(keys, before)], kept


def _are_late(siblings: Iterable[str], late: Mapping[str, bool]) -> Iterator[bool]:
    """Tell of each sibling whether it is late; one that does not tell is as the one before it."""
    is_late = False
    for name in siblings:
        is_late = late.get(name, is_late)
        yield is_late


def _reaches(*ends: tuple[Mapping[int, set[int]], int]) -> bool:
    """Tell whether two places are joined: looked for from both, each along its own links.

    It is over as soon as one of them leads no further, however far the other does.
    """
    waiting = [[start] for _, start in ends]
    seen = [{start} for _, start in ends]
    while all(waiting):
        for side, (links, _) in enumerate(ends):
            fresh = links.get(waiting[side].pop(), set()) - seen[side]
            if not fresh.isdisjoint(seen[1 - side]):
                return True
            seen[side] |= fresh
            waiting[side].extend(fresh)
    return False


def _topological(keys: Sequence[tuple[bool, int]], before: Mapping[int, set[int]]) -> list[int]:
    """Sort places so that each comes after those before it, otherwise by their keys."""
    sorter = TopologicalSorter({at: before.get(at, ()) for at in range(len(keys))})
    sorter.prepare()
    ready: list[tuple[bool, int]] = []
    order: list[int] = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heappush(ready, keys[at])
        order.append(heappop(ready)[1])
        sorter.done(order[-1])
    return order
