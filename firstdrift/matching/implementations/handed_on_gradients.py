"""The gradient of a bias that a module hands on: that of what it gives, for it is added elsewhere.

golden   c_proj            gives x W + b         parameters_grad   weight, bias
target   linear_fc2        gives x W, and b      parameters_grad   weight
                           backward              input.1, the gradient of b
"""

from collections.abc import Sequence
from typing import TypeAlias

from firstdrift.groups import known
from firstdrift.matching.fused.joined_tensors import golden_first
from firstdrift.matching.implementations.pair_tensors import pair_records
from firstdrift.matching.plan import NodeMatch, UnmatchedTensor
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord

_Given: TypeAlias = dict[tuple[str, str], tuple[Node, TensorRecord]]
"""Gradients of what modules hand on of their parameters, by the node of the others, and the parameter."""


def pair_handed_on(
    golden: SliceTree, target: SliceTree, matches: Sequence[NodeMatch], tensors: TensorPairing
) -> None:
    """Pair the gradients of biases that are left over with those of what hands on the bias."""
    for left, own, other, own_is_golden in (
        (tensors.unmatched_golden, golden, target, True),
        (tensors.unmatched_target, target, golden, False),
    ):
        gradients = [one for one in left if one.record.role is Role.GRADIENT]
        nodes = {node.name: node for node in own.nodes_at(own.gradients if gradients else ())}
        there = _handing_on(other) if gradients else {}
        for one in gradients:
            match = matches[one.match]
            found = _found(one, match.target if own_is_golden else match.golden, there)
            for given in found:
                sides = golden_first((nodes[one.node], one.record), given, own_is_golden=own_is_golden)
                tensors.pairs += pair_records(one.match, sides[0], sides[1])
    tensors.drop_paired()


def _found(
    gradient: UnmatchedTensor, partners: Sequence[str], there: _Given
) -> list[tuple[Node, TensorRecord]]:
    """Return what the partners of a node are given as the gradient of what they hand on."""
    return known(there.get((name, gradient.record.key)) for name in partners)


def _handing_on(tree: SliceTree) -> _Given:
    holders = {(node.path, node.call): node.name for node in tree.nodes_at(tree.gradients)}
    found: _Given = {}
    for index in tree.forward_calls.values():
        node, backward = tree.nodes[index], tree.backward_of(index)
        holder = holders.get((node.path, node.call))
        if backward is not None and holder is not None:
            found |= _gradients(node, tree.nodes[backward], holder)
    return found


def _gradients(node: Node, backward: Node, holder: str) -> _Given:
    """Return the gradients of the parameters that a module gives as they are."""
    of_output = {one.key: one for one in backward.records(Role.INPUT)}
    given = {value_key(one): of_output.get(one.key) for one in node.records(Role.OUTPUT)}
    given.pop(None, None)
    found = ((one.key, given.get(value_key(one))) for one in node.records(Role.PARAMETER))
    return {(holder, key): (backward, gradient) for key, gradient in found if gradient is not None}
