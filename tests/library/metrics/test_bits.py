"""The first element whose bits differ: edge cases, and the laws that always hold."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from library.metrics.tensors_at_random import FLOATS, pairs
from soak import recorded, rounds

from firstdrift.metrics.bits import comparison_of, first_difference
from firstdrift.metrics.measurement import BitComparison

NAN, INF = float("nan"), float("inf")
EQUAL = BitComparison()


def compare_bits(
    golden: np.ndarray, target: np.ndarray, shape: tuple[int, ...] | None = None
) -> BitComparison | None:
    return comparison_of(golden, target, first_difference(golden, target), shape or target.shape)


def nan_with(payload: int) -> np.ndarray:
    return np.array([0x7FC00000 | payload], np.uint32).view(np.float32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("golden", "target", "expected"),
    [
        pytest.param(f32(1, 2), f32(1, 2), EQUAL, id="equal"),
        pytest.param(f32(NAN), f32(NAN), EQUAL, id="nan"),
        pytest.param(nan_with(1), nan_with(2), EQUAL, id="nan-payload"),
        pytest.param(f32(INF, -INF), f32(INF, -INF), EQUAL, id="infinities"),
        pytest.param(f32(), f32(), EQUAL, id="empty"),
        pytest.param(
            f32(1, 0.0),
            f32(1, -0.0),
            BitComparison((1,), "0.0 (0x00000000)", "-0.0 (0x80000000)"),
            id="zeros-of-either-sign",
        ),
        pytest.param(
            f32(0.1),
            np.nextafter(f32(0.1), f32(1.0)),
            BitComparison((0,), "0.1 (0x3dcccccd)", "0.10000001 (0x3dccccce)"),
            id="one-unit-in-the-last-place",
        ),
        pytest.param(
            f32(1, NAN),
            f32(1, 2),
            BitComparison((1,), "nan (0x7fc00000)", "2.0 (0x40000000)"),
            id="nan-or-not",
        ),
        pytest.param(
            np.array([[1, 2], [3, 4]]),
            np.array([[1, 2], [5, 4]]),
            BitComparison((1, 0), "3", "5"),
            id="integers",
        ),
        pytest.param(
            np.array([True]), np.array([False]), BitComparison((0,), "True", "False"), id="booleans"
        ),
        pytest.param(
            np.array([0j, 1 + 0j], np.complex64),
            np.array([0j, 1 + 0j], np.complex64),
            EQUAL,
            id="complex",
        ),
        pytest.param(
            np.array([1 + 1j], np.complex64),
            np.array([1 - 1j], np.complex64),
            BitComparison((0,), "(1+1j)", "(1-1j)"),
            id="imaginary-part",
        ),
        pytest.param(
            np.array(2.0),
            np.array(3.0),
            BitComparison((), "2.0 (0x4000000000000000)", "3.0 (0x4008000000000000)"),
            id="scalars",
        ),
        pytest.param(
            np.array([1.0], ml_dtypes.bfloat16),
            np.array([1.0078125], ml_dtypes.bfloat16),
            BitComparison((0,), "1.0 (0x3f80)", "1.0078125 (0x3f81)"),
            id="bfloat16",
        ),
        pytest.param(
            np.array([1], ml_dtypes.int4),
            np.array([-1], ml_dtypes.int4),
            BitComparison((0,), "1", "-1"),
            id="int4",
        ),
        pytest.param(f32(1), np.array([1.0]), None, id="other-dtype"),
    ],
)
def test_edge_cases(golden: np.ndarray, target: np.ndarray, expected: BitComparison | None) -> None:
    assert compare_bits(golden, target) == expected


def test_the_first_of_several_is_named_in_the_shape_of_the_target() -> None:
    golden = np.zeros((2, 40_000), np.float32)
    target = golden.copy()
    target[1, 3] = target[1, 7] = 1.0
    found = compare_bits(golden, target, (40_000, 2))
    assert found is not None
    assert found.index == np.unravel_index(40_003, (40_000, 2))


def test_tensors_that_do_not_lie_in_rows_are_read_in_rows() -> None:
    golden = np.arange(6, dtype=np.float32).reshape(2, 3)
    other = np.asfortranarray(golden)
    assert compare_bits(golden, other) == EQUAL
    assert compare_bits(golden.T, other.T) == EQUAL


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        compare_bits(np.zeros(2), np.zeros(3))


@recorded("numbers", "{} pairs by their bits, the first difference found where the bytes differ")
@settings(max_examples=rounds(100, 3000))
@given(pairs())
@np.errstate(invalid="ignore")  # a signalling NaN
def test_what_is_called_equal_has_the_same_bytes_but_for_nans(pair: tuple[np.ndarray, np.ndarray]) -> None:
    golden, target = pair
    found = compare_bits(golden, target)
    if golden.dtype != target.dtype:
        assert found is None
        return
    assert found is not None
    flat = [side.reshape(-1) for side in (golden, target)]
    differ = [
        at
        for at, (left, right) in enumerate(zip(*flat, strict=True))
        if left.tobytes() != right.tobytes()
        and not (golden.dtype in FLOATS and np.isnan(left) and np.isnan(right))
    ]
    at = None if not differ else tuple(map(int, np.unravel_index(differ[0], golden.shape)))
    assert found.index == at
    assert (found == EQUAL) == (at is None)


@given(pairs(FLOATS))
def test_both_values_are_told_apart_by_their_texts(pair: tuple[np.ndarray, np.ndarray]) -> None:
    found = compare_bits(*pair)
    if found is not None and found.index is not None:
        assert found.golden != found.target
