"""One number for how far apart a pair is, whatever it was measured from.

| measured from        | error                                                        |
| -------------------- | ------------------------------------------------------------ |
| data, floating       | relative L2 error, or that of the worst row if it is larger  |
| data, a gradient     | relative L2 error: its rows are sums that may cancel out     |
| data, whole numbers  | infinite if any place differs, 0 if none does                |
| statistics           | lower bound of the relative L2 error; whole numbers as above |
| digests, scalars     | 0 if equal, infinite if not                                  |

A value that is finite on one side only makes the error infinite. Fractions against whole numbers (a
mask of floats against one of booleans, a weight against its quantised form) are equal or say nothing.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import (
    DATA,
    DIGEST,
    SCALAR,
    STATISTICS,
    Measurement,
    PairErrors,
    StatisticDifferences,
)
from firstdrift.model.tensor import GRADIENT, ROUNDING, UNDERFLOW, is_floating
from firstdrift.verdict.fixed_thresholds import STATISTICS_ROUNDING
from firstdrift.verdict.movable_thresholds import DEFAULTS
from firstdrift.wording.message import Message
from firstdrift.wording.relative_error import percentage


class PairError(NamedTuple):
    """How far apart a pair is.

    Attributes:
        value: 0 (equal) to infinity; None if the two could not be compared.
        non_finite: one side has NaN or infinities where the other has not.
        discrete: whole numbers, booleans: there is no "nearly equal".
        roundoff: unit roundoff of the coarser of the two dtypes.
        underflow: the error that numbers too small for one of the dtypes may have, relative as `value` is.
    """

    value: float | None
    non_finite: bool
    discrete: bool
    roundoff: float
    underflow: float = 0.0


def pair_error(
    pair: TensorPair, measurement: Measurement, roundoff: Callable[..., float] = DEFAULTS.roundoff
) -> PairError:
    """Reduce a measurement to one number; `roundoff` gives the coarsest unit roundoff among dtypes."""
    if are_of_other_kinds(pair) and not measurement.equal:
        return PairError(None, non_finite=False, discrete=False, roundoff=roundoff())
    discrete = pair.target.is_tensor and not is_floating(pair.target.dtype)
    is_gradient = pair.role is GRADIENT
    value, non_finite = _value(measurement, discrete=discrete, whole=is_gradient)
    unit = roundoff(pair.golden.dtype, pair.target.dtype)
    return PairError(value, non_finite, discrete, unit, _underflow(pair, measurement))


def _underflow(pair: TensorPair, measurement: Measurement) -> float:
    lost, side = UNDERFLOW.get, measurement.golden
    spacing = max(lost(pair.golden.dtype, 0.0), lost(pair.target.dtype, 0.0))
    if not spacing or side is None or not side.size or not side.norm:
        return 0.0
    return spacing * math.sqrt(side.size) / abs(side.norm)


def are_of_other_kinds(pair: TensorPair) -> bool:
    """Tell whether one side holds fractions and the other whole numbers."""
    golden, target = pair.golden, pair.target
    if golden.dtype == target.dtype or not (golden.dtype and target.dtype):
        return False
    tensors = golden.is_tensor and target.is_tensor
    return tensors and is_floating(golden.dtype) is not is_floating(target.dtype)


def why_incomparable(pair: TensorPair, measured: Measurement) -> Message:
    """Say why a pair has no error."""
    if pair.incomparable is not None:
        return pair.incomparable
    if measured.reason is None and are_of_other_kinds(pair):
        return Message.of("pair.other_kinds", golden=pair.golden.dtype, target=pair.target.dtype)
    return measured.reason or Message.of("pair.nothing_recorded")


def size(error: float, relative_l2: float | None, *, is_bound: bool = False) -> Message:
    """Say how large a finite error is, and what it is of: "20 %", "at least 20 %".

    What is less than that of the whole tensor is that of some rows: tokens that went to other experts were
    left out.

    Args:
        error: the one number for how far apart a pair is.
        relative_l2: relative L2 error of the whole pair; None if that is not known.
        is_bound: the error is a lower bound, from statistics.
    """
    if is_bound:
        return Message.of("size.at_least", error=error)
    whole = relative_l2 if relative_l2 is not None and math.isfinite(relative_l2) else error
    if error < whole and percentage(error) != percentage(whole):
        return Message.of("size.other_rows", error=error)
    return Message.of("size.number", error=error)


def size_of(error: float, measured: Measurement) -> Message:
    """Say how large a finite error of a measured pair is, and what it is of."""
    if measured.kind in _EQUAL and not error:
        return Message.of(_EQUAL[measured.kind])
    relative_l2 = measured.errors.relative_l2 if measured.errors is not None else None
    return size(error, relative_l2, is_bound=measured.kind is STATISTICS)


_EQUAL = {
    STATISTICS: "size.equal_statistics",
    DIGEST: "size.equal_digests",
}


def error_of_numbers(measured: Measurement) -> float | None:
    """Return how far whole numbers are off, as people are shown it; None where nothing tells."""
    if measured.errors is not None:
        return measured.errors.relative_l2
    return None if measured.differences is None else measured.differences.error_bound


def _value(measurement: Measurement, *, discrete: bool, whole: bool) -> tuple[float | None, bool]:
    """Return the error of a measurement, None if there is none; and whether NaN or infinities make it."""
    if measurement.errors is not None and measurement.kind is DATA:
        return _value_of_data(measurement.errors, discrete=discrete, whole=whole)
    if measurement.differences is not None and measurement.kind is STATISTICS:
        return _value_of_statistics(measurement, measurement.differences, discrete=discrete)
    if measurement.kind is DIGEST or measurement.kind is SCALAR:
        return (0.0 if measurement.equal else math.inf), False
    return None, False


def _value_of_data(errors: PairErrors, *, discrete: bool, whole: bool) -> tuple[float, bool]:
    if errors.mismatched_nonfinite:
        return math.inf, True
    if discrete:
        return (0.0 if errors.equal == errors.size else math.inf), False
    return max(errors.relative_l2, 0.0 if whole else errors.worst_row_relative_l2), False


def _value_of_statistics(
    measurement: Measurement, differences: StatisticDifferences, *, discrete: bool
) -> tuple[float | None, bool]:
    bound = differences.error_bound
    if differences.nonfinite_differs:
        return math.inf, True
    if discrete and bound is not None:
        return (math.inf if bound > _rounding_of_statistics(measurement) else 0.0), False
    return bound, False


def _rounding_of_statistics(measurement: Measurement) -> float:
    """Return how far the statistics of equal whole numbers can be apart.

    Tools record them in float32; where one side has data, its statistics are exact.
    """
    counted = [side is not None and side.nan is not None for side in (measurement.golden, measurement.target)]
    return STATISTICS_ROUNDING.value * ROUNDING["float32"] if any(counted) else 0.0
