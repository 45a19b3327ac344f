"""How far apart two tensors are, told from the statistics that were recorded of them.

| golden mean or norm      | target            | counts as                                             |
| ------------------------ | ----------------- | ----------------------------------------------------- |
| finite                   | finite            | target - golden                                       |
| not recorded             | anything          | not known: no difference                              |
| non-finite, max and min  | anything          | not known: the reduction overflowed, the data did not |
| finite (a causal mask)   |                   | (likewise with the sides exchanged)                   |
| NaN, +inf, -inf          | the same          | equal                                                 |
| other non-finite         |                   | infinitely far                                        |
| a mask constant as min   | another           | equal; mean and norm are not known (`masks.py`)       |

Tools record statistics in the dtype of the tensor: rounding alone makes two of them differ by up to
one unit roundoff of the coarser dtype, relative to the golden norm. Where they were written as text of five
digits, what those digits leave open is no error.
"""

import math

from msgspec.structs import replace

from firstdrift.metrics.masks import agreeing_masks
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary, StatisticDifferences
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message


def measure_statistics(golden: TensorRecord | SideSummary, target: TensorRecord | SideSummary) -> Measurement:
    """Compare the recorded statistics of two tensors; a side with data comes as its summary."""
    golden_side, target_side = _side(golden), _side(target)
    if golden_side == target_side and _all_finite(golden_side):
        return Measurement(
            MeasurementKind.STATISTICS, golden=golden_side, target=target_side, differences=_EQUAL, equal=True
        )
    differences = difference_of_statistics(golden_side, target_side)
    found = (differences.maximum, differences.minimum, differences.mean, differences.norm)
    known = [difference for difference in found if difference is not None]
    if not known:
        return Measurement(MeasurementKind.INCOMPARABLE, Message.of("metrics.no_common_statistic"))
    return Measurement(
        MeasurementKind.STATISTICS,
        golden=golden_side,
        target=target_side,
        differences=differences,
        equal=not any(known),
    )


def difference_of_statistics(golden: SideSummary, target: SideSummary) -> StatisticDifferences:
    """Return the differences, target - golden, and what they say about the error of the tensor."""
    golden, target = agreeing_masks(_known(golden), _known(target))
    maximum = _difference(golden.maximum, target.maximum)
    minimum = _difference(golden.minimum, target.minimum)
    mean = _difference(golden.mean, target.mean)
    norm = _difference(golden.norm, target.norm)
    return StatisticDifferences(
        maximum=maximum,
        minimum=minimum,
        mean=mean,
        norm=norm,
        relative_maximum=_relative(maximum, golden.maximum),
        relative_minimum=_relative(minimum, golden.minimum),
        relative_mean=_relative(mean, golden.mean),
        relative_norm=_relative(norm, golden.norm),
        error_bound=_error_bound(golden, *_beyond_text(golden, target, (maximum, minimum, mean, norm))),
        nonfinite_differs=_nonfinite_differs(golden.maximum, target.maximum)
        or _nonfinite_differs(golden.minimum, target.minimum),
    )


_DIGITS = 5
_TEXT = 10.0 ** (1 - _DIGITS)
"""How far numbers of so many digits can be from what they were written from, both sides taken together."""

_Differences = tuple[float | None, float | None, float | None, float | None]


def _beyond_text(golden: SideSummary, target: SideSummary, differences: _Differences) -> _Differences:
    """Take from differences what the digits leave open that one of the sides was written with."""
    sides = [(side.maximum, side.minimum, side.mean, side.norm) for side in (golden, target)]
    if not any(map(_is_text, sides)):
        return differences
    left = [
        None
        if difference is None
        else math.copysign(
            max(abs(difference) - _TEXT * max(abs(one or 0.0), abs(other or 0.0)), 0.0), difference
        )
        for difference, one, other in zip(differences, *sides, strict=True)
    ]
    maximum, minimum, mean, norm = left
    return maximum, minimum, mean, norm


def _is_text(numbers: _Differences) -> bool:
    """Tell statistics that were written with five digits: all are that short, some need nearly as many."""
    digits = [_digits(number) for number in numbers if number and math.isfinite(number)]
    return max(digits, default=_DIGITS + 1) <= _DIGITS and sum(count >= _DIGITS - 1 for count in digits) > 1


