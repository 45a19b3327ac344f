import math

import pytest

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift_server.comparison.evidence import bar, ends_of, is_beyond
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


def test_a_limit_lies_on_the_bar_that_it_limits_and_within_its_scale() -> None:
    ends = ends_of((0.0, 1.0), 1e-8)
    assert ends == (pytest.approx(1e-9), 1.0)
    drawn = bar("weight", 1.0, 1e-8, ends)
    assert (drawn.share, drawn.is_beyond) == (1.0, True)
    assert drawn.limit_share == pytest.approx(1 / 9)
    assert bar("output", 0.01, None, ends).limit_share is None


def test_without_a_limit_bars_reach_down_six_powers_of_ten() -> None:
    assert ends_of((0.0, 0.3, math.inf), None) == (pytest.approx(3e-7), 0.3)
    assert ends_of((), None) == (pytest.approx(1e-6), 1.0)
