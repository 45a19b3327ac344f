"""The numbers, against formulas written out in another way, and the laws that always hold."""

import math
from fractions import Fraction
from statistics import correlation, fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from library.rollout.rollout_rows import SAMPLES

from firstdrift.rollout.compare import compare_rollout
from firstdrift.rollout.read import read_side
from firstdrift.rollout.statistics import Statistics, differences, measure, third_estimate

NAN, INF = math.nan, math.inf
BAND = (0.8, 1.2)

log_probs = st.floats(-30, 0, width=32)
pairs_of = st.lists(st.tuples(log_probs, log_probs), min_size=1, max_size=50)


def measured(pairs: list[tuple[float, float]], band: tuple[float, float] = BAND) -> Statistics:
    rollout, trainer = np.array(pairs, np.float64).T
    return measure(rollout, trainer, band)


@pytest.mark.parametrize(
    ("rollout", "trainer", "expected"),
    [
        pytest.param(-1.0, -1.5, -0.5, id="finite"),
        pytest.param(-INF, -INF, 0.0, id="neither holds it possible"),
        pytest.param(-INF, -1.0, NAN, id="one does"),
        pytest.param(NAN, -1.0, NAN, id="NaN"),
        pytest.param(NAN, NAN, NAN, id="NaN on both sides is no agreement"),
    ],
)
def test_edge_cases(rollout: float, trainer: float, expected: float) -> None:
    found = differences(np.array([rollout]), np.array([trainer]))
    assert np.array_equal(found, [expected], equal_nan=True)


def test_the_numbers_of_a_sample_are_those_of_plain_formulas() -> None:
    report = compare_rollout(SAMPLES / "rollout.jsonl", SAMPLES / "shifted.jsonl")
    sides = [read_side(SAMPLES / f"{name}.jsonl", side).sequences for name, side in SIDES]
    q = [value for one in sides[0] for value in one.log_probs.tolist()]
    p = [value for one in sides[1] for value in one.log_probs.tolist()]
    d = [ours - theirs for ours, theirs in zip(p, q, strict=True)]
    apart = [abs(math.exp(ours) - math.exp(theirs)) for ours, theirs in zip(p, q, strict=True)]
    expected = {
        "mean": fmean(d),
        "mean_abs": fmean(map(abs, d)),
        "max_abs": max(map(abs, d)),
        "deviation": pstdev(d),
        "k1": -fmean(d),
        "k2": fmean(one * one / 2 for one in d),
        "k3": fmean(math.exp(one) - 1 - one for one in d),
        "mean_probability": fmean(apart),
        "max_probability": max(apart),
        "correlation": correlation(list(map(math.exp, p)), list(map(math.exp, q))),
        "outside": sum(not 0.8 <= math.exp(one) <= 1.2 for one in d),
        "lowest_ratio": math.exp(min(d)),
        "highest_ratio": math.exp(max(d)),
    }
    assert {name: getattr(report.statistics, name) for name in expected} == pytest.approx(expected, rel=1e-9)


SIDES = (("rollout", "rollout"), ("shifted", "trainer"))


def test_what_is_not_finite_is_counted_and_in_no_mean() -> None:
    found = measured([(-1.0, -1.25), (-1.0, NAN), (-INF, -1.0)])
    assert (found.tokens, found.not_finite, found.outside) == (3, 2, 3)
    assert (found.mean_abs, found.max_abs) == (0.25, INF)
    assert measured([(NAN, NAN)]) == Statistics(tokens=1, not_finite=1, outside=1, max_abs=INF)


def test_no_tokens_are_no_differences() -> None:
    assert measure(np.empty(0), np.empty(0), BAND) == Statistics(tokens=0, not_finite=0)


def test_the_edges_of_the_band_are_inside() -> None:
    assert measured([(0.0, 0.0)], (1.0, 1.0)).outside == 0
    assert measured([(-1.0, -1.0 - 1e-12)], (1.0, 1.0)).outside == 1


@given(st.floats(-1e-3, 1e-3))
def test_the_third_estimate_does_not_cancel(d: float) -> None:
    exact, term = Fraction(0), Fraction(1)
    for order in range(1, 12):
        term *= Fraction(d) / order
        exact += term if order > 1 else 0
    assert float(third_estimate(np.array([d]))[0]) == pytest.approx(float(exact), rel=1e-6, abs=1e-300)


@given(pairs_of)
def test_estimates_of_a_divergence_are_never_negative_but_the_first(pairs: list[tuple[float, float]]) -> None:
    found = measured(pairs)
    assert found.k2 is not None
    assert found.k3 is not None
    assert found.k2 >= 0
    assert found.k3 >= 0
    assert found.k1 == pytest.approx(-(found.mean or 0.0))


@given(pairs_of)
def test_sides_exchanged_turn_the_sign_alone(pairs: list[tuple[float, float]]) -> None:
    there, back = measured(pairs), measured([(ours, theirs) for theirs, ours in pairs])
    assert back.mean == pytest.approx(-(there.mean or 0.0))
    for name in ("mean_abs", "max_abs", "k2", "mean_probability", "max_probability", "correlation"):
        assert getattr(back, name) == pytest.approx(getattr(there, name))


@given(st.lists(log_probs, min_size=1, max_size=50))
def test_a_side_never_differs_from_itself(values: list[float]) -> None:
    found = measured([(one, one) for one in values])
    assert (found.mean_abs, found.max_abs, found.k2, found.k3, found.outside) == (0, 0, 0, 0, 0)


@given(pairs_of, st.randoms())
def test_the_order_of_tokens_does_not_matter(pairs: list[tuple[float, float]], random: st.DataObject) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    ours, theirs = measured(pairs), measured(shuffled)
    assert ours.k3 == pytest.approx(theirs.k3)
    assert (ours.outside, ours.max_abs) == (theirs.outside, theirs.max_abs)
