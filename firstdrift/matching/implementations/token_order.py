"""Whose tokens lie sequence by sequence, and whose lie place by place: [b, s, h] against [s, b, h].

golden   [2, 9, 64]    flat [18, 64]     sequence by sequence
target   [9, 2, 64]    flat [18, 64]     place by place: so do flat rows, and no shape says so

One dump is seen as the other is laid out, before its tensors are paired. Where batch and length are one
number, or one of them is 1, shapes tell nothing, and nothing is done.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.views import SHAPED, SWAPPED
from firstdrift.matching.implementations.thresholds import TOKEN_DIMENSIONS
from firstdrift.matching.implementations.views import floating, with_steps
from firstdrift.matching.plan import Joining, TensorPair, UnmatchedTensor
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import Place, SliceTree, tensors_of
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord, ViewStep, is_floating
from firstdrift.wording.message import Message

_TURNED = Message.of("matching.transform.by_sequence")


class Batch(Struct, frozen=True):
    """How many sequences the golden run has, and how long they are; the target has [length, sequences].

    Attributes:
        turns_ids: whether this holds of token ids as well: not if the golden run has these as the target has.
    """

    sequences: int
    length: int
    turns_ids: bool = True


def turned_batch(golden: SliceTree, target: SliceTree, matched: Iterable[Pair]) -> Batch | None:
    """Return the batch if most outputs whose shapes tell it lie the other way round; None if they do not."""
    told: Counter[Batch | None] = Counter()
    for first, second in matched:
        given, other = _shape_given(golden.nodes[first]), _shape_given(target.nodes[second])
        if min(len(given), len(other)) > TOKEN_DIMENSIONS and prod(given) == prod(other):
            told[_turned(given, other)] += given[:2] != other[:2] or 1 not in given[:2]
    most = told.most_common(1)
    batch = most[0][0] if most else None
    return batch and replace(batch, turns_ids=not _has_ids(golden, (batch.length, batch.sequences)))


def _has_ids(tree: SliceTree, shape: tuple[int, int]) -> bool:
    """Tell whether modules are given whole numbers of a shape."""
    given = (record for node in tree.nodes for record in tensors_of(node, Role.INPUT))
    return any(record.shape == shape and not is_floating(record.dtype) for record in given)


def _shape_given(node: Node) -> tuple[int, ...]:
    return next((record.shape or () for record in floating(node.records(Role.OUTPUT))), ())


def _turned(first: tuple[int, ...], second: tuple[int, ...]) -> Batch | None:
    is_turned = first[:2] == second[1::-1] and first[0] != first[1] and 1 not in first[:2]
    return Batch(first[0], first[1]) if is_turned else None


def by_sequence(nodes: Sequence[Node], batch: Batch) -> tuple[Node, ...]:
    """See all tensors of the target sequence by sequence; those of parameters stay as they are."""
    return tuple(
        replace(node, tensors=tuple(_by_sequence(record, batch) for record in node.tensors)) for node in nodes
    )


def _by_sequence(record: TensorRecord, batch: Batch) -> TensorRecord:
    shape, turned = record.shape, (batch.length, batch.sequences)
    if not shape or not _may_be_turned(record, batch):
        return record
    if shape[:2] == turned:
        seen = with_steps(record, ViewStep(SWAPPED, (0, 1)))
        return replace(seen, shape=(*turned[::-1], *shape[2:]))
    if len(shape) == TOKEN_DIMENSIONS and shape[0] == prod(turned):
        steps = ViewStep(SHAPED, (*turned, *shape[1:])), ViewStep(SWAPPED, (0, 1)), ViewStep(SHAPED, shape)
        return with_steps(record, *steps)
    return record


def _may_be_turned(record: TensorRecord, batch: Batch) -> bool:
    """Tell whether a tensor has tokens, and is one whose order the other run has otherwise."""
    is_whole = record.is_tensor and not record.shards and record.role in (Role.INPUT, Role.OUTPUT)
    return is_whole and (batch.turns_ids or is_floating(record.dtype))


def say_order(pairs: Iterable[TensorPair], recorded: Mapping[Place, TensorRecord]) -> list[TensorPair]:
    """Say of the pairs whose target tensor is laid out anew that it is."""
    return [
        pair
        if _is_as_recorded(pair, recorded)
        else replace(pair, transform=(_TURNED, *pair.transform), joining=pair.joining or Joining.VIEW)
        for pair in pairs
    ]


def _is_as_recorded(pair: TensorPair, recorded: Mapping[Place, TensorRecord]) -> bool:
    record = recorded.get((pair.target_node, pair.target.label))
    return record is None or (pair.target.shape, pair.target.location) == (record.shape, record.location)


def as_recorded(
    tensors: Iterable[UnmatchedTensor], recorded: Mapping[Place, TensorRecord]
) -> list[UnmatchedTensor]:
    """Return what is left over as it was recorded."""
    return [replace(tensor, record=recorded.get(tensor.place, tensor.record)) for tensor in tensors]
