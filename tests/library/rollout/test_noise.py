"""The scale of noise, and the token at which a difference leaves it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.rollout import noise
from firstdrift.rollout.sequences import Floats
from firstdrift.rollout.thresholds import EXPLAINED

EXPLAINED_HERE = EXPLAINED["bfloat16"]


def sides(amount: float, tokens: int = 256, seed: int = 0) -> tuple[Floats, Floats]:
    """Log-probabilities of a binary choice, with noise of this amount on its logit."""
    random = np.random.default_rng(seed)
    logit = random.normal(1, 3, tokens)
    moved = logit + random.normal(0, amount, tokens)
    return of_logit(logit), of_logit(moved)


def of_logit(logit: Floats) -> Floats:
    found: Floats = -np.log1p(np.exp(-logit))
    return found


def pushed(place: int, by: float) -> tuple[Floats, Floats]:
    """Log-probabilities with little noise, but for one token whose logit moves by so much."""
    rollout, trainer = sides(1e-3)
    trainer[place] = of_logit(noise.log_odds(rollout) + by)[place]
    return rollout, trainer


@pytest.mark.parametrize("amount", [1e-3, 1e-2, 0.1])
def test_the_scale_is_the_noise_of_logits_whatever_the_probabilities(amount: float) -> None:
    both = sides(amount, 4096)
    scale = noise.scale_of(noise.moved(*both)[noise.telling(*both)])
    assert scale == pytest.approx(amount, rel=0.1)


def test_of_too_few_tokens_there_is_no_scale() -> None:
    assert noise.scale_of(np.ones(15)) is None
    assert noise.scale_of(np.ones(16)) == pytest.approx(1.4826)


def test_a_single_token_far_out_is_found_at_its_place() -> None:
    out = noise.out_of_noise(*pushed(100, -0.2), np.arange(256), [None] * 9, EXPLAINED_HERE)
    assert np.flatnonzero(out).tolist() == [100]


def test_the_first_tokens_of_a_single_sequence_are_held_against_rounding_alone() -> None:
    out = noise.out_of_noise(*sides(1e-3), np.arange(256), [None] * 9, EXPLAINED["float32"])
    assert out[:16].any()
    assert not out[32:].any()


def test_nothing_leaves_noise_that_rounding_explains() -> None:
    assert not noise.out_of_noise(*pushed(100, 0.1), np.arange(256), [None] * 9, EXPLAINED_HERE).any()


def test_what_all_sequences_have_at_a_position_is_noise_there() -> None:
    scales = [None if number != noise.bins_of(np.array([100]))[0] else 1.0 for number in range(9)]
    assert not noise.out_of_noise(*pushed(100, -1.5), np.arange(256), scales, EXPLAINED_HERE).any()


def test_what_is_not_finite_has_left_the_noise() -> None:
    rollout, trainer = sides(1e-3)
    trainer[7] = np.nan
    rollout[9] = -np.inf
    out = noise.out_of_noise(rollout, trainer, np.arange(256), [None] * 9, EXPLAINED_HERE)
    assert np.flatnonzero(out).tolist() == [7, 9]


def test_the_rounding_of_a_certain_token_is_no_difference() -> None:
    rollout, trainer = sides(1e-3)
    rollout[50], trainer[50] = -3e-6, -1e-6
    assert not noise.out_of_noise(rollout, trainer, np.arange(256), [None] * 9, EXPLAINED_HERE)[50]


def test_later_tokens_do_not_change_what_earlier_ones_are() -> None:
    rollout, trainer = pushed(60, -1.5)
    whole = noise.out_of_noise(rollout, trainer, np.arange(256), [None] * 9, EXPLAINED_HERE)
    part = noise.out_of_noise(rollout[:80], trainer[:80], np.arange(80), [None] * 9, EXPLAINED_HERE)
    assert whole[:80].tolist() == part.tolist()


@given(st.floats(1e-4, 0.2), st.integers(0, 2**31))
def test_normal_noise_never_leaves_itself(amount: float, seed: int) -> None:
    rollout, trainer = sides(amount, seed=seed)
    scale = noise.scale_of(noise.moved(rollout, trainer)[noise.telling(rollout, trainer)])
    assert not noise.out_of_noise(rollout, trainer, np.arange(256), [scale] * 9, EXPLAINED_HERE).any()


@given(st.integers(0, 2**20))
def test_a_bin_holds_its_positions(position: int) -> None:
    first, last = noise.edges_of(int(noise.bins_of(np.array([position]))[0]))
    assert first <= position <= last


def test_bins_follow_each_other_without_gaps() -> None:
    edges = [noise.edges_of(number) for number in range(5)]
    assert edges == [(0, 3), (4, 7), (8, 15), (16, 31), (32, 63)]


def test_a_shift_by_a_token_is_recognised_either_way() -> None:
    values, _ = sides(0.0, 64)
    on, back = noise.shift_of(values, np.roll(values, 1)), noise.shift_of(values, np.roll(values, -1))
    assert on is not None
    assert back is not None
    assert (on[0], back[0]) == (1, -1)
    assert max(on[1], back[1]) < 1e-12
