"""A dropout is known from statistics where the largest and the smallest element were kept."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import gaps_of

from firstdrift.metrics.closeup.statistics_dropout import dropout_of
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.tensor import ROUNDING
from firstdrift.wording.phrases import side_named

SINGLE, COARSE = 2.0**-24, ROUNDING["bfloat16"]


def told(values: np.ndarray) -> SideSummary:
    return SideSummary(
        values.size,
        *(float(each) for each in (values.max(), values.min(), values.mean(), np.linalg.norm(values))),
    )


def dropout(values: np.ndarray, probability: float, seed: int) -> np.ndarray:
    """Drop elements, but the largest and the smallest."""
    kept = np.random.default_rng(seed + 1).random(values.size) >= probability
    kept[[values.argmax(), values.argmin()]] = True
    return np.where(kept, values / (1.0 - probability), 0.0)


@given(seed=st.integers(0, 10_000), probability=st.sampled_from([0.1, 0.2, 0.5]), on=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_dropout_is_named_with_its_probability(seed: int, probability: float, *, on: bool) -> None:
    values = np.random.default_rng(seed).normal(size=16_384)
    sides = told(values), told(dropout(values, probability, seed))
    said = dropout_of(*(sides if on else sides[::-1]), SINGLE)
    gaps = gaps_of(said, "hint.dropout_by_statistics")
    assert gaps["probability"] == pytest.approx(probability, rel=1e-3)
    assert gaps["side"] == side_named("target" if on else "golden")


@given(seed=st.integers(0, 10_000), factor=st.floats(0.5, 2.0))
@settings(max_examples=60, deadline=None)
def test_a_factor_is_no_dropout(seed: int, factor: float) -> None:
    values = np.random.default_rng(seed).normal(size=16_384)
    assert dropout_of(told(values), told(values * factor), SINGLE) is None


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_values_that_have_nothing_in_common_are_no_dropout(seed: int) -> None:
    one, other = np.random.default_rng(seed).normal(size=(2, 4096))
    assert dropout_of(told(one), told(1.1 * other), SINGLE) is None


def test_few_elements_do_not_tell_a_dropout_from_a_factor() -> None:
    values = np.random.default_rng(5).normal(size=64)
    assert dropout_of(told(values), told(dropout(values, 0.1, 5)), SINGLE) is None


@given(seed=st.integers(0, 10_000), noise=st.floats(0.01, 0.3))
@settings(max_examples=200, deadline=None)
def test_noise_in_coarse_statistics_is_no_dropout(seed: int, noise: float) -> None:
    one, other = np.random.default_rng(seed).normal(size=(2, 4096))
    written = [
        SideSummary(side.size, *map(coarse, (side.maximum, side.minimum, side.mean, side.norm)))
        for side in (told(one), told(one + noise * other))
    ]
    assert dropout_of(*written, COARSE) is None


def test_a_step_of_a_coarse_format_at_both_ends_is_no_dropout() -> None:
    golden = SideSummary(1 << 20, 4.03125, -4.0, 0.0, 1000.0)
    target = SideSummary(1 << 20, 4.046875, -4.015625, 0.0, 1001.9)
    assert dropout_of(golden, target, COARSE) is None


def coarse(number: float) -> float:
    return float(np.float32(number).astype(ml_dtypes.bfloat16))