def _digits(number: float) -> int:
    """Return how many digits a number needs; one more than five where they do not do."""
    shown = f"{number:.{_DIGITS - 1}e}"
    return (
        len(shown.partition("e")[0].replace(".", "").strip("-0")) if float(shown) == number else _DIGITS + 1
    )


_EQUAL = StatisticDifferences(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nonfinite_differs=False)


def _all_finite(side: SideSummary) -> bool:
    return (
        _is_finite(side.maximum)
        and _is_finite(side.minimum)
        and _is_finite(side.mean)
        and _is_finite(side.norm)
    )


def as_recorded(summary: SideSummary) -> SideSummary:
    """Return a summary of data with NaN and infinities in the statistics, as dumping tools record them."""
    if summary.nan:
        return _with_statistics(summary, math.nan, math.nan, math.nan, math.nan)
    if not (summary.positive_infinity or summary.negative_infinity):
        return summary
    highest = math.inf if summary.positive_infinity else summary.maximum
    lowest = -math.inf if summary.negative_infinity else summary.minimum
    both = summary.positive_infinity and summary.negative_infinity
    mean = math.nan if both else (math.inf if summary.positive_infinity else -math.inf)
    return _with_statistics(
        summary,
        -math.inf if highest is None else highest,
        math.inf if lowest is None else lowest,
        mean,
        math.inf,
    )


def _with_statistics(
    summary: SideSummary, maximum: float, minimum: float, mean: float, norm: float
) -> SideSummary:
    return replace(summary, maximum=maximum, minimum=minimum, mean=mean, norm=norm)


def _side(of: TensorRecord | SideSummary) -> SideSummary:
    if isinstance(of, SideSummary):
        return as_recorded(of)
    size = None if of.shape is None else math.prod(of.shape)
    if of.statistics is None:
        return SideSummary(size, None, None, None, None)
    recorded = of.statistics
    return SideSummary(size, recorded.maximum, recorded.minimum, recorded.mean, recorded.norm)


def _known(side: SideSummary) -> SideSummary:
    """Forget a mean or norm that overflowed while maximum and minimum are finite."""
    if not (_is_finite(side.maximum) and _is_finite(side.minimum)):
        return side
    if _is_finite(side.mean) and _is_finite(side.norm):
        return side
    return replace(
        side,
        mean=side.mean if _is_finite(side.mean) else None,
        norm=side.norm if _is_finite(side.norm) else None,
    )


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _difference(golden: float | None, target: float | None) -> float | None:
    if golden is None or target is None:
        return None
    if golden == target or (math.isnan(golden) and math.isnan(target)):
        return 0.0
    if math.isnan(golden) or math.isnan(target):
        return math.inf
    return target - golden


def _relative(difference: float | None, golden: float | None) -> float | None:
    if difference is None or golden is None:
        return None
    if difference == 0.0:
        return 0.0
    return abs(difference / golden) if golden and math.isfinite(golden) else math.inf


def _nonfinite_differs(golden: float | None, target: float | None) -> bool:
    if golden is None or target is None or (math.isfinite(golden) and math.isfinite(target)):
        return False
    return _difference(golden, target) != 0.0


def _error_bound(
    golden: SideSummary, maximum: float | None, minimum: float | None, mean: float | None, norm: float | None
) -> float | None:
    # |d| is at least the difference of the norms, sqrt(size) times that of the means (Cauchy-Schwarz),
    # and any single element of d, of which the differences of the extrema are lower bounds.
    bounds = [abs(each) for each in (maximum, minimum, norm) if each is not None]
    if golden.norm is None or norm is None:
        bounds += [abs(mean)] if mean is not None else []
        scale = max(
            (abs(each) for each in (golden.maximum, golden.minimum) if each is not None), default=None
        )
    else:
        bounds += [abs(mean) * math.sqrt(golden.size)] if mean is not None and golden.size else []
        scale = abs(golden.norm)
    finite = [bound for bound in bounds if math.isfinite(bound)]
    if not finite:
        return None
    largest = max(finite)
    if largest == 0.0:
        return 0.0
    if scale is None or not math.isfinite(scale):
        return None
    return largest / scale if scale else math.inf
