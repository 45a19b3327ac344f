"""How two integer tensors differ: as values, as sets and as order."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from soak import recorded, rounds

from firstdrift.metrics.integers import measure_integers
from firstdrift.metrics.measurement import IntegerErrors


@pytest.mark.parametrize(
    ("golden", "target", "expected"),
    [
        pytest.param(
            [[1, 2], [3, 4]],
            [[1, 2], [3, 4]],
            IntegerErrors(
                0, 0.0, same_set=True, first_mismatch=None, golden_at_first=None, target_at_first=None
            ),
            id="equal",
        ),
        pytest.param(
            [[1, 2], [3, 4]],
            [[1, 2], [4, 3]],
            IntegerErrors(2, 0.5, same_set=True, first_mismatch=2, golden_at_first=3, target_at_first=4),
            id="only-the-order",
        ),
        pytest.param(
            [[1, 2], [3, 4]],
            [[1, 2], [3, 5]],
            IntegerErrors(1, 0.25, same_set=False, first_mismatch=3, golden_at_first=4, target_at_first=5),
            id="a-value",
        ),
        pytest.param(
            [[1, 2], [3, 4]],
            [[3, 2], [1, 4]],
            IntegerErrors(2, 0.5, same_set=False, first_mismatch=0, golden_at_first=1, target_at_first=3),
            id="across-rows",
        ),
        pytest.param(
            [1, 1, 2],
            [1, 2, 2],
            IntegerErrors(1, 1 / 3, same_set=False, first_mismatch=1, golden_at_first=1, target_at_first=2),
            id="as-often",
        ),
        pytest.param(
            [],
            [],
            IntegerErrors(
                0, 0.0, same_set=True, first_mismatch=None, golden_at_first=None, target_at_first=None
            ),
            id="empty",
        ),
        pytest.param(
            7,
            8,
            IntegerErrors(1, 1.0, same_set=False, first_mismatch=0, golden_at_first=7, target_at_first=8),
            id="scalar",
        ),
        pytest.param(
            [True, False],
            [True, True],
            IntegerErrors(1, 0.5, same_set=False, first_mismatch=1, golden_at_first=0, target_at_first=1),
            id="bool",
        ),
        pytest.param(
            [2**53, 0],
            [2**53 + 1, 0],
            IntegerErrors(
                1, 0.5, same_set=False, first_mismatch=0, golden_at_first=2**53, target_at_first=2**53 + 1
            ),
            id="large",
        ),
    ],
)
def test_integer_errors(golden: list[int], target: list[int], expected: IntegerErrors) -> None:
    kind = bool if golden and golden == [True, False] else np.int64
    assert measure_integers(np.array(golden, kind), np.array(target, kind)) == expected


def test_types_may_differ() -> None:
    wide = np.array([1, 2, 2**63], np.uint64)
    assert measure_integers(wide, np.array([1, 2, -1], np.int64)).first_mismatch == 2
    packed = np.array([1, -2, 7]).astype(ml_dtypes.int4)
    assert measure_integers(packed, np.array([7, -2, 1], np.int32)).same_set


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        measure_integers(np.zeros(2, int), np.zeros(3, int))


@recorded("numbers", "{} tensors of integers, mismatches counted one by one")
@settings(max_examples=rounds(100, 2000))
@given(hnp.arrays(np.int16, hnp.array_shapes(max_dims=3)))
def test_a_permuted_last_dimension_is_the_same_set(golden: np.ndarray) -> None:
    found = measure_integers(golden, golden[..., ::-1])
    assert found.same_set
    assert found.mismatched == np.count_nonzero(golden != golden[..., ::-1])
