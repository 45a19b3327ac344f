"""A wrong factor is told from rounding by its direction, however much rounding has gathered."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.verdict.made_slices import Call, MadePair, judge, make, values_of, with_error
from msgspec.structs import replace

from firstdrift.metrics.gain import gain
from firstdrift.metrics.statistics import measure_statistics

GATHERED = 0.02
"""About ten roundings of bfloat16."""
BEFORE, LINEAR = "Functional.silu.0.forward", "Functional.linear.0.forward"


def calls(times: float, error: float = GATHERED, shape: tuple[int, ...] = (16, 32)) -> tuple[Call, Call]:
    """Return what gathers an error, and a product that gives so many times what is right, and an error."""
    before, made = (values_of(name, shape) for name in ("before", "made"))
    off = with_error(before, GATHERED, "off").astype(ml_dtypes.bfloat16)
    wrong = (times * with_error(made, error, "noise")).astype(ml_dtypes.bfloat16)
    return (
        Call(BEFORE, inputs=[(before, off)], outputs=[(before, off)]),
        Call(LINEAR, inputs=[(before, off)], outputs=[(made, wrong)]),
    )


def by_statistics(made: MadePair) -> MadePair:
    """Return the same as if statistics alone had been recorded."""
    measurements = tuple(
        measure_statistics(one.golden, one.target) if one.golden and one.target else one
        for one in made.measurements
    )
    return replace(made, measurements=measurements)


def test_a_wrong_factor_below_three_times_what_came_in_is_found() -> None:
    judged = judge(*calls(1.05))
    assert judged.origins == [LINEAR]
    assert judged.of(LINEAR).rule == "class.scaled"
    assert judged.first.reasons[0].arguments["times"] == pytest.approx(1.05, rel=3e-3)


@pytest.mark.parametrize(
    ("times", "shape"),
    [
        pytest.param(1.0, (16, 32), id="an-error-of-the-same-size-has-no-direction"),
        pytest.param(1.01, (16, 32), id="below-eight-roundings"),
        pytest.param(1.05, (4, 32), id="few-elements"),
        pytest.param(1.05, (4, 128), id="few-rows"),
    ],
)
def test_what_rounding_may_do_is_none(times: float, shape: tuple[int, ...]) -> None:
    error = 0.05 if times == 1.0 else GATHERED
    assert judge(*calls(times, error, shape)).origins == []


@pytest.mark.parametrize(
    ("size", "is_fault"), [(4e-9, False), (1.2e-8, False), (1e-2, True)], ids=["all", "most", "none"]
)
def test_numbers_too_small_for_float16_are_zero_without_a_wrong_factor(
    size: float, *, is_fault: bool
) -> None:
    """All of them, most of them, or none are below half of the smallest number of float16."""
    before, made = values_of("before", (16, 32)), (size * values_of("made", (16, 32))).astype("float32")
    off = with_error(before, 0.01, "off").astype("float16")
    wrong = np.zeros_like(made) if is_fault else made
    judged = judge(
        Call(BEFORE, inputs=[(before, off)], outputs=[(before, off)]),
        Call(LINEAR, inputs=[(before, off)], outputs=[(made, wrong.astype("float16"))]),
    )
    assert judged.origins == ([LINEAR] if is_fault else [])


def test_statistics_show_it_by_the_norm() -> None:
    golden, target = values_of("one"), with_error(values_of("one"), 0.05, "two")
    data = make(Call(LINEAR, inputs=[0.0], outputs=[(golden, (1.03 * target).astype(np.float32))]))
    (_, known), (_, told) = data.measurements, by_statistics(data).measurements
    assert gain(known) == pytest.approx(0.03, abs=5e-3)
    assert gain(told) == pytest.approx(0.03, abs=5e-3)


def test_what_an_input_hands_on_does_not_begin_at_its_operator() -> None:
    first, second = calls(1.0)
    before, made = values_of("before"), values_of("made")
    scaled = tuple((1.05 * one).astype(ml_dtypes.bfloat16) for one in (before, made))
    handed_on = (
        replace(first, inputs=[(before, scaled[0])], outputs=[(before, scaled[0])]),
        replace(second, inputs=[(before, scaled[0])], outputs=[(made, scaled[1])]),
    )
    assert LINEAR not in judge(*handed_on).origins


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([ml_dtypes.bfloat16, np.float16]),
    rows=st.integers(8, 40),
    width=st.integers(32, 96),
)
def test_products_of_rounded_numbers_have_no_direction(seed: int, dtype: type, rows: int, width: int) -> None:
    dice = np.random.default_rng(seed)
    given_, weight = dice.standard_normal((rows, width)), dice.standard_normal((width, width))
    rounded = [one.astype(dtype).astype(np.float64) for one in (given_, weight)]
    golden, target = given_ @ weight, (rounded[0] @ rounded[1]).astype(dtype)
    off = [(one.astype(np.float32), one.astype(dtype)) for one in (given_, weight)]
    made = make(
        Call(BEFORE, inputs=[off[0]], outputs=[off[0]]),
        Call(LINEAR, inputs=[off[0], off[1]], outputs=[(golden.astype(np.float32), target)]),
    )
    assert made.judge().origins == []
    found = gain(made.measurements[-1])
    assert found is not None
    assert abs(found) <= 8.0 * 2.0**-9 / math.sqrt(rows)
