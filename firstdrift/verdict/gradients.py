"""How much of the error of a gradient its sum explains: what is left where it cancels out is rounding."""

import math

from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.tensor import Role
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.row_errors import RowErrors, is_gradient_of_parameter
from firstdrift.verdict.tree import TreeRow


def explained_gradient(evidence: Evidence, error: RowErrors, seen: float) -> float:
    """Return the error of a parameter's gradient that cancellation explains.

    A gradient is a sum over all tokens. Where it cancels out (the bias of a key projection has
    none at all) what is left is rounding, however large it is relative to itself.

    Args:
        evidence: of the slice.
        error: of the row.
        seen: the worst output error so far.
    """
    scale = evidence.limits.gradient_scale
    measured = [evidence.measurements[index] for index in error.pairs]
    sides = [(one.golden, one.target) for one in measured]
    norms = [golden.norm for golden, _ in sides if golden is not None and golden.norm is not None]
    smallest, largest = min(norms, default=0.0), max(evidence.gradient_norm, *norms, 0.0)
    if smallest:
        return seen * max(1.0, scale * largest / smallest)
    left = [target.norm or 0.0 for golden, target in sides if golden and target and not golden.norm]
    return math.inf if max(left, default=0.0) <= scale * largest else seen


def explained_by_cancellation(evidence: Evidence, row: TreeRow, error: RowErrors, roundoff: float) -> float:
    """Return the error of a parameter's gradient among the outputs of a backward operator.

    It is a sum of what the operator was given: rounding there weighs more, the more the sum cancels out.
    """
    plan, measurements = evidence.plan, evidence.measurements
    if error.output_pair is None or not is_gradient_of_parameter(plan.pairs[error.output_pair], row):
        return 0.0
    total = measurements[error.output_pair].golden
    if total is None:
        return 0.0
    given = [
        side
        for index in error.pairs
        if plan.pairs[index].target.role is Role.INPUT and (side := measurements[index].golden) is not None
    ]
    cancelled = max((_cancellation(side, total) for side in given), default=0.0)
    return max(error.input or 0.0, roundoff, evidence.limits.roundoff_float32) * cancelled


def _cancellation(given: SideSummary, total: SideSummary) -> float:
    """Return how many times larger what was added up is than the sum, both per element."""
    if not given.norm or total.norm is None or not given.size or not total.size:
        return 0.0
    return given.norm * math.sqrt(given.size / total.size) / total.norm if total.norm else math.inf
