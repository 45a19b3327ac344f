"""A dropout draws other numbers with every seed, and keeps its law: one probability, and its scale."""

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.verdict.made_slices import Array, Call, Judged, judge, values_of
from messages import ids_of

from firstdrift.metrics.measurement import SideSummary
from firstdrift.operators.properties import drops_elements
from firstdrift.verdict.dropouts import kept, unlike
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import NodeClass

Drop = Callable[[Array, int], Array]
DTYPES = {"float32": (np.float32, 2.0**-24), "bfloat16": (ml_dtypes.bfloat16, 2.0**-9)}


def drop(probability: float, scale: float | None = None) -> Drop:
    """Return a dropout; its scale is that of its law if none is given."""
    times = 1.0 / (1.0 - probability) if scale is None else scale

    def dropped(values: Array, seed: int) -> Array:
        stays = np.random.default_rng(seed).random(values.shape) >= probability
        return (values.astype(np.float64) * stays * times).astype(values.dtype)

    return dropped


def chain(golden: Drop, target: Drop, seeds: tuple[int, int] = (1, 101), name: str = "Dropout") -> Judged:
    """Judge four layers, each with a dropout that draws by a seed of its own."""
    calls, (one, other) = [], (values_of("words", (64, 64)), values_of("words", (64, 64)))
    for at in range(4):
        before = (one, other)
        one, other = golden(one, seeds[0] + at), target(other, seeds[1] + at)
        calls.append(Call(f"Module.layers.{at}.drop.{name}.forward.0", None, [before], [(one, other)]))
    return judge(*calls)


def summary(values: Array, *, is_read: bool) -> SideSummary:
    exact = values.astype(np.float64)
    zeros = int((exact == 0.0).sum()) if is_read else None
    norm = float(np.linalg.norm(exact))
    return SideSummary(
        exact.size, float(exact.max()), float(exact.min()), float(exact.mean()), norm, zeros=zeros
    )


SHAPES = st.sampled_from([(1, 8), (16, 32), (64, 64), (128, 256)])
KINDS = ("normal", "heavy tails", "one is large", "no less than 0")


def some_values(shape: Sequence[int], kind: str, chance: np.random.Generator) -> Array:
    made = chance.standard_normal(shape) if kind != "heavy tails" else chance.standard_t(3, shape)
    if kind == "one is large":
        made.flat[0] = 300.0
    return np.maximum(made, 0.0) if kind == "no less than 0" else made


@settings(deadline=None, derandomize=True, max_examples=400)
@given(
    SHAPES,
    st.sampled_from(KINDS),
    st.floats(0.01, 0.9),
    st.sampled_from(list(DTYPES)),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_other_seeds_are_no_fault(
    shape: tuple[int, ...], kind: str, probability: float, dtype: str, seed: int, is_read: bool
) -> None:
    kind_of_number, roundoff = DTYPES[dtype]
    given_to = some_values(shape, kind, np.random.default_rng(seed)).astype(kind_of_number)
    sides = [
        kept(summary(given_to, is_read=is_read), summary(gave, is_read=is_read))
        for gave in (drop(probability)(given_to, seed), drop(probability)(given_to, seed + 1))
    ]
    assert unlike(*sides, roundoff) is None


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        pytest.param(drop(0.1), drop(0.2), id="another-probability"),
        pytest.param(drop(0.5), drop(0.4), id="another-probability-of-many"),
        pytest.param(drop(0.1), drop(0.1, scale=1.0), id="no-scale"),
        pytest.param(drop(0.1), drop(0.1, scale=0.9), id="scaled-the-other-way"),
    ],
)
@pytest.mark.parametrize("seeds", [(1, 101), (1, 1)], ids=["other-seeds", "one-seed"])
def test_another_probability_or_scale_is_a_fault_of_the_dropout(
    golden: Drop, target: Drop, seeds: tuple[int, int]
) -> None:
    judged = chain(golden, target, seeds)
    assert judged.origins[0] == "Module.layers.0.drop.Dropout.forward.0"
    assert judged.first.node_class is NodeClass.SOURCE
    assert judged.of(judged.origins[0]).rule == "class.dropout"
    assert conclude([judged.said]).has_fault


def test_one_dropout_at_fault_is_named_beside_others_that_drew_other_numbers() -> None:
    values, off = values_of("words", (64, 64)), drop(0.1, scale=1.0)
    names = [f"Module.layers.{at}.drop.Dropout.forward.0" for at in range(4)]
    targets = [drop(0.1), drop(0.1), off, drop(0.1)]
    gave = [(drop(0.1)(values, at), one(values, at + 50)) for at, one in enumerate(targets)]
    judged = judge(
        *(Call(name, None, [(values, values)], [both]) for name, both in zip(names, gave, strict=True))
    )
    assert [one.rule for one in judged.said.systematic] == ["systematic.dropout"]
    assert judged.origins == [names[2]]


def test_healthy_dropouts_of_other_seeds_are_said_once() -> None:
    judged = chain(drop(0.1), drop(0.1))
    assert judged.origins == []
    assert [one.rule for one in judged.said.systematic] == ["systematic.dropout"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (drop(0.1, scale=1.0), "reason.dropout_factor"),
        (drop(0.6), "reason.dropout_share"),
    ],
)
def test_it_is_said_how(target: Drop, said: str) -> None:
    values = values_of("words", (64, 64))
    gave = [one(values, seed) for one, seed in ((drop(0.1), 1), (target, 2))]
    ends = [values.argmax(), values.argmin()]
    are_kept = said == "reason.dropout_factor"
    for one, scale in zip(gave, (np.float32(0.9), np.float32(1.0)), strict=True):
        one.flat[ends] = values.flat[ends] / scale if are_kept else 0.0
    judged = judge(Call("Functional.dropout.0.forward", None, [(values, values)], [tuple(gave)]))
    assert [said for reason in judged.first.reasons for said in ids_of(reason)] == [said]


def test_statistics_tell_it_by_the_norm_where_the_largest_was_dropped() -> None:
    values = values_of("words", (256, 256))
    sides = []
    for one, seed in ((drop(0.1), 1), (drop(0.1, scale=1.0), 2)):
        gave = one(values, seed)
        gave.flat[values.argmax()] = 0.0
        sides.append(kept(summary(values, is_read=False), summary(gave, is_read=False)))
    said = unlike(*sides, 2.0**-24)
    assert said is not None
    assert said.id == "reason.dropout_gain"


@pytest.mark.parametrize("name", ["Dropout2d", "AlphaDropout", "StableDropout"])
def test_what_drops_whole_channels_or_around_another_mean_has_another_law(name: str) -> None:
    assert not drops_elements(name)
    assert chain(drop(0.1), drop(0.2), name=name).origins == []


def test_a_dropout_with_another_argument_is_named_for_it() -> None:
    values = values_of("words", (64, 64))
    gave = drop(0.1)(values, 1), drop(0.2)(values, 2)
    names = [f"Functional.dropout.{at}.forward" for at in (0, 1)]
    judged = judge(*(Call(name, None, [(values, values), (0.1, 0.2)], [gave]) for name in names))
    assert judged.origins == names
    assert judged.first.node_class is NodeClass.STRUCTURE_DIFFERS
