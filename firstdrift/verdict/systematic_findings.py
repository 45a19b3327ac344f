"""What is said of one slice that differs throughout, and which origins that leaves.

Weights and products that differ throughout were taken for the rounding of the run, and its rows judged by it.
Dropout has no level: numbers after the first are others altogether. What needs no numbers is left, and one
operator of which all values are known: of equal inputs it makes equal outputs, whatever was drawn elsewhere.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from firstdrift.groups import known
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import UNIT_ROUNDOFF, Role
from firstdrift.operators.kinds import ErrorModel
from firstdrift.operators.properties import is_dropout
from firstdrift.verdict.classify import Classification
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import NodeClass, SystematicDifference
from firstdrift.verdict.operator_bounds import model_of
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.systematic import DROPOUT, PRODUCTS, Dropout, SystematicRule, drops, in_dropouts
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

_BY_ITSELF: Final = frozenset({NodeClass.WEIGHTS_DIFFER, NodeClass.NON_FINITE, NodeClass.STRUCTURE_DIFFERS})
"""Classes of origins that are known without the size of an error."""


def systematic_differences(evidence: Evidence) -> tuple[SystematicDifference, ...]:
    """Say what a slice shows throughout."""
    return tuple(
        SystematicDifference(evidence.plan.target.coordinates, rule.name, said, is_fault=rule.is_fault)
        for rule, said in _found(evidence)
    )


def _found(evidence: Evidence) -> Iterator[tuple[SystematicRule, Message]]:
    weights = evidence.systematic_weights
    if weights is not None:
        yield weights.rule, weights.said
    elif evidence.coarse_products > evidence.stored:
        is_bfloat16 = evidence.coarse_products >= UNIT_ROUNDOFF["bfloat16"]
        yield PRODUCTS, Message.of("systematic.products", format="bfloat16" if is_bfloat16 else "TF32, HF32")
    said = in_dropouts(dropouts_of(evidence))
    if said is not None:
        yield DROPOUT, said


def dropouts_of(evidence: Evidence) -> list[Dropout]:
    """List the dropouts of which both sides were recorded, in the order of execution."""
    rows = (row for row in evidence.in_order if is_dropout(row.type_name))
    return known(_dropout(evidence, row) for row in rows)


def _dropout(evidence: Evidence, row: TreeRow) -> Dropout | None:
    error = evidence.errors[row.index]
    given, gave = (list(_tensors(evidence, error, role)) for role in (Role.INPUT, Role.OUTPUT))
    if row.match is None or row.direction is Direction.BACKWARD or len(given) != 1 or not gave:
        return None
    before, after = evidence.measurements[given[0]], evidence.measurements[gave[0]]
    golden, target = drops(before.golden, after.golden), drops(before.target, after.target)
    if golden is None or target is None:
        return None
    least = evidence.limits.floor * (error.roundoff or evidence.limits.roundoff_float32)
    drew_otherwise = (error.input or 0.0) <= least < (error.output or 0.0)
    return Dropout(row.index, golden, target, drew_otherwise)


def _tensors(evidence: Evidence, error: RowErrors, role: Role) -> Iterator[int]:
    return (at for at in evidence.pairs_of(error, role) if evidence.plan.pairs[at].target.is_tensor)


def beside(
    evidence: Evidence, classification: Classification, origins: Sequence[TreeRow]
) -> Sequence[TreeRow]:
    """Return the origins that a dropout on one side, or of other numbers, does not explain."""
    dropouts = dropouts_of(evidence)
    if in_dropouts(dropouts) is None:
        return origins
    dropping = [one.row for one in dropouts if one.golden_drops or one.target_drops]
    first = min(evidence.places[row] for row in dropping)
    return [
        row
        for row in origins
        if row.index not in dropping
        and (
            evidence.places[row.index] < first
            or classification.rows[row.index].node_class in _BY_ITSELF
            or _is_given_equals(evidence, classification, row)
        )
    ]


def _is_given_equals(evidence: Evidence, classification: Classification, row: TreeRow) -> bool:
    """Tell whether a row is one operator that draws no numbers, and was given values that agree.

    A module may run a dropout that was not recorded, and a backward operator has what its forward kept.
    """
    error = evidence.errors[row.index]
    if row.direction is Direction.BACKWARD or row.kind is not NodeKind.API or error.input is None:
        return False
    kinds = {evidence.measurements[at].kind for at in error.pairs}
    is_known = kinds <= {MeasurementKind.DATA, MeasurementKind.SCALAR}
    least = evidence.limits.floor * classification.roundoff
    return is_known and error.input <= least and model_of(evidence, row) is not ErrorModel.NONE
