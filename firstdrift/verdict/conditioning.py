"""How much of an output error an operator owes to its inputs, when it magnifies honestly.

| operator                    | output error that its inputs explain                     |
| --------------------------- | --------------------------------------------------------- |
| softmax, exp, sin, cos, ... | largest absolute error of the input (they turn absolute into relative) |
| add, sub                    | sum of |d input| / |golden output| (cancellation)         |
| layer_norm, batch_norm, ... | e(input) x rms / standard deviation (the mean is removed) |
| any other                   | e(input)                                                  |

Each is the first-order error bound of the operation.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.tensors import Role
from firstdrift.verdict.row_errors import RowErrors
from firstdrift.verdict.tree import TreeRow

_ABSOLUTE_TO_RELATIVE = ("softmax", "exp", "sin", "cos", "cross_entropy", "logsumexp", "rotary")
_CANCELLING = (
    "add",
    "sub",
    "__add__",
    "__sub__",
    "__radd__",
    "__rsub__",
    "__iadd__",
    "__isub__",
    "add_",
    "sub_",
)
_ROUNDINGS = 8.0
_MEAN_ROUNDING = 1e-6
_CENTRING = ("layer_norm", "layernorm", "batch_norm", "batchnorm", "group_norm", "groupnorm", "instance_norm")


def honest_error(
    row: TreeRow, error: RowErrors, plan: SlicePlan, measurements: Sequence[Measurement]
) -> float:
    """Return the output error that the input errors of a row explain; at least the worst of them."""
    plain = error.input or 0.0
    if plain == 0.0 or math.isinf(plain):
        return plain
    magnifies = _how_it_magnifies(row.type_name)
    if magnifies is None:
        return plain
    inputs = [
        measurements[index]
        for index in error.pairs
        if plan.pairs[index].target.role is Role.INPUT and measurements[index].golden is not None
    ]
    if magnifies is _ABSOLUTE_TO_RELATIVE:
        return max(plain, *(_absolute(measured) for measured in inputs))
    if magnifies is _CANCELLING:
        outputs = [
            measurements[index].golden
            for index in error.pairs
            if plan.pairs[index].target.role is Role.OUTPUT
        ]
        return max(plain, _after_cancellation(inputs, outputs))
    return plain * max(1.0, *(_rms_to_deviation(measured.golden) for measured in inputs))


@lru_cache(maxsize=1 << 10)
def _how_it_magnifies(type_name: str) -> tuple[str, ...] | None:
    """Return the list of operators that one is of; None if it is of none."""
    operator = type_name.rpartition(".")[2].lower()
    if any(name in operator for name in _ABSOLUTE_TO_RELATIVE):
        return _ABSOLUTE_TO_RELATIVE
    if operator in _CANCELLING:
        return _CANCELLING
    return _CENTRING if any(name in operator for name in _CENTRING) else None


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
    allowed = (_ROUNDINGS * roundoff / math.sqrt(total.size) + _MEAN_ROUNDING) * rms
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
