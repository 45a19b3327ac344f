import math

import pytest

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift_server.comparison.evidence import bar, is_beyond, widest_of
from firstdrift_server.comparison.view import Wanted
from firstdrift_server.graph.layers import error_text


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_what_is_no_finite_number_is_beyond_any_limit_and_no_lower_bound(error: float) -> None:
    assert is_beyond(error, None)
    assert is_beyond(error, 0.1)
    assert "≥" not in error_text(error, [MeasurementKind.STATISTICS])


def test_without_a_limit_no_finite_error_is_beyond_it() -> None:
    assert not is_beyond(0.5, None)
    assert not is_beyond(0.5, 0.5)
    assert error_text(0.5, [MeasurementKind.STATISTICS]) == "≥ 50.0\N{NO-BREAK SPACE}%"


def test_the_way_back_to_a_rule_set_stays_while_somebody_looks_around() -> None:
    wanted = Wanted(was="msit")
    assert "was=msit" in wanted.address(1, slice=3)
    assert "was" not in wanted.address(1, was=None)


def test_a_bar_is_as_long_as_its_error_is_large_and_holds_its_limit() -> None:
    widest = widest_of((0.01, 0.5), 0.05)
    drawn = bar("output", 0.5, 0.05, widest)
    assert (drawn.share, drawn.is_beyond) == (1.0, True)
    assert drawn.limit_share == pytest.approx(0.1)
    matching = bar("input", 0.01, None, widest)
    assert (matching.share, matching.limit_share) == (pytest.approx(0.02), None)
    assert bar("weight", 0.5, 1e-6, widest).limit_share is None  # too near to the beginning


def test_a_limit_above_all_errors_is_within_the_picture() -> None:
    assert widest_of((0.0, 0.3), None) == 0.3
    assert widest_of((0.1,), 0.2) == 0.2


def test_beside_an_infinite_error_one_that_matches_is_short() -> None:
    widest = widest_of((1e-6, math.inf), None)
    assert bar("output", math.inf, None, widest).share == 1.0
    assert bar("input", 1e-6, None, widest).share < 0.01


def test_errors_of_zero_have_no_bar() -> None:
    assert bar("output", 0.0, None, widest_of((), None)).share == 0.0
