import math

import pytest

from firstdrift_frontend.metric_names import write
from firstdrift_frontend.numbers import DASH, NO_BREAK, error, error_power, exact, factor, short


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.2345e-05, "1.23e-5"),
        (0.97572, "0.976"),
        (0.9999863, "0.999986"),
        (-0.9999863, "-0.999986"),
        (0.99999987, "0.99999987"),
        (1 - 3.2e-14, "1 - 3e-14"),
        (-1 + 3.2e-14, "-1 + 3e-14"),
        (1.0, "1"),
        (1 - 3e-16, "1"),
        (-1 + 3e-16, "-1"),
        (1 - 3e-14, "1 - 3e-14"),
        (151936.0, "151,936"),
        (0.0, "0"),
        (12.3456, "12.3"),
        (math.nan, "NaN"),
        (-math.inf, "-∞"),
        (None, DASH),
    ],
)
def test_three_digits_are_read_and_those_that_tell_a_cosine_from_one(
    value: float | None, written: str
) -> None:
    assert short(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.99999978, "1.00"),
        (1.0004, "1.00"),
        (2.0, "2.00"),
        (0.0123456, "0.0123"),
        (1234.5, "1,234"),
        (9.9996, "10.0"),
        (3.25e8, "3.25e8"),
        (math.inf, "∞"),
        (None, DASH),
    ],
)
def test_a_factor_close_to_one_is_one(value: float | None, written: str) -> None:
    assert factor(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0148, "1.48 %"),
        (0.459, "45.9 %"),
        (1.0, "100 %"),
        (2.0, "200 %"),
        (9.32e-4, "0.0932 %"),
        (1.91e-6, "1.91e-4 %"),
        (12345.0, "1.23e6 %"),
        (0.0, "0 %"),
        (math.inf, "∞"),
        (math.nan, "NaN"),
        (None, DASH),
    ],
)
def test_relative_errors_are_percentages(value: float | None, written: str) -> None:
    assert error(value) == written.replace(" ", NO_BREAK)


@pytest.mark.parametrize(
    ("power", "written"), [(0, "100 %"), (-2, "1 %"), (-4, "0.01 %"), (-6, "1e-4 %"), (4, "1e6 %")]
)
def test_so_are_the_numbers_of_their_axes(power: int, written: str) -> None:
    assert error_power(power) == written.replace(" ", NO_BREAK)


def test_a_metric_is_written_by_what_it_is() -> None:
    written = [
        write(0.25, name)
        for name in ("relative_l2", "error_bound", "top1_agreement", "cosine_similarity", None)
    ]
    assert written == [f"25.0{NO_BREAK}%", f"25.0{NO_BREAK}%", "25 %", "0.250", "0.250"]


@pytest.mark.parametrize("value", [1.2345e-05, 0.9999863, 1e300, -0.0, 7, 1.0])
def test_what_is_written_exactly_reads_as_the_same(value: float) -> None:
    assert float(exact(value)) == value
