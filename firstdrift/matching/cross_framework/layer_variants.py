"""The ways to see a layer: with linear operators that may have been fused apart, or as one.

q_proj k_proj v_proj o_proj         apart
[q_proj k_proj v_proj] o_proj       as the one operator of the other framework
q_proj [k_proj v_proj] o_proj       partly so
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice, product
from operator import attrgetter

from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import Op, first_input
from firstdrift.matching.cross_framework.thresholds import MOST_VARIANTS
from firstdrift.matching.fused.find_fused import parts_of_one
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree
from firstdrift.operators.kinds import CHARACTERISTIC, OpKind

Group = tuple[Op, ...]
"""Linear operators that may have been fused into one."""


def layer_variants(tree: SliceTree, ops: Sequence[Op], others: Sequence[Op]) -> list[list[Op]]:
    """Return the ways to see a layer: with each group of operators apart, as one operator, or partly so.

    Only what is as wide as an operator of the other side is seen as one. Operators of one group do not
    depend on one another: they stand together, whatever ran between them, if they or their names say that
    they may be one.
    """
    widths = set(chain.from_iterable(op.possible_widths for op in _linear(others).values()))
    linear = _linear(ops)
    named = list(_by_name(tree, linear))
    ways = {group: _fused_ways(group, widths) for group in (*named, *_alike(tree, ops, linear, named))}
    together = _together(ops, [*named, *filter(ways.get, ways)])
    # Of many groups there are more ways than can be gone through: they are never listed.
    all_ways = product(*([(), *found] for found in ways.values()))
    all_fused = tuple([(), *found][:2][-1] for found in ways.values())
    chosen = dict.fromkeys(chain(islice(all_ways, 1), [all_fused], islice(all_ways, MOST_VARIANTS)))
    return [_with_fused(together, groups) for groups in islice(chosen, MOST_VARIANTS)]


def _linear(ops: Sequence[Op]) -> dict[int, Op]:
    """Return the linear operators of known width, by node."""
    return {op.node: op for op in ops if op.kind is OpKind.LINEAR and op.width is not None}


def _fused_ways(group: Group, widths: set[int]) -> list[Group]:
    """Return what of a group may be one operator of the other side: all of it, or all but the first."""
    ways = (group, group[1:])[: len(group) - 1]  # q may stand apart from k and v
    return [way for way in ways if _width(way) in widths]


def _width(group: Group) -> int:
    return sum(op.width or 0 for op in group)


def _together(ops: Sequence[Op], groups: Iterable[Group]) -> list[Op]:
    """Return operators with those of each group one after another, at the place of the first."""
    group_of = {op: group for group in groups for op in group}
    return list(dict.fromkeys(member for op in ops for member in group_of.get(op, (op,))))


def _with_fused(ops: Sequence[Op], chosen: Sequence[Group]) -> list[Op]:
    """Return a layer with each of the chosen groups as one operator, at the place of its first."""
    fused = {op: _as_one(group) for group in chosen for op in group}
    return list(dict.fromkeys(fused.get(op, op) for op in ops))


def _as_one(group: Group) -> Op:
    first = group[0]
    shape = (*(first.shape or ())[:-1], _width(group))
    return replace(first, shape=shape, parts=tuple(op.node for op in group), other_widths=())


def _by_name(tree: SliceTree, linear: dict[int, Op]) -> Iterator[Group]:
    """Yield linear operators whose names belong together."""
    grouped: set[int] = set()
    for nodes in parts_of_one(tree, linear):
        if grouped.isdisjoint(nodes):
            grouped.update(nodes)
            yield tuple(map(linear.__getitem__, nodes))


def _alike(
    tree: SliceTree, ops: Sequence[Op], linear: dict[int, Op], named: Iterable[Group]
) -> Iterator[Group]:
    """Yield other linear operators that may have been fused: of one input, then such that run in a row."""
    left = dict.fromkeys(ops)
    for op in chain.from_iterable(named):
        del left[op]
    by_input: defaultdict[Hashable, list[Op]] = defaultdict(list)
    for op in filter(left.__contains__, linear.values()):
        key = value_key(first_input(tree, op.node))
        if key is not None:
            by_input[key, tree.parents[op.node]].append(op)
            del left[op]
    yield from map(tuple, by_input.values())
    yield from _in_a_row(left)


def _in_a_row(ops: Iterable[Op]) -> Iterator[Group]:
    """Yield the linear operators of one part of a layer with nothing characteristic between them."""
    characteristic = (op for op in ops if op.kind in CHARACTERISTIC)
    for (kind, _), run in groupby(characteristic, attrgetter("kind", "block")):
        group = tuple(run)
        if kind is OpKind.LINEAR and all(op.width is not None for op in group):
            yield group
