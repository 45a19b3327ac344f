"""Which line explains a difference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.linear import scaled
from firstdrift.metrics.closeup.sample import take_sample
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message


def line_of(golden: Array, target: Array) -> Hint | None:
    return scaled(take_sample(golden, target))


@given(st.integers(0, 2**32), st.integers(3, 200), st.floats(1.5, 3), st.floats(-3, -0.5))
@settings(deadline=None)
def test_a_scaled_and_shifted_tensor_is_recognised(seed: int, size: int, scale: float, offset: float) -> None:
    golden = np.random.default_rng(seed).normal(size=size)
    found = line_of(golden, scale * golden + offset)
    assert found is not None
    line = found.says.arguments["line"]
    assert isinstance(line, Message)
    assert line.arguments["shift"] == pytest.approx(-offset, abs=1e-9)
    assert found.after == pytest.approx(0.0, abs=1e-12)


def test_noise_is_left_over() -> None:
    random = np.random.default_rng(0)
    golden = random.normal(size=10_000).astype(np.float32)
    found = line_of(golden, 1.9 * golden + 0.1 * random.normal(size=10_000))
    assert found is not None
    assert found.kind is HintKind.SCALED
    assert found.after == pytest.approx(0.1, rel=0.05)


def test_pairs_that_are_not_finite_are_left_out() -> None:
    golden = np.array([1.0, math.nan, 2.0, 3.0, 4.0])
    found = line_of(golden, np.array([2.0, 1.0, 4.0, math.inf, 8.0]))
    assert found is not None
    assert found.says == Message.of("hint.line", line=Message.of("hint.times", factor=2.0))
    assert line_of(golden[:3], np.array([2.0, 1.0, 4.0])) is None, "any two points lie on a line"
    assert line_of(np.array([math.nan]), np.array([1.0])) is None
    assert line_of(np.zeros(0), np.zeros(0)) is None


def test_a_shift_alone_has_no_factor() -> None:
    golden = np.array([2.0, -1.0, 4.0])
    found = line_of(golden, golden + 3.0)
    assert found is not None
    assert found.says == Message.of(
        "hint.line", line=Message.of("hint.plus", line=Message.of("side.golden"), shift=3.0)
    )
