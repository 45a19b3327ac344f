"""Pair the tensors of two nodes of different frameworks, as far as they hold one value.

torch    mlp: [gate_proj up_proj act down_proj]          ═══  input of both, output of both
ATB      Mlp: [Linear Split Swiglu Linear AllReduce]          a module may end with more than its partner
"""

from collections.abc import Callable, Container, Sequence
from itertools import product, starmap
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.groups import known
from firstdrift.matching.cross_framework.layer_ops import (
    Line,
    Op,
    first_output,
    is_op,
    ops_below,
    outputs_of,
)
from firstdrift.matching.fused.fused_experts import has_experts
from firstdrift.matching.fused.joined_tensors import joined_axis
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Messages, TensorPair
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tensors import TensorPairing, merge, relate_shapes, reshape
from firstdrift.matching.tree import SliceTree, tensors_of
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating, possible_shapes
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import adds_as_well
from firstdrift.operators.recognise import kind_of

Records: TypeAlias = tuple[TensorRecord, TensorRecord]
"""A golden tensor and a target tensor."""

_MORE: Final = {OpKind.REDUCE: (True, None), OpKind.ADD: (False, None)}
"""Where a module ends with more than its partner, which is not recorded there: whether the partner then gives
what its own last operator gives. With other operators it must be known not to."""


class _Side(Struct, frozen=True):
    """A node of one of the two dumps, where it stands, and the operators in it."""

    tree: SliceTree
    line: Line
    index: int
    below: Sequence[Op]

    @property
    def node(self) -> Node:
        return self.tree.nodes[self.index]

    @property
    def is_op(self) -> bool:
        return is_op(self.tree, self.index)

    def ops(self) -> list[Op]:
        return [op for op in self.below if op.kind is not OpKind.STORE]

    def hands_on(self, last: Op) -> bool | None:
        """Tell whether a module gives what its last operator gives; None if not known."""
        keys = value_key(first_output(self.tree, self.index)), value_key(first_output(self.tree, last.node))
        return None if None in keys else keys[0] == keys[1]

    def gives_otherwise(self) -> bool:
        """Tell whether it adds something as well, or is split next: only the parts tell how that lies."""
        following = self.line.following(self.index) if kind_of(self.node) is OpKind.LINEAR else None
        is_split_up = following is not None and is_split(self.tree, self.index, following)
        return is_split_up or adds_as_well(self.node.type_name)

    def is_beside_experts(self) -> bool:
        """Tell whether it lies in a layer that has experts."""
        layers = known(map(self.line.layer, (self.index, *self.tree.around(self.index))))
        return any(has_experts(self.tree, layer) for layer in layers)


Sides: TypeAlias = tuple[_Side, _Side]


def pair_values(
    tensors: TensorPairing, match: int, work: Pairing, lines: tuple[Line, Line], nodes: tuple[int, int]
) -> None:
    """Pair the tensors of a match across frameworks; those that do not hold one value are left over.

    A module may hold a norm or a sum that its partner has outside. Its input is paired only if the first
    operators inside correspond, its output only if the last ones do or both end with what the other lacks.
    A single number beside experts (the gate of a shared one, for one token) is left over: it may be what is
    left of large ones that cancel, and an ATB dump seldom says of which.
    """
    golden, target = (ops_below(*place) for place in zip((work.golden, work.target), nodes, strict=True))
    sides = (
        _Side(work.golden, lines[0], nodes[0], golden),
        _Side(work.target, lines[1], nodes[1], target),
    )
    names = sides[0].node.name, sides[1].node.name
    candidates = _candidates(work, sides)
    fitting = [pair for pair in candidates if fit(*pair) and not _is_single_beside_experts(sides, pair)]
    longer = [pair for pair in candidates if _are_of_other_length(sides, pair)]
    tensors.pairs += [TensorPair(match, *names, *pair, reshape_to_fit(*pair)) for pair in fitting]
    tensors.pairs += [
        TensorPair(match, *names, *pair, incomparable=relate_shapes(pair[0].shape, pair[1].shape)[1])
        for pair in longer
    ]
    taken = [{(names[at], pair[at].label) for pair in (*fitting, *longer)} for at in (0, 1)]
    tensors.leave(match, [sides[0].node], [sides[1].node], (taken[0], taken[1]))


