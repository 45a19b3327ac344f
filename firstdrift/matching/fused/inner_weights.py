"""Weights that one module holds as one, and modules inside its partner each by itself.

    self_attn  in_proj_weight [96, 32]    ═══    self_attn  q_proj.weight k_proj.weight v_proj.weight

Names say what may have been fused, shapes whether it was.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import grouped
from firstdrift.matching.fused.joined_tensors import (
    Tensor,
    golden_first,
    join_records,
    joined_axis,
    pair_of,
    say_arranged,
)
from firstdrift.matching.plan import Joining, NodeMatch, TensorPair, UnmatchedTensor
from firstdrift.matching.tensors import TensorPairing
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role
from firstdrift.operators.fused import parts_of_name
from firstdrift.wording.message import Message

_WEIGHT: Final = re.compile(r"(?P<name>.+)[._](?P<kind>weight|bias)")


def pair_inner_weights(
    golden: Sequence[Node], target: Sequence[Node], matches: Sequence[NodeMatch], tensors: TensorPairing
) -> None:
    """Pair weights that are left over of a module with those of modules inside its partner, joined."""
    for left, nodes, are_golden in (
        (tensors.unmatched_golden, target, False),
        (tensors.unmatched_target, golden, True),
    ):
        wholes = [tensor for tensor in left if tensor.record.role is Role.PARAMETER]
        forward = (node for node in nodes if wholes and node.direction is Direction.FORWARD)
        inside = grouped(forward, lambda node: node.parent)
        for whole in wholes:
            match = matches[whole.match]
            around = match.golden if are_golden else match.target
            held = inside.get(around[0], ()) if len(around) == 1 else ()
            pairs = _pairs(whole, held, are_golden=are_golden)
            if (pair := next(pairs, None)) is not None:
                tensors.pairs.append(pair)
                left.remove(whole)


def _pairs(whole: UnmatchedTensor, held: Iterable[Node], *, are_golden: bool) -> Iterator[TensorPair]:
    """Yield the ways in which the weights of some modules make up one."""
    told = _WEIGHT.fullmatch(whole.record.key)
    if told is None:
        return
    named = {node.path.rpartition(".")[2].lower(): node for node in held}
    for names in parts_of_name(told["name"].lower()):
        nodes = [named[name] for name in names if name in named]
        records = [one for node in nodes for one in node.records(Role.PARAMETER) if one.key == told["kind"]]
        axis = joined_axis(records, whole.record) if len(records) == len(nodes) == len(names) else None
        if axis is None:
            continue
        said = Message.of("matching.transform.joined_first", parts=names), *say_arranged(records)
        parts = Tensor(nodes[0].name, join_records(records, axis), tuple(records))
        sides = golden_first(parts, Tensor(whole.node, whole.record), own_is_golden=are_golden)
        pair = pair_of(whole.match, *sides, said, Joining.CONCATENATED)
        yield replace(pair, part_nodes=tuple(node.name for node in nodes))
