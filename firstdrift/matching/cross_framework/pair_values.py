"""Pair the tensors of two nodes of different frameworks, as far as they hold one value.

torch    mlp: [gate_proj up_proj act down_proj]          ═══  input of both, output of both
ATB      Mlp: [Linear Split Swiglu Linear AllReduce]          a module may end with more than its partner
"""

from collections.abc import Container, Sequence
from itertools import accumulate, product, starmap
from math import prod
from operator import mul

from firstdrift.matching.cross_framework.layer_ops import (
    Layer,
    Line,
    Op,
    first_output,
    is_op,
    modules_around,
    ops_below,
    value_key,
)
from firstdrift.matching.fused.fused_experts import has_experts
from firstdrift.matching.fused.joined_tensors import joined_axis
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Messages, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing, relate_shapes, reshape
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating, possible_shapes
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import adds_as_well
from firstdrift.operators.recognise import kind_of


def pair_values(tensors: TensorPairing, match: int, work: Pairing, golden: int, target: int) -> None:
    """Pair the tensors of a match across frameworks; those that do not hold one value are left over.

    A module may hold a norm or a sum that its partner has outside. Its input is paired only if the first
    operators inside correspond, its output only if the last ones do or both end with what the other lacks.
    A single number beside experts (the gate of a shared one, for one token) is left over: it may be what is
    left of large ones that cancel, and an ATB dump seldom says of which.
    """
    nodes = work.golden.nodes[golden], work.target.nodes[target]
    names = nodes[0].name, nodes[1].name
    candidates = _candidates(work, golden, target)
    pairs = [pair for pair in candidates if fit(*pair)]
    if any(map(_has_single, pairs)) and _are_beside_experts(work, golden, target):
        pairs = [pair for pair in pairs if not _has_single(pair)]
    other_length = [pair for pair in candidates if _are_of_other_length(nodes, pair)]
    tensors.pairs += [TensorPair(match, *names, *pair, reshape_to_fit(*pair)) for pair in pairs]
    tensors.pairs += [
        TensorPair(match, *names, *pair, incomparable=relate_shapes(pair[0].shape, pair[1].shape)[1])
        for pair in other_length
    ]
    taken = {id(record) for pair in (*pairs, *other_length) for record in pair}
    for left, node in zip((tensors.unmatched_golden, tensors.unmatched_target), nodes, strict=True):
        rest = (record for record in node.tensors if id(record) not in taken)
        left += [UnmatchedTensor(match, node.name, record) for record in rest]


def _candidates(work: Pairing, golden: int, target: int) -> list[tuple[TensorRecord, TensorRecord]]:
    """Pair the first inputs of two nodes, and their outputs (of modules the first), where they correspond."""
    nodes = work.golden.nodes[golden], work.target.nodes[target]
    inputs, outputs = ([tensors_of_role(node, role) for node in nodes] for role in (Role.INPUT, Role.OUTPUT))
    pairs: list[tuple[TensorRecord, TensorRecord]] = []
    if _begin_alike(work, golden, target):
        pairs += list(zip(*inputs, strict=False))[:1]
    if _end_alike(work, golden, target):
        are_ops = is_op(work.golden, golden) and is_op(work.target, target)
        pairs += list(zip(*outputs, strict=False))[: None if are_ops else 1]
    return pairs


def _are_of_other_length(nodes: tuple[Node, Node], pair: tuple[TensorRecord, TensorRecord]) -> bool:
    """Tell whether two embeddings made as wide vectors of other numbers of tokens: they were given others."""
    shapes = pair[0].shape, pair[1].shape
    if any(kind_of(node) is not OpKind.LOOKUP for node in nodes) or not shapes[0] or not shapes[1]:
        return False
    return (
        pair[0].role is Role.OUTPUT and shapes[0][-1] == shapes[1][-1] and prod(shapes[0]) != prod(shapes[1])
    )


def _has_single(pair: tuple[TensorRecord, TensorRecord]) -> bool:
    return any(record.shape is not None and prod(record.shape) == 1 for record in pair)


def _are_beside_experts(work: Pairing, *nodes: int) -> bool:
    """Tell whether two nodes lie in layers that both have experts."""
    if work.lines is None:
        return False
    sides = list(zip((work.golden, work.target), work.lines, nodes, strict=True))
    layers = ((side[0], _layer_around(*side)) for side in sides)
    return all(layer is not None and has_experts(tree, layer) for tree, layer in layers)


def _layer_around(tree: SliceTree, line: Line, node: int) -> Layer | None:
    around = {node, *modules_around(tree, node)}
    return next((unit for unit in line.units if isinstance(unit, Layer) and unit.node in around), None)


def fit(golden: TensorRecord, target: TensorRecord) -> bool:
    """Tell whether two tensors have the same elements, but for dimensions of size 1 and merged ones."""
    if is_floating(golden.dtype) is not is_floating(target.dtype):
        return False
    if golden.shape is None or target.shape is None or golden.shape == target.shape:
        return True
    return any(starmap(_merge, product(possible_shapes(golden), possible_shapes(target))))


