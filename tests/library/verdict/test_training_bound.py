"""How far apart a step of training may take parameters, in steps of Adam that were really made."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.verdict.made_slices import Call, make, values_of

from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.metrics.statistics import measure_statistics
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.case import apart_by_training
from firstdrift.verdict.evidence import Before, Evidence, evidence_of
from firstdrift.verdict.training import Trained, Training
from firstdrift.verdict.training_shown import training_of

SIZE, RATE, DECAY = 4096, 1e-3, 0.0
QUIET = 32 * 2.0**-24


def after_a_step(weight: np.ndarray, gradient: np.ndarray, rate: float, decay: float = DECAY) -> np.ndarray:
    """Return what Adam makes of a parameter in its first step: all elements move alike."""
    return weight * (1.0 - rate * decay) - rate * gradient / (np.abs(gradient) + 1e-12)


def ends(values: np.ndarray) -> tuple[float, float]:
    return float(values.max()), float(values.min())


def summary(values: np.ndarray) -> SideSummary:
    return SideSummary(values.size, *ends(values), float(values.mean()), float(np.linalg.norm(values)))


def excess(noise: float, *, rate: float = RATE, decay: float = DECAY, seed: int = 0) -> float:
    """Return the error of a parameter after a step over what is allowed."""
    chance = np.random.default_rng(seed)
    weight, gradient = chance.standard_normal((2, SIZE))
    other = gradient + noise * chance.standard_normal(SIZE)
    known = Training({"w": Trained(ends(weight), 0.0, noise)}, noise)
    golden, target = after_a_step(weight, gradient, RATE), after_a_step(weight, other, rate, decay)
    measured = Measurement(MeasurementKind.STATISTICS, golden=summary(golden), target=summary(target))
    allowed = known.allowed("w", measured, RATE, QUIET)
    assert allowed is not None
    rounding = 2.0**-24
    return float(np.linalg.norm(target - golden) / np.linalg.norm(golden)) / (allowed + rounding)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(-24, 0), st.integers(0, 2**32 - 1))
def test_signs_that_noise_turns_are_allowed_for(exponent: int, seed: int) -> None:
    assert excess(2.0**exponent, seed=seed) <= 1.0


def test_of_equal_gradients_another_learning_rate_or_weight_decay_is_not() -> None:
    assert excess(0.0) <= 1.0
    assert excess(0.0, rate=1.1 * RATE) > 3.0
    assert excess(0.0, decay=0.1) > 3.0


def test_nothing_is_allowed_of_parameters_that_were_not_seen_before() -> None:
    assert Training({}, 0.1).allowed("w", Measurement(MeasurementKind.STATISTICS), math.inf, QUIET) is None


def test_noise_excuses_no_other_learning_rate() -> None:
    generator = np.random.default_rng(7)
    before = generator.normal(scale=0.02, size=4096)
    update = 1e-3 * np.sign(generator.normal(size=before.size))
    known = Training({"w": Trained(ends(before), 0.0, 0.03)}, 0.03)
    golden, target = before - update, before - 10.0 * update
    apart = float(np.linalg.norm(target - golden) / np.linalg.norm(golden))
    measured = Measurement(MeasurementKind.STATISTICS, golden=summary(golden), target=summary(target))
    allowed = known.allowed("w", measured, 1e-3, QUIET)
    assert allowed is not None
    assert apart > allowed


def test_what_turns_are_whole_elements_of_gradients_that_differ() -> None:
    chance = np.random.default_rng(3)
    weight, gradient = chance.standard_normal((2, 64))
    other = gradient.copy()
    other[5] *= -1.0
    golden, target = after_a_step(weight, gradient, RATE), after_a_step(weight, other, RATE)
    measured = Measurement(MeasurementKind.STATISTICS, golden=summary(golden), target=summary(target))
    apart = float(np.linalg.norm(target - golden) / np.linalg.norm(golden))
    for noise, is_allowed in ((1e-4, True), (QUIET / 2, False)):
        allowed = Training({"w": Trained(ends(weight), 0.0, noise)}, noise).allowed(
            "w", measured, RATE, QUIET
        )
        assert allowed is not None
        assert (apart <= allowed) is is_allowed


NOISE = 0.04


def second_step(*, by_statistics: bool) -> Evidence:
    """Make a step after one that moved the elements of a weight by RATE; what is known of it agrees."""
    weight = values_of("weight")
    made = make(
        Call(
            "Module.fc.Linear.forward.0", inputs=[0.0], parameters={"weight": (weight, weight)}, outputs=[0.0]
        ),
        Call("Module.fc.Linear.parameters_grad", gradients={"weight": NOISE}),
        coordinates=Coordinates(step=1),
    )
    measurements = tuple(map(as_statistics, made.measurements)) if by_statistics else made.measurements
    top, bottom = ends(weight)
    before = Training({"fc:weight": Trained((top - RATE, bottom - RATE), 0.0, NOISE)}, NOISE)
    return evidence_of(made.plan, made.rows, measurements, before=Before(before))


def as_statistics(measured: Measurement) -> Measurement:
    assert measured.golden is not None
    assert measured.target is not None
    return measure_statistics(measured.golden, measured.target)


@pytest.mark.parametrize("by_statistics", [True, False], ids=["statistics", "values"])
def test_what_a_step_may_have_turned_is_carried_on_where_statistics_cannot_tell(
    *, by_statistics: bool
) -> None:
    evidence = second_step(by_statistics=by_statistics)
    forward = next(row for row in evidence.rows if row.direction == "forward")
    apart, shown = apart_by_training(evidence, evidence.errors[forward.index]), training_of(evidence)
    weight = values_of("weight")
    expected = (
        2.0 * RATE * math.sqrt(weight.size * (9.0 * NOISE + 1.0 / weight.size)) if by_statistics else 0.0
    )
    assert apart * np.linalg.norm(weight) == pytest.approx(expected, rel=1e-3)
    assert shown is not None
    assert shown.parameters["fc:weight"].difference == pytest.approx(expected, rel=1e-3)
