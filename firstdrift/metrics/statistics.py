"""How far apart two tensors are, told from the statistics that were recorded of them.

| golden mean or norm      | target            | counts as                                             |
| ------------------------ | ----------------- | ----------------------------------------------------- |
| finite                   | finite            | target - golden                                       |
| not recorded             | anything          | not known: no difference                              |
| norm 0, elements are not | anything          | not known: the squares underflowed                    |
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
from collections.abc import Callable
from itertools import starmap
from operator import sub
from typing import TypeAlias, TypeGuard, cast

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.metrics.masks import ZERO_FOR_SOFTMAX, agreeing_masks
from firstdrift.metrics.measurement import (
    STATISTICS,
    Measurement,
    SideSummary,
    StatisticDifferences,
    incomparable,
)
from firstdrift.model.tensor import Statistics, TensorRecord
from firstdrift.wording.message import Message

_DIGITS = 5
_AS_TEXT = f"{{:.{_DIGITS - 1}e}}".format
_TEXT = 10.0 ** (1 - _DIGITS)
"""How far numbers of so many digits can be from what they were written from, both sides taken together."""

_RECORDED = 2.0**-20
"""How far a sum that was recorded in float32 can be from what it is."""

_EQUAL = StatisticDifferences(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nonfinite_differs=False)


_Four: TypeAlias = tuple[float | None, float | None, float | None, float | None]
"""Maximum, minimum, mean and norm of a tensor, or their differences."""

_Known: TypeAlias = tuple[float, float, float, float]
"""The same, all known."""


def measure_statistics(golden: TensorRecord | SideSummary, target: TensorRecord | SideSummary) -> Measurement:
    """Compare the recorded statistics of two tensors; a side with data comes as its summary."""
    golden_side, target_side = _side(golden), _side(target)
    if golden_side == target_side and all(map(_is_finite, _four(golden_side))):
        differences = _EQUAL
    else:
        differences = difference_of_statistics(golden_side, target_side)
    four = _four(differences)
    if four.count(None) == len(four):
        return incomparable(Message.of("metrics.no_common_statistic"))
    return Measurement(
        STATISTICS,
        golden=golden_side,
        target=target_side,
        differences=differences,
        equal=not any(four),
    )


def difference_of_statistics(golden: SideSummary, target: SideSummary) -> StatisticDifferences:
    """Return the differences, target - golden, and what they say about the error of the tensor."""
    if _is_plain(golden) and _is_plain(target) and (plain := _of_plain(golden, target)) is not None:
        return plain
    golden, target = agreeing_masks(_known(golden), _known(target))
    sides = _four(golden), _four(target)
    differences = _each(_difference, *sides)
    ends = zip(sides[0][:2], sides[1][:2], strict=True)
    return StatisticDifferences(
        *differences,
        *_each(_relative, differences, sides[0]),
        error_bound=_error_bound(_with_norm(golden, target), _beyond_text(*sides, differences)),
        nonfinite_differs=any(starmap(_nonfinite_differs, ends)),
    )


def _of_plain(golden: SideSummary, target: SideSummary) -> StatisticDifferences | None:
    """Return what `difference_of_statistics` does in the usual case, at a fraction of the time.

    None where a difference is too large for a float.
    """
    of_golden, of_target = cast("_Known", _four(golden)), cast("_Known", _four(target))
    maximum, minimum, mean, norm = map(sub, of_target, of_golden)
    apart = maximum + 0.0, minimum + 0.0, mean + 0.0, norm + 0.0  # of zeros, none is negative
    if not math.isfinite(sum(map(abs, apart))):
        return None
    relative = _each(_relative, apart, of_golden)
    beyond = cast("_Known", _beyond_text(of_golden, of_target, apart))
    of_means = beyond[2] * math.sqrt(golden.size) if golden.size else 0.0
    largest = max(abs(beyond[0]), abs(beyond[1]), abs(of_means), abs(beyond[3]))
    if not math.isfinite(largest):
        return None
    return StatisticDifferences(
        *apart, *relative, error_bound=largest / of_golden[3], nonfinite_differs=False
    )


def _is_plain(side: SideSummary) -> bool:
    """Tell whether all four are known and finite, none was lost, and none is of a mask: the usual case."""
    maximum, minimum, mean, norm = _four(side)
    if maximum is None or minimum is None or mean is None or norm is None:
        return False
    return norm > 0.0 and minimum > ZERO_FOR_SOFTMAX and math.isfinite(maximum + minimum + mean + norm)


def _beyond_text(golden: _Four, target: _Four, differences: _Four) -> _Four:
    """Take from differences what the digits leave open that one of the sides was written with."""
    if not (_is_text(golden) or _is_text(target)):
        return differences
    return _each(_beyond_digits, differences, golden, target)


def _beyond_digits(difference: float | None, golden: float | None, target: float | None) -> float | None:
    if difference is None:
        return None
    left_open = _TEXT * max(abs(golden or 0.0), abs(target or 0.0))
    return math.copysign(max(abs(difference) - left_open, 0.0), difference)


def _is_text(numbers: _Four) -> bool:
    """Tell statistics that were written with five digits: all are that short, some need nearly as many."""
    nearly_all = 0
    for number in numbers:
        if number and math.isfinite(number):
            text = _AS_TEXT(number)
            if float(text) != number:
                return False
            nearly_all += _digits(text) >= _DIGITS - 1
    return nearly_all > 1


def _digits(text: str) -> int:
    return len(text.partition("e")[0].replace(".", "").strip("-0"))


def as_recorded(summary: SideSummary) -> SideSummary:
    """Return a summary of data with NaN and infinities in the statistics, as dumping tools record them."""
    if summary.nan:
        return replace(summary, maximum=math.nan, minimum=math.nan, mean=math.nan, norm=math.nan)
    counts = {math.inf: summary.positive_infinity, -math.inf: summary.negative_infinity}
    infinities = list(filter(counts.get, counts))
    if not infinities:
        return summary
    ends = [*infinities, *known((summary.maximum, summary.minimum))]
    return replace(summary, maximum=max(ends), minimum=min(ends), mean=sum(infinities), norm=math.inf)


def _side(of: TensorRecord | SideSummary) -> SideSummary:
    if isinstance(of, SideSummary):
        return as_recorded(of)
    size = None if of.shape is None else math.prod(of.shape)
    return SideSummary(size, *_four(of.statistics or Statistics()))


def _known(side: SideSummary) -> SideSummary:
    """Forget a mean or norm that overflowed while both ends are finite, or a norm that underflowed."""
    mean, norm = _is_finite(side.mean), side.known_norm
    if (mean and norm is not None) or not (_is_finite(side.maximum) and _is_finite(side.minimum)):
        return side
    return replace(side, mean=side.mean if mean else None, norm=norm)


def is_whole(side: SideSummary) -> bool:
    """Tell whether a tensor holds whole numbers only, as far as its ends, its sum and its squares tell.

    Sums that are too large for float32 to tell say nothing.
    """
    ends, mean, norm = (side.maximum, side.minimum), side.mean, side.norm
    if mean is None or norm is None or not side.size:
        return False
    sums = (mean * side.size, norm * norm)
    return all(_is_finite(end) and end == round(end) for end in ends) and all(map(_may_be_whole, sums))


def _may_be_whole(total: float) -> bool:
    return math.isfinite(total) and abs(total - round(total)) <= _RECORDED * abs(total)


def _each(of: Callable[..., float | None], *fours: _Four) -> _Four:
    maximum, minimum, mean, norm = map(of, *fours)
    return maximum, minimum, mean, norm


def _four(of: SideSummary | Statistics | StatisticDifferences) -> _Four:
    return of.maximum, of.minimum, of.mean, of.norm


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _difference(golden: float | None, target: float | None) -> float | None:
    if golden is None or target is None:
        return None
    if golden == target:
        return 0.0
    difference = target - golden
    if math.isnan(difference):
        return 0.0 if math.isnan(golden) and math.isnan(target) else math.inf
    return difference


def _relative(difference: float | None, golden: float | None) -> float | None:
    if difference is None or golden is None:
        return None
    if difference == 0.0:
        return 0.0
    return abs(difference / golden) if golden and math.isfinite(golden) else math.inf


def _nonfinite_differs(golden: float | None, target: float | None) -> bool:
    if _is_finite(golden) and _is_finite(target):
        return False
    return _difference(golden, target) not in (None, 0.0)


def _with_norm(golden: SideSummary, target: SideSummary) -> SideSummary:
    """Take the norm of the other side where the tool recorded none: maximum and minimum bound no norm."""
    is_known = golden.norm is not None or target.norm is None
    return golden if is_known else replace(golden, norm=target.norm)


def _lower_bounds(golden: SideSummary, apart: _Four) -> tuple[_Four, float]:
    """Return what |d| is at least, and of what size of golden it is a part; NaN if none is known."""
    # |d| is at least the difference of the norms, sqrt(size) times that of the means (Cauchy-Schwarz),
    # and any single element of d, of which the differences of the extrema are lower bounds.
    maximum, minimum, mean, norm = apart
    if golden.norm is None:
        return apart, max(map(abs, known((golden.maximum, golden.minimum))), default=math.nan)
    of_means = None if mean is None or not golden.size else mean * math.sqrt(golden.size)
    return (maximum, minimum, of_means, norm), abs(golden.norm)


def _error_bound(golden: SideSummary, apart: _Four) -> float | None:
    bounds, scale = _lower_bounds(golden, apart)
    finite = [abs(bound) for bound in bounds if bound is not None and math.isfinite(bound)]
    largest = max(finite, default=None)
    if not largest:
        return largest
    if not math.isfinite(scale):
        return None
    return largest / scale if scale else math.inf


def statistic_that_differs(golden: Statistics, target: Statistics) -> str | None:
    """Name the first of maximum, minimum, mean and norm that differs by more than its digits leave open."""
    sides = _four(golden), _four(target)
    apart = _beyond_text(*sides, _each(_difference, *sides))
    return next((name for name, one in zip(_NAMES, apart, strict=True) if one), None)


_NAMES = ("maximum", "minimum", "mean", "norm")
