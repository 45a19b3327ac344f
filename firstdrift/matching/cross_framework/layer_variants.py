"""The ways to see a layer: with linear operators that may have been fused apart, or as one.

q_proj k_proj v_proj o_proj         apart
[q_proj k_proj v_proj] o_proj       as the one operator of the other framework
q_proj [k_proj v_proj] o_proj       partly so
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, islice, product
from typing import Final

from firstdrift.matching.cross_framework.layer_ops import Op, first_input, value_key
from firstdrift.matching.cross_framework.thresholds import MOST_VARIANTS
from firstdrift.matching.fused.find_fused import parts_of_one
from firstdrift.matching.tree import SliceTree
from firstdrift.operators.kinds import CHARACTERISTIC, OpKind

Group = tuple[Op, ...]
"""Linear operators that may have been fused into one."""

_RUN: Final = (2, 3)


def layer_variants(tree: SliceTree, ops: Sequence[Op], others: Sequence[Op]) -> list[list[Op]]:
    """Return the ways to see a layer: with each group of operators apart, as one operator, or partly so.

    Only what is as wide as an operator of the other side is seen as one. Operators of one group do not
    depend on one another: they stand together, whatever ran between them, if they or their names say that
    they may be one.
    """
    widths = {width for op in others if op.kind is OpKind.LINEAR for width in (op.width, *op.other_widths)}
    groups = {group: _fused_ways(group, widths) for group in _groups(tree, ops)}
    named = set(parts_of_one(tree, [op.node for group in groups for op in group]))
    bound = [group for group, ways in groups.items() if ways or tuple(op.node for op in group) in named]
    together = _together(ops, bound)
    usual = dict.fromkeys([tuple(() for _ in groups), tuple((*ways, ())[0] for ways in groups.values())])
    # Of many groups there are more ways than can be gone through: they are never listed.
    rest = (chosen for chosen in product(*(((), *ways) for ways in groups.values())) if chosen not in usual)
    return [_with_fused(together, chosen) for chosen in islice(chain(usual, rest), MOST_VARIANTS)]


def _fused_ways(group: Group, widths: set[int | None]) -> list[Group]:
    """Return what of a group may be one operator of the other side: all of it, or all but the first."""
    without_first = [group[1:]] if len(group) > 2 else []  # noqa: PLR2004 (q apart from k and v)
    return [way for way in (group, *without_first) if sum(op.width or 0 for op in way) in widths]


def _together(ops: Sequence[Op], groups: Sequence[Group]) -> list[Op]:
    """Return operators with those of each group one after another, at the place of the first."""
    group_of = {op.node: group for group in groups for op in group}
    by_node = {op.node: op for op in ops}
    order = dict.fromkeys(member.node for op in ops for member in group_of.get(op.node, (op,)))
    return [by_node[node] for node in order]


def _with_fused(ops: Sequence[Op], chosen: Sequence[Group]) -> list[Op]:
    """Return a layer with each of the chosen groups as one operator, at the place of its first."""
    fused = {group[0].node: _as_one(group) for group in chosen if group}
    gone = {op.node for group in chosen for op in group[1:]}
    return [fused.get(op.node, op) for op in ops if op.node not in gone]


def _as_one(group: Group) -> Op:
    first = group[0]
    shape = (*(first.shape or ())[:-1], sum(op.width or 0 for op in group))
    nodes = tuple(op.node for op in group)
    return Op(first.node, OpKind.LINEAR, first.block, shape, nodes, of_expert=first.of_expert)


def _groups(tree: SliceTree, ops: Sequence[Op]) -> Iterator[Group]:
    """Yield linear operators that may have been fused: of one input, or of names that belong together."""
    linear = {op.node: op for op in ops if op.kind is OpKind.LINEAR and op.width is not None}
    grouped: set[int] = set()
    for nodes in parts_of_one(tree, list(linear)):
        if grouped.isdisjoint(nodes):
            grouped.update(nodes)
            yield tuple(linear[node] for node in nodes)
    of_one_input = _by_input(tree, [op for op in linear.values() if op.node not in grouped])
    yield from (group for group in of_one_input if len(group) > 1)
    grouped.update(op.node for group in of_one_input for op in group)
    yield from _runs([op for op in ops if op.node not in grouped])


def _by_input(tree: SliceTree, ops: Sequence[Op]) -> list[Group]:
    """Group operators that are given the same in one module; without those of which it is not known."""
    groups: defaultdict[Hashable, list[Op]] = defaultdict(list)
    for op in ops:
        key = value_key(first_input(tree, op.node))
        if key is not None:
            groups[key, tree.parents[op.node]].append(op)
    return [tuple(group) for group in groups.values()]


def _runs(ops: Sequence[Op]) -> Iterator[Group]:
    """Yield two or three linear operators of one part of a layer with nothing characteristic between them."""
    run: list[Op] = []
    for op in (*(op for op in ops if op.kind in CHARACTERISTIC), None):
        is_linear = op is not None and op.kind is OpKind.LINEAR
        if op is not None and is_linear and (not run or run[-1].block == op.block):
            run.append(op)
            continue
        if len(run) in _RUN and all(each.width is not None for each in run):
            yield tuple(run)
        run = [op] if op is not None and is_linear else []
