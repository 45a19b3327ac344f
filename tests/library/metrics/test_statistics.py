"""What the recorded statistics of two tensors say about their difference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import recorded, rounds

from firstdrift.metrics.elementwise.measure import measure_elements, summarise
from firstdrift.metrics.measurement import MeasurementKind, SideSummary
from firstdrift.metrics.statistics import as_recorded, difference_of_statistics, is_whole, measure_statistics
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

NAN, INF = math.nan, math.inf
MASK = -3.4028234663852886e38


def side(
    maximum: float | None,
    minimum: float | None,
    mean: float | None,
    norm: float | None,
    size: int | None = 100,
) -> SideSummary:
    return SideSummary(size, maximum, minimum, mean, norm)


def record(statistics: Statistics | None, shape: tuple[int, ...] | None = (4, 25)) -> TensorRecord:
    return TensorRecord(Role.OUTPUT, "0", "float32", shape, statistics=statistics)


def test_differences_are_target_minus_golden_and_relative_to_golden() -> None:
    found = difference_of_statistics(side(2.0, -2.0, 0.5, 10.0), side(3.0, -2.0, 0.4, 9.0))
    assert (found.maximum, found.minimum, found.norm) == (1.0, 0.0, -1.0)
    assert found.mean == pytest.approx(-0.1)
    assert (found.relative_maximum, found.relative_minimum) == (0.5, 0.0)
    assert found.relative_mean == pytest.approx(0.2)
    assert found.relative_norm == pytest.approx(0.1)
    assert not found.nonfinite_differs


@pytest.mark.parametrize(
    ("golden", "target", "bound"),
    [
        pytest.param(side(2.0, -2.0, 0.5, 10.0), side(2.0, -2.0, 0.5, 10.0), 0.0, id="equal"),
        pytest.param(side(2.0, -2.0, 0.5, 10.0), side(2.0, -2.0, 0.5, 9.0), 0.1, id="norm"),
        pytest.param(
            side(2.0, -2.0, 0.5, 10.0), side(2.0, -2.0, 0.8, 10.0), 0.3, id="mean-counts-sqrt-size-times"
        ),
        pytest.param(side(2.0, -2.0, 0.5, 10.0), side(7.0, -2.0, 0.5, 10.0), 0.5, id="one-element"),
        pytest.param(side(2.0, -4.0, None, None), side(2.0, -3.0, None, None), 0.25, id="no-norm"),
        pytest.param(side(2.0, -2.0, 0.5, None), side(2.0, -2.0, 0.7, None), 0.1, id="no-norm-but-a-mean"),
        pytest.param(side(2.0, -2.0, 0.5, 10.0), side(2.0, -2.0, 0.5, None), 0.0, id="norm-on-one-side"),
        pytest.param(
            side(2.0, -2.0, 0.5, 10.0, None), side(2.0, -2.0, 9.0, 9.0, None), 0.1, id="size-unknown"
        ),
        pytest.param(side(0.0, 0.0, 0.0, 0.0), side(1.0, 0.0, 0.01, 1.0), INF, id="golden-zero"),
        pytest.param(side(0.0, 0.0, 0.0, 0.0), side(0.0, 0.0, 0.0, 0.0), 0.0, id="both-zero"),
        pytest.param(
            side(-3.0, -3.0, -3.0, -3.0, 1),
            side(-3.3, -3.3, -3.3, -3.3, 1),
            0.1,
            id="scalar-with-signed-norm",
        ),
        pytest.param(side(None, None, None, None), side(1.0, 0.0, 0.5, 1.0), None, id="nothing-on-one-side"),
        pytest.param(side(NAN, NAN, NAN, NAN), side(NAN, NAN, NAN, NAN), 0.0, id="nan-on-both-sides"),
        pytest.param(side(NAN, NAN, NAN, NAN), side(1.0, 0.0, 0.5, 1.0), None, id="nan-on-one-side"),
    ],
)
def test_the_error_bound(golden: SideSummary, target: SideSummary, bound: float | None) -> None:
    found = difference_of_statistics(golden, target).error_bound
    assert found == (None if bound is None else pytest.approx(bound))


@pytest.mark.parametrize(
    ("golden", "target", "differs"),
    [
        pytest.param(side(NAN, NAN, NAN, NAN), side(NAN, NAN, NAN, NAN), False, id="nan-on-both"),
        pytest.param(side(1.0, 0.0, 0.5, 9.0), side(NAN, NAN, NAN, NAN), True, id="nan-on-one"),
        pytest.param(side(INF, 0.0, INF, INF), side(INF, 0.0, INF, INF), False, id="inf-on-both"),
        pytest.param(side(INF, 0.0, INF, INF), side(1.0, 0.0, 0.5, 9.0), True, id="inf-on-one"),
        pytest.param(side(1.0, -INF, -INF, INF), side(INF, 0.0, INF, INF), True, id="other-signs"),
        pytest.param(side(6e4, -6e4, 0.0, INF), side(6e4, -6e4, 0.0, 9e4), False, id="norm-overflowed"),
        pytest.param(side(6e4, -6e4, NAN, INF), side(6e4, -6e4, 0.0, 9e4), False, id="mean-overflowed"),
        pytest.param(side(None, None, None, None), side(NAN, NAN, NAN, NAN), False, id="not-known"),
    ],
)
def test_only_extrema_tell_that_the_data_are_not_finite(
    golden: SideSummary, target: SideSummary, differs: bool
) -> None:
    assert difference_of_statistics(golden, target).nonfinite_differs is differs


def test_an_overflowed_norm_is_not_known_and_no_difference() -> None:
    found = difference_of_statistics(side(6e4, -6e4, 0.0, INF), side(6e4, -6e4, 0.0, 9e4))
    assert (found.norm, found.relative_norm, found.error_bound) == (None, None, 0.0)


def test_a_norm_of_which_the_squares_underflowed_is_not_known() -> None:
    found = difference_of_statistics(side(2.0e-24, 0.0, 0.0, 0.0), side(2.2e-24, 0.0, 0.0, 0.0))
    assert found.norm is None
    assert found.error_bound == pytest.approx(0.1)


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=300), st.integers(0, 2**32 - 1))
def test_whole_numbers_are_told_by_their_statistics(numbers: list[int], seed: int) -> None:
    whole = np.array(numbers, np.float32)
    assert is_whole(summarise(whole))
    fractions = whole + np.random.default_rng(seed).uniform(0.1, 0.9, whole.size).astype(np.float32)
    assert not is_whole(summarise(fractions))


def test_healthy_causal_masks_do_not_differ() -> None:
    mask = side(0.0, MASK, -INF, INF)
    found = difference_of_statistics(mask, mask)
    assert (found.mean, found.norm, found.error_bound, found.nonfinite_differs) == (None, None, 0.0, False)


@pytest.mark.parametrize("lowest", [-65504.0, -65536.0, -3.3895313892515355e38, -INF])
def test_masks_of_different_dtypes_mean_the_same(lowest: float) -> None:
    found = difference_of_statistics(side(0.0, MASK, -INF, INF), side(0.0, lowest, -INF, INF))
    assert (found.minimum, found.error_bound, found.nonfinite_differs) == (0.0, 0.0, False)


def test_a_value_that_only_resembles_a_mask_is_a_value() -> None:
    found = difference_of_statistics(side(1.0, -60000.0, 0.0, None), side(1.0, -64000.0, 0.0, None))
    assert found.error_bound == pytest.approx(4000 / 60000)


def test_records_are_measured_by_what_the_tool_wrote() -> None:
    golden = record(Statistics(2.0, -2.0, 0.5, 10.0))
    found = measure_statistics(golden, record(Statistics(2.0, -2.0, 0.5, 11.0)))
    assert (found.kind, found.equal) == (MeasurementKind.STATISTICS, False)
    assert found.golden == side(2.0, -2.0, 0.5, 10.0)
    assert found.differences is not None
    assert found.differences.norm == 1.0
    assert measure_statistics(golden, golden).equal is True


def test_nothing_known_of_both_sides_is_incomparable() -> None:
    found = measure_statistics(record(Statistics(2.0)), record(Statistics(mean=1.0)))
    assert (found.kind, found.equal) == (MeasurementKind.INCOMPARABLE, None)
    assert found.reason == Message.of("metrics.no_common_statistic")


@pytest.mark.parametrize(
    ("values", "maximum", "minimum", "mean", "norm"),
    [
        pytest.param([1.0, 3.0], 3.0, 1.0, 2.0, math.sqrt(10), id="finite"),
        pytest.param([1.0, NAN], NAN, NAN, NAN, NAN, id="nan"),
        pytest.param([1.0, INF], INF, 1.0, INF, INF, id="inf"),
        pytest.param([1.0, -INF], 1.0, -INF, -INF, INF, id="minus-inf"),
        pytest.param([INF, -INF], INF, -INF, NAN, INF, id="both"),
        pytest.param([INF], INF, INF, INF, INF, id="only-inf"),
        pytest.param([-INF], -INF, -INF, -INF, INF, id="only-minus-inf"),
    ],
)
def test_data_are_summarised_as_a_dumping_tool_records_them(
    values: list[float], maximum: float, minimum: float, mean: float, norm: float
) -> None:
    found = as_recorded(summarise(np.array(values)))
    assert [found.maximum, found.minimum, found.mean, found.norm] == pytest.approx(
        [maximum, minimum, mean, norm], nan_ok=True
    )


@recorded("numbers", "{} pairs of recorded statistics, whose bound never exceeds the error")
@given(st.integers(0, 2**32), st.integers(1, 300), st.floats(1e-9, 10))
@settings(max_examples=rounds(50, 3000), deadline=None)
def test_the_bound_never_exceeds_the_error(seed: int, size: int, noise: float) -> None:
    random = np.random.default_rng(seed)
    golden = random.normal(size=size) + random.normal()
    target = golden + noise * random.normal(size=size) * (random.random(size) < random.random())
    left, right, errors = measure_elements(golden, target)
    bound = difference_of_statistics(left, right).error_bound
    assert bound is not None
    assert bound <= errors.relative_l2 * (1 + 1e-9) + 1e-14


NUMBER = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1.5, -2.25, 5e-324, 1.7e308, -1.7e308, 12345.0])
)
SIDES = st.builds(side, NUMBER, NUMBER, NUMBER, NUMBER.map(abs), st.sampled_from([None, 0, 1, 100]))


@given(SIDES, SIDES)
def test_the_usual_case_says_what_the_general_one_does(golden: SideSummary, target: SideSummary) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("firstdrift.metrics.statistics._of_plain", lambda *_: None)
        in_general = difference_of_statistics(golden, target)
    assert repr(difference_of_statistics(golden, target)) == repr(in_general)  # which tells 0.0 from -0.0


def rounded(summary: SideSummary) -> SideSummary:
    """Write statistics as text of five digits."""
    numbers = (summary.maximum, summary.minimum, summary.mean, summary.norm)
    return side(
        *(None if number is None else float(f"{number:.4e}") for number in numbers), size=summary.size
    )


@settings(max_examples=70)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(8, 4000),
    noise=st.sampled_from([0.0, 1e-2, 1.0]),
    both=st.booleans(),
)
def test_what_digits_of_text_leave_open_is_no_error(seed: int, size: int, noise: float, both: bool) -> None:
    made = np.random.default_rng(seed)
    golden = made.normal(size=size).astype(np.float32)
    target = golden + (noise * made.normal(size=size)).astype(np.float32)
    exact = summarise(golden)
    first = rounded(exact) if both else exact
    equal = difference_of_statistics(first, rounded(exact)).error_bound
    assert equal == 0.0
    other = summarise(target)
    known = difference_of_statistics(exact, other).error_bound
    left = difference_of_statistics(first, rounded(other)).error_bound
    assert known is not None
    assert left is not None
    assert left <= known * (1 + 1e-4)
    assert left >= known - 2e-2


def test_digits_that_a_tool_recorded_in_full_are_taken_at_their_word() -> None:
    golden = side(2.000012345, -1.5, 0.25, 10.5)
    assert difference_of_statistics(golden, side(2.000012346, -1.5, 0.25, 10.5)).error_bound != 0.0
