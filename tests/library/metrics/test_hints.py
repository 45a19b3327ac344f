"""What a difference looks like."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstdrift.metrics.closeup.linear import fit


@given(st.integers(0, 2**32), st.integers(3, 200), st.floats(-3, 3), st.floats(-3, 3))
@settings(deadline=None)
def test_a_scaled_and_shifted_tensor_is_recognised(seed: int, size: int, scale: float, offset: float) -> None:
    golden = np.random.default_rng(seed).normal(size=size)
    found = fit(golden, scale * golden + offset)
    assert found is not None
    assert (found.scale, found.offset) == pytest.approx((scale, offset), abs=1e-9)
    assert found.residual == pytest.approx(0.0, abs=1e-12)


def test_noise_is_left_over() -> None:
    random = np.random.default_rng(0)
    golden = random.normal(size=10_000).astype(np.float32)
    found = fit(golden, 1.9 * golden + 0.1 * random.normal(size=10_000))
    assert found is not None
    assert found.scale == pytest.approx(1.9, abs=0.01)
    assert found.residual == pytest.approx(0.1, rel=0.05)


def test_pairs_that_are_not_finite_are_left_out() -> None:
    found = fit(np.array([1.0, math.nan, 2.0, 3.0]), np.array([2.0, 1.0, 4.0, math.inf]))
    assert found is not None
    assert (found.scale, found.offset, found.size) == (2.0, 0.0, 2)
    assert fit(np.array([math.nan]), np.array([1.0])) is None
    assert fit(np.zeros(0), np.zeros(0)) is None


def test_a_constant_tensor_can_only_be_shifted() -> None:
    found = fit(np.full(3, 2.0), np.full(3, 5.0))
    assert found is not None
    assert (found.scale, found.offset, found.residual) == (1.0, 3.0, 0.0)
    zeros = fit(np.zeros(2), np.array([1.0, -1.0]))
    assert zeros is not None
    assert zeros.residual == math.inf


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        fit(np.zeros(2), np.zeros(3))
