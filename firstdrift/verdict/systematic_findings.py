"""What is said of one slice that differs throughout, and which origins that leaves.

Weights and products that differ throughout were taken for the rounding of the run, and its rows judged by it.
Dropout has no level: numbers after the first are others altogether. What needs no numbers is left, and one
operator of which all values are known: of equal inputs it makes equal outputs, whatever was drawn elsewhere.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import ROUNDING
from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.classify import Classification
from firstdrift.verdict.dropouts import dropouts_of, in_dropouts
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import NodeClass, SystematicDifference
from firstdrift.verdict.operator_bounds import model_of
from firstdrift.verdict.systematic import DROPOUT, PRODUCTS, SystematicRule
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
        is_bfloat16 = evidence.coarse_products >= ROUNDING["bfloat16"]
        yield PRODUCTS, Message.of("systematic.products", format="bfloat16" if is_bfloat16 else "TF32, HF32")
    said = in_dropouts(dropouts_of(evidence))
    if said is not None:
        yield DROPOUT, said


def beside(
    evidence: Evidence, classification: Classification, origins: Sequence[TreeRow]
) -> Sequence[TreeRow]:
    """Return the origins that a dropout on one side, or of other numbers, does not explain."""
    dropouts = dropouts_of(evidence)
    if in_dropouts(dropouts) is None:
        return origins
    dropping = [one.row for one in dropouts if one.golden_drops or one.target_drops]
    at_fault = {one.row for one in dropouts if one.fault is not None}
    first = min(evidence.places[row] for row in dropping)
    return [
        row
        for row in origins
        if row.index in at_fault
        or (
            row.index not in dropping
            and (
                evidence.places[row.index] < first
                or classification.rows[row.index].node_class in _BY_ITSELF
                or _is_given_equals(evidence, classification, row)
            )
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
