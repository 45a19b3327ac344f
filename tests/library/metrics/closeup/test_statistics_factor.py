"""A factor is known from norm, largest and smallest element, where all three tell the same."""

import pytest
from messages import gaps_of, ids_of

from firstdrift.metrics.closeup.statistics_factor import factor_of
from firstdrift.metrics.measurement import SideSummary

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
        (SideSummary(100, 3.0, -2.0, 0.2, 8.0), SideSummary(100, 2.0, -3.0, 0.2, 8.0), False),
        (SideSummary(100, 3.0, -2.0, None, 8.0), SideSummary(100, 2.0, -3.0, None, 8.0), True),
    ],
    ids=["even", "even, no mean", "even, its mean turned", "its mean stayed", "its ends turned"],
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
        SideSummary(100, 4.5, -3.0, None, None),
        SideSummary(100, float("nan"), -3.0, None, 12.0),
    ],
)
def test_nothing_is_said_where_they_are_equal_or_do_not_agree(target: SideSummary) -> None:
    assert factor_of(GOLDEN, target) is None
    assert factor_of(SideSummary(100, 0.0, 0.0, 0.0, 0.0), target) is None
