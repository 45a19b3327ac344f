"""Gradients of parameters that one side alone has, although both ran the backward pass of the module.

A frozen weight has none. Where a dump names modules otherwise, or lays them out over ranks, nothing is said.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from firstdrift.model.node import Direction
from firstdrift.model.tensor import Role
from firstdrift.operators.properties import last_part, parameter_positions
from firstdrift.verdict.tree import TreeRow, holds_gradients

if TYPE_CHECKING:
    from firstdrift.verdict.evidence import Evidence


class OneSidedGradient(NamedTuple):
    """A gradient that one side has: which side, and which tensor; "" for all of a module."""

    side: str
    tensor: str


def one_sided_gradients(evidence: "Evidence") -> Mapping[int, OneSidedGradient]:
    """Return the gradients that one side alone has, by the index of their row."""
    coordinates = (evidence.plan.golden.coordinates, evidence.plan.target.coordinates)
    if any(one.merged for one in coordinates):
        return {}
    return dict(_of_matched_rows(evidence)) | dict(_of_unmatched_rows(evidence))


def _of_matched_rows(evidence: "Evidence") -> Iterator[tuple[int, OneSidedGradient]]:
    plan = evidence.plan
    for side, left in (("golden", plan.unmatched_golden_tensors), ("target", plan.unmatched_target_tensors)):
        for tensor in left:
            row = evidence.row_of_match.get(tensor.match)
            if row is None or not (_is_one_to_one(row) and tensor.record.is_tensor):
                continue
            made_here = tensor.record.role is Role.OUTPUT and row.direction is Direction.BACKWARD
            is_of_operator = made_here and tensor.record.key in parameter_positions(last_part(row.type_name))
            if tensor.record.role is Role.GRADIENT or is_of_operator:
                yield row.index, OneSidedGradient(side, tensor.record.label)


def _of_unmatched_rows(evidence: "Evidence") -> Iterator[tuple[int, OneSidedGradient]]:
    alone = [row for row in evidence.rows if row.match is None and holds_gradients(row)]
    if not alone or not any(row.match is not None and holds_gradients(row) for row in evidence.rows):
        return
    sides = {"golden" if row.golden else "target" for row in alone}
    backward = {
        row.path
        for row in evidence.rows
        if row.match is not None
        and row.direction is Direction.BACKWARD
        and not holds_gradients(row)
        and _is_one_to_one(row)
    }
    for row in alone if len(sides) == 1 else ():
        if row.path in backward:
            yield row.index, OneSidedGradient("golden" if row.golden else "target", "")


def _is_one_to_one(row: TreeRow) -> bool:
    return len(row.golden) == len(row.target) == 1
