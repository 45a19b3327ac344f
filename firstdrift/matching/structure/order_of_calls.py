"""In which order siblings ran, where a dump recorded them in one that cannot be.

recorded   pow  mul.11  mul.10  mean       in order   mul.10  mul.11  pow  mean
           pow takes what mul.11 gives; calls of one operator are numbered as they are made

The order in a dump is evidence, and no proof: hooks of several threads, and whoever wrote the file, may have
exchanged what ran side by side or one after the other. What is given to a node was made before it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import isfinite
from typing import TypeAlias

from firstdrift.groups import grouped, known
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree, is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, is_floating
from firstdrift.parallel.merge_ranks import rank_of_name

_Edge: TypeAlias = tuple[int, int]
"""Two places among siblings, the second of which ran after the first."""


def in_order_of_calls(tree: SliceTree, siblings: list[int]) -> list[int]:
    """Return siblings in the order in which they ran; the recorded one, where nothing contradicts it."""
    numbered = set(_edges_of_numbers(tree, siblings))
    ordered = _sorted(siblings, numbered | set(_edges_of_values(tree, siblings)))
    return ordered or _sorted(siblings, numbered) or siblings


def _sorted(siblings: list[int], edges: set[_Edge]) -> list[int]:
    """Let each stand after those that come before it; nothing where that goes in a circle."""
    if all(first < second for first, second in edges):
        return siblings
    followers = grouped(edges, lambda edge: edge[0])
    waits = Counter(second for _, second in edges)
    ready = [at for at in range(len(siblings)) if not waits[at]]
    heapify(ready)
    ordered: list[int] = []
    while ready:
        at = heappop(ready)
        ordered.append(siblings[at])
        for _, follower in followers.get(at, ()):
            waits[follower] -= 1
            if not waits[follower]:
                heappush(ready, follower)
    return ordered if len(ordered) == len(siblings) else []


def _edges_of_numbers(tree: SliceTree, siblings: list[int]) -> Iterator[_Edge]:
    """Yield each two forward calls of one operator whose numbers follow each other; each rank has its own."""
    calls = grouped(
        (at for at, index in enumerate(siblings) if _is_forward_operator(tree.nodes[index])),
        lambda at: (tree.nodes[siblings[at]].type_name, rank_of_name(tree.nodes[siblings[at]].name)),
    )
    for places in calls.values():
        yield from pairwise(sorted(places, key=lambda at: tree.nodes[siblings[at]].call))


def _is_forward_operator(node: Node) -> bool:
    return is_operator(node) and node.direction is Direction.FORWARD


def _edges_of_values(tree: SliceTree, siblings: list[int]) -> Iterator[_Edge]:
    """Yield which sibling makes what which other takes, where no other made it, and none was given it."""
    nodes = tree.nodes_at(siblings)
    made: dict[Hashable, set[int]] = {}
    for at, node in enumerate(nodes):
        for key in _keys(node, Role.OUTPUT):
            made.setdefault(key, set()).add(at)
    around = {tree.parents[index] for index in siblings} - {tree.root}
    for key in chain.from_iterable(_keys(node, Role.INPUT) for node in tree.nodes_at(around)):
        made.pop(key, None)
    for at, node in enumerate(nodes):
        for key in _keys(node, Role.INPUT):
            makers = made.get(key, set())
            if len(makers) == 1 and at not in makers:
                yield next(iter(makers)), at


def _keys(node: Node, role: Role) -> Iterable[Hashable]:
    return {value_key(record) for record in node.records(role) if is_floating(record.dtype)} - {None}


def calls_that_give_the_same(
    trees: tuple[SliceTree, SliceTree], golden: list[int], target: list[int]
) -> Iterator[tuple[int, int]]:
    """Yield the calls of one operator that give the same, in whatever order others ran between them.

    Several that give the same are paired in order; where one side has more of them, none is.
    """
    groups = _by_result(trees[0], golden), _by_result(trees[1], target)
    groups[1].pop(None, None)
    for result, others in groups[1].items():
        own = groups[0].get(result, ())
        if len(own) == len(others):
            yield from zip(own, others, strict=True)


def _by_result(tree: SliceTree, siblings: list[int]) -> dict[Hashable, list[int]]:
    return grouped(siblings, lambda index: _result(tree.nodes[index]))


def _result(node: Node) -> Hashable | None:
    """Return operator, shape, norm and maximum of what a forward call gives; None if one is not known."""
    given = next((record for record in node.records(Role.OUTPUT) if is_floating(record.dtype)), None)
    is_call = _is_forward_operator(node) and not rank_of_name(node.name)
    if given is None or given.statistics is None or not is_call:
        return None
    values = known((given.statistics.norm, given.statistics.maximum))
    if len(values) < 2 or not all(map(isfinite, values)):  # noqa: PLR2004 (both)
        return None
    return node.type_name, given.shape, *map("{:.3e}".format, values)
