"""Errors of single rows, and what each row would choose."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.metrics.elementwise.rows import row_profile, swapped_choices
from firstdrift.metrics.measurement import RowProfile


def off_by(*errors: float) -> tuple[np.ndarray, np.ndarray]:
    golden = np.ones((len(errors), 8), np.float32)
    return golden, golden * (1 + np.array(errors, np.float32))[:, None]


@pytest.mark.parametrize(
    ("left_out", "rest"), [(0, 0.5), (1, 0.25), (2, 0.125), (3, 0.0), (4, 0.0), (5, None), (9, None)]
)
def test_the_error_of_the_rest_is_that_of_the_worst_row_that_is_left(
    left_out: int, rest: float | None
) -> None:
    profile = row_profile(*off_by(0.0, 0.25, 0.0, 0.5, 0.125))
    assert profile is not None
    assert profile.without(left_out) == rest


@given(st.lists(st.floats(0, 1, width=16), min_size=2, max_size=40), st.integers(0, 45))
def test_the_rest_is_never_worse_than_what_is_left(errors: list[float], left_out: int) -> None:
    profile = row_profile(*off_by(*errors))
    assert profile is not None
    left = sorted(errors, reverse=True)[left_out:]
    rest = profile.without(left_out)
    assert (rest is None) is (not left)
    assert rest is None or min(left) - 1e-5 <= rest <= max(left) + 1e-5


def test_one_row_has_no_rest() -> None:
    assert row_profile(*off_by(0.5)) is None
    assert RowProfile.places(2) == [0, 1]


@pytest.mark.parametrize(
    ("golden", "target", "swapped"),
    [
        ([[3, 2, 1, 0]], [[3, 2, 1, 0]], (0, 0, 0)),
        ([[3, 2, 1, 0]], [[3, 1, 2, 0]], (0, 1, 0)),
        ([[3, 2, 1, 0]], [[0, 1, 2, 3]], (1, 2, 1)),
        ([[3, 2, 1, 0]], [[3, 2, 2, 0]], (0, 1, 0)),
        ([[3, 2, 1, 0], [0, 1, 2, 3]], [[3, 1, 2, 0], [0, 2, 1, 3]], (0, 2, 0)),
        ([[np.nan, 2, 1, 3]], [[np.nan, 2, 1, 3]], (0, 0, 0)),
    ],
)
def test_choices_that_differ_are_counted_by_how_many_each_row_makes(
    golden: list[list[float]], target: list[list[float]], swapped: tuple[int, ...]
) -> None:
    assert swapped_choices(np.array(golden), np.array(target, ml_dtypes.bfloat16)) == swapped


def test_a_vector_and_a_vocabulary_are_no_scores() -> None:
    assert swapped_choices(np.zeros((4, 1)), np.zeros((4, 1))) is None
    assert swapped_choices(np.zeros((1, 32000)), np.zeros((1, 32000))) is None
