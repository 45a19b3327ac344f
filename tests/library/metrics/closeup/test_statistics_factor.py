"""A factor is known from norm, largest and smallest element, where all three tell the same."""

import pytest
from messages import gaps_of, ids_of

from firstdrift.metrics.closeup.hint import line_says
from firstdrift.metrics.closeup.statistics_factor import constant_of, factor_of, rounding_of, signs_of
from firstdrift.metrics.measurement import SideSummary
from firstdrift.wording.phrases import side_named

GOLDEN = SideSummary(100, maximum=3.0, minimum=-2.0, mean=0.1, norm=8.0)


def times(factor: float, *, norm: float = 1.0) -> SideSummary:
    ends = sorted((GOLDEN.maximum * factor, GOLDEN.minimum * factor))
    return SideSummary(100, ends[1], ends[0], GOLDEN.mean * factor, abs(factor) * GOLDEN.norm * norm)


@pytest.mark.parametrize("factor", [1.5, 0.999, 1e-3, -0.5])
def test_one_factor_of_all_three_is_said(factor: float) -> None:
    assert gaps_of(factor_of(GOLDEN, times(factor)), "hint.times")["factor"] == pytest.approx(factor)


def test_another_sign_is_said() -> None:
    assert "hint.flipped" in ids_of(factor_of(GOLDEN, times(-1.0)))


@pytest.mark.parametrize(
    ("golden", "target", "is_flipped"),
    [
        (SideSummary(100, 3.0, -3.0, 1e-9, 8.0), SideSummary(100, 3.01, -2.99, -1e-9, 8.0), False),
        (SideSummary(100, 3.0, -3.0, None, 8.0), SideSummary(100, 3.0, -3.0, None, 8.0), False),
        (SideSummary(100, 3.0, -3.0, 0.2, 8.0), SideSummary(100, 3.0, -3.0, -0.2, 8.0), True),
        (SideSummary(100, 3.0, -3.0, 0.2, 8.0), SideSummary(100, 3.0, -3.0, -0.1, 8.0), False),
        (SideSummary(100, 3.0, -2.0, 0.2, 8.0), SideSummary(100, 2.0, -3.0, 0.2, 8.0), False),
        (SideSummary(100, 3.0, -2.0, None, 8.0), SideSummary(100, 2.0, -3.0, None, 8.0), True),
    ],
    ids=[
        "even",
        "even, no mean",
        "even, its mean turned",
        "even, another mean",
        "its mean stayed",
        "its ends turned",
    ],
)
def test_another_sign_is_said_only_where_it_shows(
    golden: SideSummary, target: SideSummary, *, is_flipped: bool
) -> None:
    said = factor_of(golden, target)
    assert (said is not None) is is_flipped
    assert said is None or "hint.flipped" in ids_of(said)


@pytest.mark.parametrize(
    "target",
    [
        times(1.0),
        times(1.5, norm=1.1),
        SideSummary(100, 3.0, -1.0, 0.1, 7.0),
        SideSummary(100, None, None, None, 12.0),
        SideSummary(100, float("nan"), -3.0, None, 12.0),
    ],
)
def test_nothing_is_said_where_they_are_equal_or_do_not_agree(target: SideSummary) -> None:
    assert factor_of(GOLDEN, target) is None
    assert factor_of(SideSummary(100, 0.0, 0.0, 0.0, 0.0), target) is None


def test_without_norms_the_ends_tell_a_factor() -> None:
    golden = SideSummary(100, 3.0, -2.0, None, None)
    said = factor_of(golden, SideSummary(100, 4.5, -3.0, None, None))
    assert gaps_of(said, "hint.times")["factor"] == 1.5
    assert factor_of(golden, SideSummary(100, 4.5, -2.0, None, None)) is None


@pytest.mark.parametrize("factor", [1.0001, 0.999509, 1.00000012])
def test_a_factor_near_one_is_not_written_as_one(factor: float) -> None:
    told = gaps_of(line_says(factor), "hint.times")["factor"]
    assert told != 1.0
    assert abs(told - factor) < 0.1 * abs(factor - 1.0)


def test_a_weight_that_was_never_loaded_is_constant() -> None:
    ones, zeros = SideSummary(100, 1.0, 1.0, 1.0, 10.0), SideSummary(100, 0.0, 0.0, 0.0, 0.0)
    assert gaps_of(constant_of(GOLDEN, ones), "hint.constant")["value"] == 1.0
    assert gaps_of(constant_of(ones, GOLDEN), "hint.constant")["side"] == side_named("golden")
    assert "hint.zero" in ids_of(constant_of(GOLDEN, zeros))
    assert constant_of(ones, zeros) is None
    assert constant_of(GOLDEN, SideSummary(1, 2.0, 2.0, 2.0, 2.0)) is None


def test_a_factor_is_known_through_coarse_rounding_that_does_not_hide_it() -> None:
    rounded = SideSummary(100, 3.0 * 1.104, -2.0 * 1.096, 0.11, 8.0 * 1.1)
    assert factor_of(GOLDEN, rounded) is None
    assert gaps_of(factor_of(GOLDEN, rounded, 2.0**-10), "hint.times")["factor"] == pytest.approx(1.1)
    assert factor_of(GOLDEN, rounded, 2.0**-4) is None


@pytest.mark.parametrize(
    ("target", "is_said"),
    [
        (SideSummary(100, 3.0, -2.0, 0.05, 8.0), True),
        (SideSummary(100, 2.9, -3.0, 0.05, 8.0), True),
        (SideSummary(100, 3.0, -2.0, 0.1, 8.0), False),
        (SideSummary(100, 3.0, -2.0, 0.05, 8.01), False),
        (SideSummary(100, 3.1, -2.0, 0.05, 8.0), False),
        (SideSummary(100, 3.0, -2.0, None, 8.0), False),
    ],
    ids=["mean", "mean and ends", "equal", "another norm", "a larger element", "no mean"],
)
def test_opposite_signs_of_some_keep_the_norm_and_the_largest_size(
    target: SideSummary, *, is_said: bool
) -> None:
    assert (signs_of(GOLDEN, target, 2.0**-24) is not None) is is_said
    assert signs_of(GOLDEN, target, 2.0**-10) is None  # whose norms are equal in eight bits only


@pytest.mark.parametrize(
    ("norm", "end", "format_"),
    [
        (1.0004, 3.0, "float16"),
        (1.0009, 3.0, "bfloat16"),
        (1.0, 3.004, "float16"),
        (1.01, 3.0, None),
        (1.0, 3.1, None),
    ],
)
def test_the_finest_format_whose_rounding_is_enough_is_named(
    norm: float, end: float, format_: str | None
) -> None:
    said = rounding_of(GOLDEN, SideSummary(100, end, -2.0, 0.1, 8.0 * norm), 2.0**-24)
    assert (said and said.arguments) == (format_ and {"format": format_})


def test_no_format_is_named_that_is_no_coarser_than_the_tensors() -> None:
    assert rounding_of(GOLDEN, SideSummary(100, 3.0, -2.0, 0.1, 8.0004), 2.0**-10) is None


@pytest.mark.parametrize("mean", [-0.5, None])
def test_a_mean_that_moved_is_no_rounding(mean: float | None) -> None:
    assert rounding_of(GOLDEN, SideSummary(100, 3.0, -2.0, mean, 8.0004), 2.0**-24) is None