def _candidates(work: Pairing, sides: Sides) -> list[Records]:
    """Pair the first inputs of two nodes, and their outputs (of modules the first), where they correspond."""
    most = len(outputs_of(sides[0].tree, sides[0].index)) if sides[0].is_op and sides[1].is_op else 1
    rules: tuple[tuple[Role, int, Callable[[Pairing, Sides], bool]], ...] = (
        (Role.INPUT, 1, _begin_alike),
        (Role.OUTPUT, most, _end_alike),
    )
    return [
        pair
        for role, count, are_alike in rules
        if are_alike(work, sides)
        for pair in list(zip(*(tensors_of(side.node, role) for side in sides), strict=False))[:count]
    ]


def _are_of_other_length(sides: Sides, pair: Records) -> bool:
    """Tell whether two embeddings made as wide vectors of other numbers of tokens: they were given others."""
    golden, target = (record.shape or () for record in pair)
    is_as_wide = pair[0].role is Role.OUTPUT and golden[-1:] == target[-1:] and prod(golden) != prod(target)
    return is_as_wide and {kind_of(side.node) for side in sides} == {OpKind.LOOKUP}


def _is_single_beside_experts(sides: Sides, pair: Records) -> bool:
    is_single = any(record.shape is not None and prod(record.shape) == 1 for record in pair)
    return is_single and all(side.is_beside_experts() for side in sides)


def fit(golden: TensorRecord, target: TensorRecord) -> bool:
    """Tell whether two tensors have the same elements, but for dimensions of size 1 and merged ones."""
    if is_floating(golden.dtype) is not is_floating(target.dtype):
        return False
    shapes = product(possible_shapes(golden), possible_shapes(target))
    return None in (golden.shape, target.shape) or any(starmap(merge, shapes))


def reshape_to_fit(golden: TensorRecord, target: TensorRecord) -> Messages:
    """Say how two tensors that fit are brought to one shape."""
    if golden.shape == target.shape or golden.shape is None or target.shape is None:
        return ()
    return (reshape(golden.shape, target.shape),)


def is_split(tree: SliceTree, op: int, following: int) -> bool:
    """Tell whether what an operator gives is split into parts by the one that follows it."""
    whole, parts = first_output(tree, op), outputs_of(tree, following)
    if whole is None or len(parts) == 1 or kind_of(tree.nodes[following]) is not OpKind.SPLIT:
        return False
    return joined_axis(parts, whole) == -1


def _begin_alike(work: Pairing, sides: Sides) -> bool:
    first, second = sides[0].below, sides[1].below
    return not first or not second or _are_matched(work, first[0].node, second[0].node)


def _end_alike(work: Pairing, sides: Sides) -> bool:
    """Tell whether what ends two operators or modules gives the same value."""
    first, second = (side.ops() for side in sides)
    if not first or not second:
        return not any(side.gives_otherwise() for side in sides)
    last = first[-1], second[-1]
    if _are_matched(work, last[0].node, last[1].node):
        return all(side.hands_on(op) is not False for side, op in zip(sides, last, strict=True))
    if not _is_layer(sides[0]) and not _multiply_alike(work, first, second):
        return False
    are_known = last[0].node in work.partners, last[1].node in work.found
    if are_known[0] is are_known[1]:
        return not are_known[0]
    # The one whose last operator is known ends with less.
    less, more = are_known.index(True), are_known.index(False)
    return sides[less].hands_on(last[less]) in _MORE.get(last[more].kind, (False,))


def _multiply_alike(work: Pairing, first: Sequence[Op], second: Sequence[Op]) -> bool:
    """Tell whether all linear operators of two modules correspond: none holds what the other has outside."""
    partners = set(map(work.partners.get, _products(first, work.partners)))
    of_second = set(map(work.first_target, _products(second, work.found)))
    return of_second <= partners <= {op.node for op in second}


def _products(ops: Sequence[Op], matched: Container[int]) -> list[int]:
    """Return the linear operators; of those of all experts, which may be hidden, the matched ones."""
    known = (op for op in ops if op.kind is not OpKind.GROUPED or op.node in matched)
    return [op.node for op in known if op.kind in (OpKind.LINEAR, OpKind.GROUPED)]


def _is_layer(side: _Side) -> bool:
    return side.line.layer(side.index) is not None


def _are_matched(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether two nodes are in one match."""
    return work.partners.get(golden, -1) == work.first_target(target)
