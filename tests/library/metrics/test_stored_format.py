import ml_dtypes
import numpy as np
import pytest

from firstdrift.metrics.stored_format import stored_roundoff
from firstdrift.metrics.zero_bits import are_of_float16

IDS = [
    *("bfloat16", "float16", "float32", "known", "float64", "whole"),
    *("powers", "zeros", "few", "empty", "transposed"),
]
VALUES = np.random.default_rng(0).normal(size=(9, 50))


@pytest.mark.parametrize(
    ("values", "roundoff"),
    [
        (VALUES.astype(ml_dtypes.bfloat16).astype(np.float32), 2.0**-9),
        (VALUES.astype(np.float16).astype(np.float32), 2.0**-11),
        (VALUES.astype(np.float32), 0.0),
        (VALUES.astype(ml_dtypes.bfloat16), 0.0),  # its dtype says so already
        (VALUES.astype(np.float16).astype(np.float64), 0.0),
        (np.arange(16, dtype=np.float32), 0.0),
        (2.0 ** np.arange(16, dtype=np.float32), 0.0),
        (np.zeros(16, np.float32), 0.0),
        (np.float32(0.5) * np.ones(4, np.float32), 0.0),
        (np.empty((0, 8), np.float32), 0.0),
        (VALUES.astype(np.float16).astype(np.float32).T, 2.0**-11),
    ],
    ids=IDS,
)
def test_zero_bits_tell_the_format_that_values_came_from(values: np.ndarray, roundoff: float) -> None:
    assert stored_roundoff(values) == roundoff


def test_one_finer_value_among_many_is_enough() -> None:
    values = VALUES.astype(np.float16).astype(np.float32)
    values[8, 49] = np.float32(0.1)
    assert stored_roundoff(values) == 0.0


@pytest.mark.parametrize(
    ("numbers", "are"),
    [
        pytest.param([1.0009765625, -3.5], True, id="float16"),
        pytest.param([1.0078125, -3.5], True, id="bfloat16"),
        pytest.param([1.0009765625, 0.1], False, id="one is finer"),
        pytest.param([2.0, -4.0], False, id="powers"),
        pytest.param([0.0, 0.0], False, id="zeros"),
        pytest.param([1e300, 1.0009765625], False, id="float64"),
    ],
)
def test_the_ends_of_values_tell_their_format(numbers: list[float], are: bool) -> None:
    assert are_of_float16(numbers) is are
