"""How much of an output error an operator owes to its inputs, when it magnifies honestly.

| operator                    | output error that its inputs explain                     |
| --------------------------- | --------------------------------------------------------- |
| softmax, exp, sin, cos, ... | largest absolute error of the input (they turn absolute into relative) |
| add, sub                    | sum of |d input| / |golden output| (cancellation)         |
| layer_norm, batch_norm, ... | e(input) x rms / standard deviation (the mean is removed) |
| any other                   | e(input)                                                  |

Each is the first-order error bound of the operation. The words of a name tell which: "Experts" is no exp.
"""

import math
from collections.abc import Sequence

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.model.tensor import Role
from firstdrift.operators.kinds import Magnification, Work
from firstdrift.operators.properties import magnification
from firstdrift.operators.recognise import work_of_label
from firstdrift.verdict.constants import MEAN_ROUNDING, SUM_ROUNDINGS
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow, last_name


def honest_error(
    row: TreeRow, error: RowErrors, plan: SlicePlan, measurements: Sequence[Measurement]
) -> float:
    """Return the output error that the input errors of a row explain; at least the worst of them."""
    plain = error.input or 0.0
    if plain == 0.0 or math.isinf(plain):
        return plain
    how = how_it_magnifies(row)
    if how is Magnification.NONE:
        return plain
    inputs = [
        measurements[index]
        for index in error.pairs
        if plan.pairs[index].target.role is Role.INPUT and measurements[index].golden is not None
    ]
    if how is Magnification.ABSOLUTE:
        return max(plain, max(map(_absolute, inputs), default=0.0))
    if how is Magnification.CANCELLING:
        outputs = [
            measurements[index].golden
            for index in error.pairs
            if plan.pairs[index].target.role is Role.OUTPUT
        ]
        return max(plain, _after_cancellation(inputs, outputs))
    return plain * max((_rms_to_deviation(measured.golden) for measured in inputs), default=1.0)


def how_it_magnifies(row: TreeRow) -> Magnification:
    """Say how a row magnifies errors honestly."""
    return magnification(row.type_name) if row.type_name else _how_by_name(last_name(row))


def _how_by_name(label: str) -> Magnification:
    """Say how a module may magnify whose class is not known: a norm of whatever kind may remove the mean."""
    return Magnification.CENTRING if work_of_label(label) is Work.NORM else magnification(label)


def is_sum(total: SideSummary, operands: Sequence[SideSummary], roundoff: float) -> bool:
    """Tell whether a tensor may be the sum of others: means add up, but for rounding.

    Rounding of independent elements moves a mean by roundoff x rms / sqrt(size); rounding of the means
    themselves by a little more.
    """
    means = [side.mean for side in (total, *operands)]
    norms = [side.norm for side in (total, *operands)]
    if not total.size or None in means or None in norms or {side.size for side in operands} != {total.size}:
        return False
    rms = max(norm for norm in norms if norm is not None) / math.sqrt(total.size)
    allowed = (SUM_ROUNDINGS.value * roundoff / math.sqrt(total.size) + MEAN_ROUNDING.value) * rms
    known = [mean for mean in means if mean is not None]
    return abs(known[0] - math.fsum(known[1:])) <= allowed


def _absolute(measured: Measurement) -> float:
    if measured.errors is not None:
        return measured.errors.max_absolute_error
    differences = measured.differences
    if differences is None:
        return 0.0
    return max(abs(differences.maximum or 0.0), abs(differences.minimum or 0.0))


def _after_cancellation(inputs: Sequence[Measurement], outputs: Sequence[SideSummary | None]) -> float:
    norm = max((side.norm or 0.0 for side in outputs if side is not None), default=0.0)
    if not norm or not math.isfinite(norm):
        return 0.0
    difference = sum(_difference_norm(measured) for measured in inputs)
    return difference / norm


def _difference_norm(measured: Measurement) -> float:
    if measured.errors is not None:
        return math.sqrt(measured.errors.sum_squared_difference)
    bound = measured.differences.error_bound if measured.differences is not None else None
    norm = measured.golden.norm if measured.golden is not None else None
    return abs(bound * norm) if bound and norm and math.isfinite(bound * norm) else 0.0


def _rms_to_deviation(side: SideSummary | None) -> float:
    if side is None or not side.size or side.norm is None or side.mean is None:
        return 1.0
    mean_square = side.norm * side.norm / side.size
    variance = mean_square - side.mean * side.mean
    if not (variance > 0.0 and math.isfinite(mean_square)):
        return 1.0
    return math.sqrt(mean_square / variance)
