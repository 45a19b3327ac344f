"""A module that begins with a norm, and the norm and what follows it in the other run.

golden   input_layernorm ──▶ q_proj, k_proj, v_proj        x ─ norm ─▶ normed ─ linear ─▶ given
target   linear_qkv, with layer_norm_weight                x ─────────── linear_qkv ────▶ given

What the one takes is what the norm takes, what it gives what follows the norm gives; what goes from one to
the other was recorded in one run alone. In the backward pass it is the other way round.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from firstdrift.matching.fused.joined_tensors import golden_first, pair_joined
from firstdrift.matching.implementations.pair_tensors import Pairer, pair_records
from firstdrift.matching.pairing import Nodes, Pairing
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tree import SliceTree, tensors_of
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.paths import parameter_of_norm_inside
from firstdrift.operators.properties import begins_with_norm
from firstdrift.operators.recognise import kind_of


def with_norm(work: Pairing, nodes: Nodes) -> Nodes:
    """Return a match with the norm before it in the one run, where the module of the other has it inside."""
    begin = [
        len(side) == 1 and begins_with_norm(tree.nodes[side[0]].type_name)
        for tree, side in zip((work.golden, work.target), nodes, strict=True)
    ]
    if begin == [False, True]:
        return (*_norm_before(work.golden, nodes[0][0]), *nodes[0]), nodes[1]
    if begin == [True, False]:
        return nodes[0], (*_norm_before(work.target, nodes[1][0]), *nodes[1])
    return nodes


def _norm_before(tree: SliceTree, node: int) -> tuple[int, ...]:
    """Return the norm that gave what a module takes, as the values tell; nothing if there is none."""
    taken = {value_key(record) for record in tensors_of(tree.nodes[node], Role.INPUT)[:1]} - {None}
    for before in reversed(range(node)):
        other = tree.nodes[before]
        given = tensors_of(other, Role.OUTPUT)[:1]
        if given and value_key(given[0]) in taken and kind_of(other) is OpKind.NORM:
            return (before,)
    return ()


def has_norm_inside(work: Pairing, nodes: Nodes) -> bool:
    """Tell whether the first of several nodes is a norm that the one on the other side begins with."""
    golden, target = work.golden.nodes_at(nodes[0]), work.target.nodes_at(nodes[1])
    several, whole = golden_first(golden, target, own_is_golden=len(target) == 1)
    is_norm = len(several) > 1 and kind_of(several[0]) is OpKind.NORM
    return is_norm and begins_with_norm(whole[0].type_name)


def pair_with_norm(
    tensors: TensorPairing, row: int, nodes: tuple[Sequence[Node], Sequence[Node]], pairer: Pairer
) -> None:
    """Pair the tensors of a norm and of what follows it with those of the module that is both."""
    of_golden = len(nodes[1]) == 1
    several, wholes = golden_first(nodes[0], nodes[1], own_is_golden=of_golden)
    norm, rest = several[0], several[1:]
    of_norm, of_rest = _halves(wholes[0])
    for own, other in _parameters(norm, of_norm):
        sides = golden_first((norm, own), (of_norm, other), own_is_golden=of_golden)
        tensors.pairs += pair_records(row, sides[0], sides[1])
    passed = golden_first(norm, of_norm, own_is_golden=of_golden)
    pairer.pair(tensors, row, *map(_without_parameters, passed))
    pairer.stays_inside(norm, is_golden=of_golden)
    following = golden_first(rest, [of_rest], own_is_golden=of_golden)
    if len(rest) == 1:
        pairer.pair(tensors, row, following[0][0], following[1][0])
    else:
        pair_joined(tensors, row, following[0], following[1])


def _parameters(norm: Node, of_norm: Node) -> Iterator[tuple[TensorRecord, TensorRecord]]:
    """Yield the parameters of a norm, or their gradients, with what they are in the module that has it."""
    inside = {(one.role, _norm_parameter(one)): one for one in of_norm.tensors}
    for own in norm.tensors:
        if (other := inside.get((own.role, own.key))) is not None:
            yield own, other


def _without_parameters(node: Node) -> Node:
    kept = [one for one in node.tensors if one.role not in (Role.PARAMETER, Role.GRADIENT)]
    return _of_tensors(node, kept)


def _halves(whole: Node) -> tuple[Node, Node]:
    """Return what a module has of its norm, and of what follows: two nodes of its name."""
    is_backward = whole.direction is Direction.BACKWARD
    taken = Role.OUTPUT if is_backward else Role.INPUT
    of_norm = [one for one in whole.tensors if one.role is taken or _norm_parameter(one)]
    of_rest = [one for one in whole.tensors if one.role is not taken and not _norm_parameter(one)]
    return _of_tensors(whole, of_norm), _of_tensors(whole, of_rest)


def _of_tensors(node: Node, records: Sequence[TensorRecord]) -> Node:
    """Return a node with some of its tensors."""
    return replace(node, tensors=tuple(records))


def _norm_parameter(record: TensorRecord) -> str:
    """Return what a parameter, or its gradient, is of the norm that a module begins with; "" if of none."""
    if record.role not in (Role.PARAMETER, Role.GRADIENT):
        return ""
    return parameter_of_norm_inside(record.key)
