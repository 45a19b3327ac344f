"""What masks on both sides is the same, however each side writes it; what is only large is a number."""

import pytest

from firstdrift.metrics.masks import masked_on_both_sides

LOWEST16, LOWEST = -65504.0, -3.3895313892515355e38


@pytest.mark.parametrize(
    ("golden", "target", "is_masked"),
    [
        (LOWEST16 / 8.0, LOWEST / 8.0, True),
        (LOWEST / 8.0, LOWEST16 / 8.0, True),
        (LOWEST16, float("-inf"), True),
        (-1e10, float("-inf"), True),
        (float("-inf"), -1e9, True),
        (-1e6, float("-inf"), False),
        (-1e10, -1e9, False),
        (-3000.0, -3000.0, False),
        (-3000.0, -3010.0, False),
        (-3.0, LOWEST, False),
        (float("nan"), LOWEST, False),
    ],
)
def test_places_that_are_masked_on_both_sides(golden: float, target: float, *, is_masked: bool) -> None:
    assert bool(masked_on_both_sides(golden, target)) is is_masked