def _merge(golden: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether shapes differ by nothing but dimensions of size 1 and merged ones."""
    if prod(golden) != prod(target):
        return False
    ends = [set(accumulate(shape, mul)) for shape in (golden, target)]
    return ends[0] - {1} <= ends[1] or ends[1] - {1} <= ends[0]


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
    return joined_axis(shapes_of(parts), whole.shape) == -1


def tensors_of_role(node: Node, role: Role) -> list[TensorRecord]:
    """Return the tensors of a node in a role, without Python arguments."""
    return [record for record in node.tensors if record.role is role and record.is_tensor]


def outputs_of(tree: SliceTree, index: int) -> list[TensorRecord]:
    """Return the tensors that a node gives."""
    return tensors_of_role(tree.nodes[index], Role.OUTPUT)


def shapes_of(records: list[TensorRecord]) -> list[tuple[int, ...] | None]:
    """Return the shapes of tensors."""
    return [record.shape for record in records]


def _begin_alike(work: Pairing, golden: int, target: int) -> bool:
    first, second = ops_below(work.golden, golden), ops_below(work.target, target)
    if not first or not second:
        return True
    return second[0].node in work.found and _are_matched(work, first[0], second[0])


def _end_alike(work: Pairing, golden: int, target: int) -> bool:
    """Tell whether what ends two operators or modules gives the same value."""
    sides = (work.golden, golden), (work.target, target)
    first, second = ([op for op in ops_below(*side) if op.kind is not OpKind.STORE] for side in sides)
    if not first or not second:
        more = any(adds_as_well(tree.nodes[node].type_name) for tree, node in sides)
        return not (more or _is_split_up(work, golden, of_target=False)) and not (
            _is_split_up(work, target, of_target=True)
        )
    last = first[-1], second[-1]
    if _are_matched(work, *last):
        return all(_hands_on(*side, op) is not False for side, op in zip(sides, last, strict=True))
    if not _are_layers(work, golden) and not _multiply_alike(work, first, second):
        return False
    are_known = last[0].node in work.partners, last[1].node in work.found
    if are_known[0] is are_known[1]:
        return not are_known[0]
    return _ends_with_more(work, (golden, target), last, missing_in_golden=are_known[0])


def _multiply_alike(work: Pairing, first: Sequence[Op], second: Sequence[Op]) -> bool:
    """Tell whether all linear operators of two modules correspond: none holds what the other has outside."""
    inside = {op.node for op in second}
    partners = [work.partners.get(node) for node in _products(first, work.partners)]
    return inside.issuperset(partners) and _with_parts(work, partners).issuperset(
        _products(second, work.found)
    )


def _products(ops: Sequence[Op], matched: Container[int]) -> list[int]:
    """Return the linear operators; of those of all experts, which may be hidden, the matched ones."""
    known = (op for op in ops if op.kind is not OpKind.GROUPED or op.node in matched)
    return [op.node for op in known if op.kind in (OpKind.LINEAR, OpKind.GROUPED)]


def _with_parts(work: Pairing, targets: Sequence[int | None]) -> set[int]:
    """Return target nodes, and those that were fused with them."""
    joined = (join.target for join in work.joins if join.target[0] in targets)
    return {node for node in targets if node is not None}.union(*joined)


def _are_layers(work: Pairing, golden: int) -> bool:
    units = work.lines[0].units if work.lines is not None else ()
    return any(isinstance(unit, Layer) and unit.node == golden for unit in units)


def _is_split_up(work: Pairing, node: int, *, of_target: bool) -> bool:
    """Tell whether the output of a linear operator is split next: only the parts tell how it lies."""
    tree = work.target if of_target else work.golden
    if work.lines is None or kind_of(tree.nodes[node]) is not OpKind.LINEAR:
        return False
    following = work.lines[of_target].following(node)
    return following is not None and is_split(tree, node, following)


def _ends_with_more(
    work: Pairing, nodes: tuple[int, int], last: tuple[Op, Op], *, missing_in_golden: bool
) -> bool:
    """Tell whether a module ends with something more than the other, which is there but not recorded."""
    short, more = (0, 1) if missing_in_golden else (1, 0)
    tree = (work.golden, work.target)[short]
    hands_on = _hands_on(tree, nodes[short], last[short])
    if last[more].kind is OpKind.REDUCE:
        return hands_on is not False
    return hands_on is False or (hands_on is None and last[more].kind is OpKind.ADD)


def _hands_on(tree: SliceTree, module: int, last: Op) -> bool | None:
    """Tell whether a module gives what its last operator gives; None if not known."""
    keys = value_key(first_output(tree, module)), value_key(first_output(tree, last.node))
    return None if None in keys else keys[0] == keys[1]


def _are_matched(work: Pairing, golden: Op, target: Op) -> bool:
    return (
        golden.node in work.partners
        and target.node in work.found
        and (
            work.partners[golden.node] == target.node
            or work.partners[golden.node] == work.partners.get(work.found[target.node].golden, -1)
        )
    )
