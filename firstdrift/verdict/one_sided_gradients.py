"""Gradients of parameters that one side alone has, although both ran the backward pass of the module.

A frozen weight has none. Where a dump names modules otherwise, or lays them out over ranks, nothing is said,
nor of a match that a person has yet to confirm, nor of an operator of which one side recorded nothing, nor
where the other side has as many elements left over: operators by other names share no arguments by name. Nor
where gradients at one place have other sizes: of `linear`, the gradients of a matrix are those of its bias,
input and weight, and of more dimensions that of the product alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from firstdrift.matching.plan import SlicePlan, TensorPair, UnmatchedTensor
from firstdrift.model.node import Direction
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import last_part, parameter_positions
from firstdrift.verdict.tree import TreeRow, holds_gradients


class OneSidedGradient(NamedTuple):
    """A gradient that one side has: which side, and which tensor; "" for all of a module."""

    side: str
    tensor: str


def one_sided_gradients(plan: SlicePlan, rows: Sequence[TreeRow]) -> Mapping[int, OneSidedGradient]:
    """Return the gradients that one side alone has, by the index of their row."""
    if any(side.coordinates.merged for side in (plan.golden, plan.target)):
        return {}
    return dict(_of_matched_rows(plan, rows)) | dict(_of_unmatched_rows(rows))


def _of_matched_rows(plan: SlicePlan, rows: Sequence[TreeRow]) -> Iterator[tuple[int, OneSidedGradient]]:
    one_to_one = {row.match: row for row in rows if row.match is not None and _is_one_to_one(row)}
    compared = {pair.match for pair in plan.pairs} - {pair.match for pair in plan.pairs if _are_others(pair)}
    golden, target = plan.unmatched_golden_tensors, plan.unmatched_target_tensors
    for side, left, others in (("golden", golden, target), ("target", target, golden)):
        for tensor in _without_counterparts(left, others):
            row = one_to_one.get(tensor.match)
            if row is None or plan.matches[tensor.match].doubtful or not tensor.record.is_tensor:
                continue
            is_compared = tensor.match in compared
            if tensor.record.role is Role.GRADIENT or (is_compared and _is_of_weight(tensor.record, row)):
                yield row.index, OneSidedGradient(side, tensor.record.label)


def _are_others(pair: TensorPair) -> bool:
    """Tell whether two operators gave tensors of other sizes at one place."""
    return pair.golden.role is Role.OUTPUT and prod(pair.golden.shape or ()) != prod(pair.target.shape or ())


def _without_counterparts(
    left: Iterable[UnmatchedTensor], others: Iterable[UnmatchedTensor]
) -> Iterator[UnmatchedTensor]:
    """Yield what is left over of which the other side has nothing of one role and size left over."""
    counterparts = set(map(_place_and_size, others))
    return (tensor for tensor in left if _place_and_size(tensor) not in counterparts)


def _place_and_size(tensor: UnmatchedTensor) -> tuple[int, Role, int]:
    return tensor.match, tensor.record.role, prod(tensor.record.shape or ())


def _is_of_weight(record: TensorRecord, row: TreeRow) -> bool:
    """Tell whether a backward operator gave a tensor for the weight that its forward was given."""
    if record.role is not Role.OUTPUT or row.direction is not Direction.BACKWARD:
        return False
    return record.key in parameter_positions(last_part(row.type_name))


def _of_unmatched_rows(rows: Sequence[TreeRow]) -> Iterator[tuple[int, OneSidedGradient]]:
    gradients = list(filter(holds_gradients, rows))
    alone = [row for row in gradients if row.match is None]
    sides = {row.side for row in alone}
    if len(sides) != 1 or len(alone) == len(gradients):
        return
    # Of passes that one side recorded more of, the others have gradients on both sides.
    backward = {row.path for row in rows if _runs_backward(row)} - {
        row.path for row in gradients if row.match is not None
    }
    side = sides.pop()
    yield from ((row.index, OneSidedGradient(side, "")) for row in alone if row.path in backward)


def _runs_backward(row: TreeRow) -> bool:
    return row.direction is Direction.BACKWARD and not holds_gradients(row) and _is_one_to_one(row)


def _is_one_to_one(row: TreeRow) -> bool:
    return len(row.golden) == len(row.target) == 1
