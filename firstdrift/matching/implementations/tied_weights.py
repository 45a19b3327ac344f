"""Gradients of a weight that is one parameter in one run, and several of the same numbers in the other.

golden   embed_tokens.weight, which is lm_head.weight         its gradient is the sum of both uses
target   tok_embeddings.weight, and output.weight, a copy     each has the gradient of its own use

A parameter that is used twice has the sum of its gradients. So the gradients of the copies are added up
before they are compared. Of a sum of which only statistics were recorded the mean alone is known.
"""

from collections.abc import Hashable, Sequence
from itertools import chain
from math import fsum
from typing import TypeAlias

from msgspec.structs import replace

from firstdrift.groups import grouped, known
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.structure.statistics_similarity import elements_key, value_key
from firstdrift.matching.tree import SliceTree
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

_Gradient: TypeAlias = tuple[Node, TensorRecord]
_Uses: TypeAlias = dict[tuple[str, str], list[_Gradient]]
"""Gradients of all parameters that are the same numbers, each once, by node and key of each of them."""


def with_sums_of_gradients(
    pairs: Sequence[TensorPair], golden: SliceTree, target: SliceTree
) -> list[TensorPair]:
    """Compare the gradient of what is one parameter in one run with the sum of those of its copies."""
    if not any(pair.golden.role is Role.GRADIENT for pair in pairs):
        return list(pairs)
    uses = _uses(golden), _uses(target)
    return [_summed(pair, *uses) for pair in pairs]


def _summed(pair: TensorPair, golden: _Uses, target: _Uses) -> TensorPair:
    first = golden.get((pair.golden_node, pair.golden.key), [])
    second = target.get((pair.target_node, pair.target.key), [])
    is_plain = pair.joining in (None, Joining.REARRANGED) and pair.incomparable is None
    if not is_plain or not _are_of_one_shape(first, second):
        return pair
    if len(first) == 1 < len(second):
        return _with_sum(replace(pair, target=_sum(second)), second, of_target=True)
    if len(second) == 1 < len(first):
        return _with_sum(replace(pair, golden=_sum(first)), first, of_target=False)
    return pair


def _are_of_one_shape(golden: Sequence[_Gradient], target: Sequence[_Gradient]) -> bool:
    return len({record.shape for _, record in chain(golden, target)}) == 1


def _with_sum(pair: TensorPair, parts: Sequence[_Gradient], *, of_target: bool) -> TensorPair:
    records = tuple(record for _, record in parts)
    said = Message.of("matching.transform.sum_of_parts", parts=tuple(node.path for node, _ in parts))
    return replace(
        pair,
        golden_parts=() if of_target else records,
        target_parts=records if of_target else (),
        part_nodes=tuple(node.name for node, _ in parts),
        transform=(*pair.transform, said),
        joining=Joining.SUMMED,
    )


def _sum(parts: Sequence[_Gradient]) -> TensorRecord:
    """Return what is known of the sum of some gradients."""
    records = [record for _, record in parts]
    means = known(told.mean for told in known(record.statistics for record in records))
    told = Statistics(mean=fsum(means)) if len(means) == len(records) else None
    return replace(records[0], statistics=told, digest=None, location=None)


def _uses(tree: SliceTree) -> _Uses:
    weights = _weights(tree)
    gradients = [(node, one) for node in tree.nodes_at(tree.gradients) for one in node.records(Role.GRADIENT)]
    alike = grouped(gradients, lambda each: weights.get((each[0].path, each[1].key)))
    alike.pop(None, None)
    return {
        (node.name, record.key): list({value_key(one[1]): one for one in reversed(group)}.values())[::-1]
        for group in alike.values()
        for node, record in group
    }


def _weights(tree: SliceTree) -> dict[tuple[str, str], Hashable]:
    """Return what tells the values of each parameter, by path and key."""
    nodes = tree.nodes_at(tree.forward_calls.values())
    found = ((node.path, one) for node in nodes for one in node.records(Role.PARAMETER))
    return {(path, one.key): key for path, one in found if (key := _numbers(one)) is not None}


def _numbers(record: TensorRecord) -> Hashable | None:
    """Return what tells the numbers of a weight; nothing of a constant: two that begin as zeros are two."""
    return None if elements_key(record) is None else value_key(record)
