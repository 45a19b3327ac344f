"""Weights that were handed to another expert are found among many, by their statistics."""

import math
from time import process_time

import pytest

from firstdrift.metrics.measurement import SideSummary
from firstdrift.verdict.router_ties import any_alike


def weight(norm: float | None, maximum: float = 1.0) -> SideSummary:
    return SideSummary(None, maximum, -1.0, 0.0, norm)


@pytest.mark.parametrize(
    ("sides", "other", "is_found"),
    [
        ([weight(3.0), weight(5.0)], weight(5.0), True),
        ([weight(3.0), weight(5.0)], weight(5.0 * (1 + 2**-8)), True),
        ([weight(3.0), weight(5.0)], weight(4.0), False),
        ([weight(5.0, maximum=2.0)], weight(5.0), False),
        ([weight(None), weight(3.0)], weight(5.0), True),
        ([weight(3.0)], weight(None), True),
        ([weight(math.inf)], weight(math.inf), True),
        ([weight(math.nan), weight(3.0)], weight(math.nan), False),
        ([], weight(1.0), False),
    ],
)
def test_a_weight_is_found_by_all_statistics_that_both_have(
    sides: list[SideSummary], other: SideSummary, is_found: bool
) -> None:
    assert any_alike(sides, [other]) is is_found


def test_many_weights_are_held_against_many_in_no_time() -> None:
    sides = [weight(1.1**at) for at in range(-3000, 3000)]
    others = [weight(1.05 * 1.1**at) for at in range(-3000, 3000)]
    started = process_time()
    assert not any_alike(sides, others)
    assert process_time() - started < 2.0
