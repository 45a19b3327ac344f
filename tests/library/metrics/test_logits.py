"""Two distributions over the vocabulary."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import recorded, rounds

from firstdrift.metrics.logits import logits_positions, measure_logits
from firstdrift.metrics.measurement import LogitsPosition

NAN, INF = math.nan, math.inf


def position(golden: list[float], target: list[float]) -> LogitsPosition:
    (found,) = logits_positions(np.array(golden, float), np.array(target, float))
    return found


def naive_divergence(golden: np.ndarray, target: np.ndarray) -> float:
    p, q = (np.exp(x - x.max()) for x in (golden.astype(np.longdouble), target.astype(np.longdouble)))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


@recorded("numbers", "{} pairs of logits, divergence, tops and margins by their definition")
@given(st.integers(0, 2**32), st.integers(2, 3000), st.floats(1e-6, 3))
@settings(max_examples=rounds(100, 3000), deadline=None)
def test_the_divergence_and_the_tops_are_those_of_the_definition(seed: int, size: int, noise: float) -> None:
    random = np.random.default_rng(seed)
    golden = 3 * random.normal(size=size)
    target = golden + noise * random.normal(size=size) + random.normal() * 50
    found = position(golden.tolist(), target.tolist())
    assert found.kl_divergence == pytest.approx(naive_divergence(golden, target), rel=1e-6, abs=1e-14)
    order, target_order = np.argsort(-golden), np.argsort(-target)
    assert (found.golden_top, found.target_top) == (order[0], target_order[0])
    assert found.golden_margin == golden[order[0]] - golden[order[1]]
    assert found.target_margin == target[target_order[0]] - target[target_order[1]]
    probability = np.exp(golden[order[0]] - golden.max()) / np.exp(golden - golden.max()).sum()
    assert found.golden_top_probability == pytest.approx(probability)
    assert found.overlap_5 == len(set(order[:5]) & set(target_order[:5])) / min(5, size)


@given(st.integers(0, 2**32), st.integers(1, 1000))
@settings(max_examples=100, deadline=None)
def test_equal_logits_take_the_lower_index_first(seed: int, size: int) -> None:
    golden = np.random.default_rng(seed).integers(0, 4, size).astype(float)
    found = position(golden.tolist(), golden.tolist())
    assert found.golden_top == found.target_top == golden.argmax()
    assert (found.kl_divergence, found.overlap_5, found.local_error, found.tie_flip) == (0.0, 1.0, 0.0, False)


def test_a_shift_of_all_logits_changes_nothing() -> None:
    golden = [3.0, 1.0, 0.5, -2.0, 0.0]
    found = position(golden, [value + 1000.0 for value in golden])
    assert found.kl_divergence == pytest.approx(0.0, abs=1e-12)
    assert found.local_error == pytest.approx(0.0, abs=1e-12)


NEIGHBOURS = [9.0, 8.5, 8.0, 7.5, 7.0]


def test_a_flip_within_the_noise_of_the_neighbours_is_a_tie() -> None:
    found = position([10.0, 9.99, *NEIGHBOURS], [9.99, 10.0, 9.02, 8.5, 7.98, 7.52, 6.99])
    assert found.golden_top != found.target_top
    assert found.tie_flip


def test_a_flip_beyond_the_noise_of_the_neighbours_is_none() -> None:
    found = position([10.0, 9.0, *NEIGHBOURS], [9.0, 10.0, 9.02, 8.5, 7.98, 7.52, 6.99])
    assert found.golden_top != found.target_top
    assert not found.tie_flip


def test_a_flip_does_not_vouch_for_itself() -> None:
    assert not position([10.0, 0.0, *NEIGHBOURS], [0.0, 10.0, *NEIGHBOURS]).tie_flip


@pytest.mark.parametrize(
    ("golden", "target", "divergence"),
    [
        pytest.param([1.0, -INF, 0.0], [1.0, -INF, 0.0], 0.0, id="masked-vocabulary"),
        pytest.param([1.0, -INF], [1.0, 1.0], math.log(2), id="masked-on-the-golden-side"),
        pytest.param([1.0, 1.0], [1.0, -INF], INF, id="masked-on-the-target-side"),
        pytest.param([1.0, NAN], [1.0, 1.0], INF, id="nan"),
        pytest.param([1.0, NAN], [1.0, NAN], 0.0, id="the-same-nan"),
        pytest.param([1.0, INF], [1.0, 1.0], INF, id="infinite"),
        pytest.param([-INF, -INF], [-INF, -INF], 0.0, id="all-masked"),
        pytest.param([0.0, -2000.0], [0.0, -3000.0], 0.0, id="probability-that-vanishes"),
    ],
)
def test_logits_that_are_not_finite(golden: list[float], target: list[float], divergence: float) -> None:
    found = position(golden, target)
    assert found.kl_divergence == pytest.approx(divergence)
    assert not found.tie_flip
    assert not math.isnan(found.golden_margin)


def test_no_distribution_has_no_probabilities() -> None:
    found = position([1.0, NAN], [1.0, 1.0])
    assert found.golden_top == 0
    assert math.isnan(found.golden_top_probability)
    assert math.isnan(found.target_probability_of_golden_top)


def test_a_vocabulary_of_one_is_always_certain() -> None:
    found = position([3.0], [4.0])
    assert (found.kl_divergence, found.golden_margin, found.golden_top_probability) == (0.0, INF, 1.0)


def test_positions_are_summarised_and_the_last_is_kept() -> None:
    golden = np.array([[[5.0, 1.0, 0.0], [0.0, 2.0, 1.0]]], np.float32)
    target = np.array([[[1.0, 5.0, 0.0], [0.0, 2.0, 1.0]]], ml_dtypes.bfloat16)
    found = measure_logits(golden, target)
    positions = logits_positions(golden, target)
    assert found is not None
    assert (found.positions, found.top1_agreement, found.last) == (2, 0.5, positions[1])
    assert found.worst_kl_divergence == positions[0].kl_divergence
    assert found.kl_divergence == positions[0].kl_divergence / 2


def test_no_position_has_no_summary() -> None:
    assert measure_logits(np.zeros((0, 7)), np.zeros((0, 7))) is None
    with pytest.raises(ValueError, match="shapes differ"):
        measure_logits(np.zeros((1, 7)), np.zeros((1, 8)))
