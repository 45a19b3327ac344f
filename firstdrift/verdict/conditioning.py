"""One law for every operator: an output error is at most condition number x input error + own rounding.

| operator                     | condition number x input error                                     |
| ---------------------------- | ------------------------------------------------------------------ |
| softmax, exp, sin, cos, ...  | largest |d input|: they turn absolute into relative error          |
| a sum: add, sub, operands    | sum of |d terms| / |sum|                                           |
| gradient of a parameter      | e(terms) x |terms| / |sum|, both per element                       |
| a single dot product         | e(input) x |input| x |weight| / |output|                           |
| layer_norm, batch_norm, ...  | e(input) x rms / standard deviation: the mean is removed           |
| any other                    | e(input)                                                           |

Each is the first-order error bound of the operation, from what was recorded of it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from firstdrift.metrics.measurement import Measurement, SideSummary
from firstdrift.operators.kinds import Magnification, OpKind
from firstdrift.operators.properties import magnification
from firstdrift.operators.recognise import kind_of_label
from firstdrift.verdict.fixed_thresholds import MEAN_ROUNDING, MOST_CANCELLED, SUM_ROUNDINGS
from firstdrift.verdict.tree import TreeRow, last_name


class Term(NamedTuple):
    """What is added up: where it is, its error, its golden side, the index of its pair."""

    where: str
    error: float
    side: SideSummary
    pair: int


def how_it_magnifies(row: TreeRow) -> Magnification:
    """Say how a row magnifies errors; a norm of which no class is known may remove the mean."""
    if row.type_name:
        return magnification(row.type_name)
    label = last_name(row)
    return Magnification.CENTRING if kind_of_label(label) is OpKind.NORM else magnification(label)


def passed_on(
    how: Magnification, error: float, given: Sequence[Measurement], made: Sequence[SideSummary]
) -> float:
    """Return the output error that input errors explain; at least the worst of them.

    Args:
        how: the kind of operator.
        error: the worst error of its inputs.
        given: its inputs.
        made: its golden outputs.
    """
    bound = _BOUNDS.get(how)
    return error if bound is None else max(error, bound(error, given, made))


def _of_function(_: float, given: Sequence[Measurement], __: Sequence[SideSummary]) -> float:
    return max(map(_largest_difference, given), default=0.0)


def _of_addition(_: float, given: Sequence[Measurement], made: Sequence[SideSummary]) -> float:
    return error_of_sum(map(_difference_norm, given), _largest_norm(made))


def _of_norm(error: float, given: Sequence[Measurement], _: Sequence[SideSummary]) -> float:
    return error * max((_rms_to_deviation(one.golden) for one in given if one.golden), default=1.0)


_BOUNDS: Final[
    Mapping[Magnification, Callable[[float, Sequence[Measurement], Sequence[SideSummary]], float]]
] = {
    Magnification.ABSOLUTE: _of_function,
    Magnification.CANCELLING: _of_addition,
    Magnification.CENTRING: _of_norm,
}


def error_of_sum(differences: Iterable[float], norm: float | None) -> float:
    """Return the relative error of a sum, sum of |d terms| / |sum|; 0 if the sum is not known."""
    if norm is None or not math.isfinite(norm):
        return 0.0
    difference = sum(differences)
    return difference / norm if norm else math.inf if difference else 0.0


def error_of_terms(terms: Iterable[Term], total: SideSummary) -> float:
    """Return the relative error of a sum by the errors of its terms."""
    return error_of_sum((term.error * (term.side.norm or 0.0) for term in terms), total.norm)


def condition_of_sum(terms: SideSummary, total: SideSummary) -> float:
    """Return |terms| / |sum|, both per element, of one tensor that was added up along some dimensions."""
    if not terms.norm or total.norm is None or not terms.size or not total.size:
        return 0.0
    return terms.norm * math.sqrt(terms.size / total.size) / total.norm if total.norm else math.inf


def condition_of_product(factors: Sequence[SideSummary], made: Sequence[SideSummary]) -> float:
    """Return |input| x |weight| / |sum of products|; where unrecorded, what chance brings about.

    A single element beside them, such as a bias, is added and no factor.
    """
    norms = sorted(side.norm for side in factors if side.norm is not None and (side.size or 0) > 1)
    total = _largest_norm(made)
    return norms[-1] * norms[-2] / total if total and len(norms) > 1 else MOST_CANCELLED.value


def is_sum(total: SideSummary, terms: Sequence[SideSummary], roundoff: float) -> bool:
    """Tell whether a tensor may be the sum of others: means add up, but for rounding.

    Rounding of independent elements moves a mean by roundoff x rms / sqrt(size); rounding of the means
    themselves by a little more.
    """
    size, sides = total.size, (total, *terms)
    means = [side.mean for side in sides if side.mean is not None]
    norms = [side.norm for side in sides if side.norm is not None]
    if not size or {len(means), len(norms)} != {len(sides)} or {side.size for side in terms} != {size}:
        return False
    rms = max(norms) / math.sqrt(size)
    allowed = (SUM_ROUNDINGS.value * roundoff / math.sqrt(size) + MEAN_ROUNDING.value) * rms
    return abs(means[0] - math.fsum(means[1:])) <= allowed


def _largest_norm(sides: Iterable[SideSummary]) -> float | None:
    return max((side.norm for side in sides if side.norm is not None), default=None)


def _largest_difference(measured: Measurement) -> float:
    if measured.errors is not None:
        return measured.errors.max_absolute_error
    differences = measured.differences
    if differences is None:
        return 0.0
    return max(abs(differences.maximum or 0.0), abs(differences.minimum or 0.0))


def _difference_norm(measured: Measurement) -> float:
    if measured.errors is not None:
        return math.sqrt(measured.errors.sum_squared_difference)
    bound = measured.differences.error_bound if measured.differences is not None else None
    norm = measured.golden.norm if measured.golden is not None else None
    return abs(bound * norm) if bound and norm and math.isfinite(bound * norm) else 0.0


def _rms_to_deviation(side: SideSummary) -> float:
    if not side.size or side.norm is None or side.mean is None:
        return 1.0
    mean_square = side.norm * side.norm / side.size
    variance = mean_square - side.mean * side.mean
    return math.sqrt(mean_square / variance) if variance > 0.0 and math.isfinite(mean_square) else 1.0
