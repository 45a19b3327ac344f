"""The numbers of a pair: what was measured, or why nothing could be.

| pair                                    | kind         | numbers                                   |
| --------------------------------------- | ------------ | ----------------------------------------- |
| both data saved                         | data         | `sides`, `errors`, for logits `logits`    |
| both with statistics (or one with data) | statistics   | `sides`, `differences`                    |
| both with digests only                  | digest       | `equal`                                   |
| both Python scalars                     | scalar       | `equal`                                   |
| anything else                           | incomparable | `reason`                                  |
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import fields_of
from firstdrift.wording.message import Message

IN_OTHER_ORDER: Final = Message.of("metrics.in_other_order")

FITS_NOT: Final = frozenset(
    {
        "metrics.not_rotated",
        "metrics.parts_do_not_fit",
        "metrics.may_be_addend",
        "metrics.addend",
        IN_OTHER_ORDER.id,
    }
)
"""Why values that were read are not compared: what was read is no fault of the dump."""


class MeasurementKind(StrEnum):
    """What the numbers of a pair were computed from."""

    DATA = "data"
    STATISTICS = "statistics"
    DIGEST = "digest"
    SCALAR = "scalar"
    INCOMPARABLE = "incomparable"


DATA, STATISTICS, DIGEST, SCALAR, INCOMPARABLE = MeasurementKind
"""By themselves, for what is asked of every pair: Python 3.11 looks up slowly what an enum holds."""


class SideSummary(Struct, frozen=True, gc=False):
    """Statistics of one tensor over its finite elements (None: not known).

    With data, `maximum` to `norm` (L2) are over finite elements and the counts are exact. From recorded
    statistics, the four are as the dumping tool wrote them (NaN and infinities included) and the
    counts are None.
    """

    size: int | None
    maximum: float | None
    minimum: float | None
    mean: float | None
    norm: float | None
    nan: int | None = None
    positive_infinity: int | None = None
    negative_infinity: int | None = None
    zeros: int | None = None

    @property
    def known_norm(self) -> float | None:
        """The norm, where the tool recorded it, and it has neither overflown nor underflown."""
        is_known = self.norm is not None and math.isfinite(self.norm) and not self.has_underflown
        return self.norm if is_known else None

    @property
    def has_nan(self) -> bool:
        """True if NaN is known to be among the elements."""
        return bool(self.nan) or any(map(math.isnan, self._ends))

    @property
    def has_infinity(self) -> bool:
        """True if an infinity is known to be among the elements."""
        counted = self.positive_infinity or self.negative_infinity
        return bool(counted) or any(map(math.isinf, self._ends))

    @property
    def _ends(self) -> tuple[float, ...]:
        return tuple(end for end in (self.maximum, self.minimum) if end is not None)

    @property
    def largest_norm(self) -> float:
        """The norm if all elements were as large as the largest; 0 where that is not known."""
        if self.maximum is None or self.minimum is None or not self.size:
            return 0.0
        return max(abs(self.maximum), abs(self.minimum)) * math.sqrt(self.size)

    @property
    def has_underflown(self) -> bool:
        """Whether the norm is zero though elements are not: the squares of small numbers are."""
        return self.norm == 0.0 and bool(self.maximum or self.minimum)


class PairErrors(Struct, frozen=True, gc=False):
    """How far apart two tensors of equal size are; d = target - golden over pairs of finite elements.

    Formulas, ranges and edge cases of each field: `firstdrift.metrics.elementwise.measure`.

    Attributes:
        equal: number of pairs that are equal (NaN equals NaN, +inf equals +inf at the same place).
        mismatched_nonfinite: pairs of which one is not finite and the other is not equal to it.
        sum_squared_golden: sum of squares of the golden elements of finite pairs; likewise target.
        cosine_similarity: 1 - cosine_distance; None if exactly one side is all zero.
        cosine_distance: formed from the differences, so that 1e-17 is 1e-17 and not 0.
        relative_l2: |d| / |golden|; 0 if both are zero, infinite if only golden is.
        worst_row_relative_l2: the largest |d_r| / max(|golden_r|, |golden| / sqrt(rows)) over rows
            along the last dimension; equal to relative_l2 for one row.
        worst_row: index of that row in the tensor viewed as (rows, last dimension); None if empty.
        max_absolute_at: flat index of the largest |d|; None if empty. Likewise the two values there.
        max_relative_error: largest |d / golden| over elements with golden != 0; None if there is none.
        share_within_1e3: share of pairs with |d| < 0.001 |golden| (or d = 0); likewise 5e3.
        sqnr: signal to noise, 20 log10(|golden| / |d|), in dB; infinite if d = 0.
        histogram: counts of |d| / max|golden| in decades: zero, below 1e-12, [1e-12, 1e-11), ...,
            [1e-1, 1), 1 and above (15 counts).
    """

    size: int
    equal: int
    mismatched_nonfinite: int
    sum_squared_difference: float
    sum_difference: float
    sum_absolute_difference: float
    sum_squared_golden: float
    sum_squared_target: float
    cosine_similarity: float | None
    cosine_distance: float | None
    relative_l2: float
    worst_row_relative_l2: float
    worst_row: int | None
    max_absolute_error: float
    max_absolute_at: int | None
    max_absolute_golden: float | None
    max_absolute_target: float | None
    mean_absolute_error: float
    max_relative_error: float | None
    mean_relative_error: float | None
    share_within_1e3: float
    share_within_5e3: float
    sqnr: float
    histogram: tuple[int, ...]

    @property
    def share_equal(self) -> float:
        """Share of pairs that are equal; 1 for empty tensors."""
        return self.equal / self.size if self.size else 1.0


class StatisticDifferences(Struct, frozen=True, gc=False):
    """Differences of recorded statistics, target - golden; None where a side lacks the statistic.

    Attributes:
        maximum: difference of the maxima; likewise minimum, mean, norm.
        relative_maximum: |difference| / |golden|; 0 if both are equal, infinite if only golden is 0.
        error_bound: a lower bound of the relative L2 error, so far as the statistics tell:
            max(|d norm|, sqrt(size) |d mean|, |d max|, |d min|) / |golden norm|, or where there is no
            norm max(|d max|, |d min|, |d mean|) / max(|golden max|, |golden min|), of which those that
            are finite; 0 if all that is known is equal. None if nothing finite is known of both sides.
        nonfinite_differs: True if the maximum or the minimum is finite on one side only, or not finite
            and not the same; a mean or norm may overflow although the data are finite.
    """

    maximum: float | None
    minimum: float | None
    mean: float | None
    norm: float | None
    relative_maximum: float | None
    relative_minimum: float | None
    relative_mean: float | None
    relative_norm: float | None
    error_bound: float | None
    nonfinite_differs: bool


class LogitsPosition(Struct, frozen=True):
    """Two distributions over the vocabulary at one position.

    Attributes:
        kl_divergence: KL(softmax golden || softmax target) in nats, in float64.
        golden_top: index of the largest golden logit; likewise target_top.
        golden_margin: largest minus second largest golden logit; likewise target_margin.
        golden_top_probability: probability that the golden side gives to golden_top.
        target_probability_of_golden_top: probability that the target side gives to golden_top.
        overlap_5: share of the golden top 5 that are in the target top 5.
        local_error: largest |d| over the tokens in either top 10 but for the two top tokens, after
            removing their mean shift.
        tie_flip: the top differs, and both margins are at most twice the local error.
    """

    kl_divergence: float
    golden_top: int
    target_top: int
    golden_margin: float
    target_margin: float
    golden_top_probability: float
    target_probability_of_golden_top: float
    overlap_5: float
    local_error: float
    tie_flip: bool


class LogitsErrors(Struct, frozen=True):
    """Logits metrics of a tensor whose last dimension is the vocabulary.

    Attributes:
        kl_divergence: mean over positions.
        worst_kl_divergence: largest over positions.
        top1_agreement: share of positions with the same largest logit.
        last: the last position: the one the next token is chosen from.
    """

    kl_divergence: float
    worst_kl_divergence: float
    top1_agreement: float
    last: LogitsPosition
    positions: int


class IntegerErrors(Struct, frozen=True, gc=False):
    """How two integer or boolean tensors differ, as values, as sets and as order.

    Attributes:
        share_mismatched: share of places with different values; 0 for empty tensors.
        same_set: along the last dimension both hold the same values, in whatever order, in every row.
        first_mismatch: flat index of the first place that differs; None if there is none.
        golden_at_first: the golden value there; likewise target_at_first.
    """

    mismatched: int
    share_mismatched: float
    same_set: bool
    first_mismatch: int | None
    golden_at_first: int | None
    target_at_first: int | None


class BitComparison(Struct, frozen=True, gc=False):
    """Whether two tensors of one dtype hold the same bits, and where they first do not.

    Attributes:
        index: of the first element that differs, in the target's shape; None if none does.
        golden: the golden value there as text, of fractions with its bits; likewise target.
    """

    index: tuple[int, ...] | None = None
    golden: str = ""
    target: str = ""


class RowProfile(Struct, frozen=True):
    """How the error of a tensor is spread over its rows, along the last dimension.

    Attributes:
        rows: number of rows.
        errors: relative errors |d_r| / max(|golden_r|, |golden| / sqrt(rows)), descending: of the worst row,
            of those with 1, 2, 4, 8, ... worse ones, and of the best row.
    """

    rows: int
    errors: tuple[float, ...]

    @staticmethod
    def places(rows: int) -> list[int]:
        """Return how many rows are worse than those whose errors are kept."""
        return [0, *(2**power for power in range((rows - 2).bit_length() if rows > 1 else 0)), rows - 1]

    def without(self, left_out: int) -> float | None:
        """Return the error of the rest, that many of the worst rows left out; None if none is left."""
        known = zip(self.places(self.rows), self.errors, strict=True)
        return next((error for worse, error in known if worse >= left_out), None)


class RankError(Struct, frozen=True):
    """How far what one rank holds of a tensor is off.

    Attributes:
        error: relative L2 error of its part, or a lower bound of it; infinite where one side alone is not
            finite or nothing but equality is known; None if that cannot be told.
    """

    rank: int
    error: float | None = None


class CustomResult(Struct, frozen=True):
    """What an algorithm of the user's said of a pair.

    Attributes:
        name: of the algorithm.
        value: its number; None if there is none.
        remark: what it said beside it, or why there is none.
        failed: whether it raised an error, or returned no number.
    """

    name: str
    value: float | None = None
    remark: str = ""
    failed: bool = False


class Measurement(Struct, frozen=True, gc=False):
    """The numbers of one pair, or why there are none.

    Attributes:
        kind: what the numbers were computed from.
        reason: why the pair is incomparable; for the other kinds a remark; None if there is none.
        golden: summary of the golden side; None for digests, scalars and incomparables.
        target: summary of the target side.
        errors: element by element, with data.
        integers: for integer and boolean tensors, with data.
        logits: for logits, with data.
        differences: of statistics, where a side has no data.
        equal: whether the two are equal: every element as a value with data (NaN equals NaN, dtypes
            may differ), bitwise with digests, as values for scalars; for statistics, whether all that
            is known of both sides is equal, digests included; None for incomparables.
        custom: what the user's own algorithms said; None if none were run.
        by_part: of a tensor that was joined from parts, with data, the relative L2 error of each part;
            infinite where one side alone is not finite; None where all are equal, or it is not known.
        stored_roundoff: unit roundoff of the coarser 16-bit format that float32 values came from; 0 if
            from none, None without data or where all are equal.
        by_row: how the error is spread over rows, with data; None where all are about as bad.
        swapped: of scores that experts are chosen by, with data: for k = 1, 2, ... how many of the k largest
            of each row may be others on the target side, over all rows.
        bits: whether values of one dtype hold the same bits; None without data, or where dtypes differ.
    """

    kind: MeasurementKind
    reason: Message | None = None
    golden: SideSummary | None = None
    target: SideSummary | None = None
    errors: PairErrors | None = None
    integers: IntegerErrors | None = None
    logits: LogitsErrors | None = None
    differences: StatisticDifferences | None = None
    equal: bool | None = None
    by_rank: tuple[RankError, ...] | None = None
    custom: tuple[CustomResult, ...] | None = None
    stored_roundoff: float | None = None
    by_row: RowProfile | None = None
    swapped: tuple[int, ...] | None = None
    bits: BitComparison | None = None
    by_part: tuple[float, ...] | None = None

    def remarked(self, remark: Message | None) -> "Measurement":
        """Return the same with a remark, if it was measured element by element and has none yet."""
        return self if self.errors is None else replace(self, reason=self.reason or remark)

    @property
    def golden_norm(self) -> float:
        """Norm of the golden tensor: that of the target where a tool recorded none, or the most it may be."""
        return _norm_of(self.golden, self.target)

    @property
    def target_norm(self) -> float:
        """Norm of the target tensor: that of golden where a tool recorded none, or the most it may be."""
        return _norm_of(self.target, self.golden)

    def values(self) -> dict[str, float | int | None]:
        """Return the numbers by name, as pages, exports and JSON show them."""
        found: dict[str, float | int | None] = {}
        for part in (self.errors, self.integers, self.logits, self.differences):
            if part is not None:
                found |= fields_of(part, _SHOWN[type(part)])
        if self.equal is not None:
            found["equal"] = int(self.equal)
        return found | {result.name: result.value for result in self.custom or ()}


def _norm_of(side: SideSummary | None, other: SideSummary | None) -> float:
    for one in filter(None, (side, other)):
        if (norm := one.known_norm) is not None:
            return abs(norm)
    return side.largest_norm if side is not None else 0.0


def incomparable(reason: Message) -> Measurement:
    """Say why a pair has no numbers."""
    return Measurement(MeasurementKind.INCOMPARABLE, reason)


ERROR_METRICS = (
    "cosine_similarity",
    "relative_l2",
    "worst_row_relative_l2",
    "max_absolute_error",
    "mean_absolute_error",
    "max_relative_error",
    "mean_relative_error",
    "share_within_1e3",
    "share_within_5e3",
    "sqnr",
    "mismatched_nonfinite",
)
LOGITS_METRICS = ("kl_divergence", "worst_kl_divergence", "top1_agreement")
DIFFERENCE_METRICS = (
    "error_bound",
    "relative_maximum",
    "relative_minimum",
    "relative_mean",
    "relative_norm",
)
"""Fields of `PairErrors`, `LogitsErrors` and `StatisticDifferences` that are shown, in this order."""

RELATIVE_ERRORS: Final = frozenset(
    {
        "relative_l2",
        "worst_row_relative_l2",
        "max_relative_error",
        "mean_relative_error",
        *DIFFERENCE_METRICS,
    }
)
"""Those that are relative errors: people read them as percentages, programs as fractions."""

_SHOWN: Final[Mapping[type, tuple[str, ...]]] = {
    PairErrors: (*ERROR_METRICS, "size", "share_equal"),
    IntegerErrors: ("share_mismatched",),
    LogitsErrors: LOGITS_METRICS,
    StatisticDifferences: DIFFERENCE_METRICS,
}
