"""The first-order bounds hold for the real operators, forward and backward, and are not much too wide.

The exact run is torch's in float64; the other one runs in a coarser dtype, on inputs that are off by a drawn
error and rounded. Or both run in that dtype on equal inputs, and add up in another order. A bound is made of
what a dump of values would tell of the two runs. As in the verdict, it is the largest of what the model says,
the worst input and one rounding, and a few times that is the limit.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from library.verdict.real_operators import OPERATORS, Operator, normalised
from msgspec.structs import replace
from torch.nn import functional

from firstdrift.operators.kinds import ErrorModel, snake_case
from firstdrift.operators.properties import parameter_positions
from firstdrift.operators.registry import operators_named, registry
from firstdrift.verdict.error_model import Value, backward_bound, forward_bound, has_bound
from firstdrift.verdict.movable_thresholds import Thresholds

FACTOR = Thresholds().factor
ROUNDOFF: Final = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-11}
UNHURRIED = settings(deadline=None, derandomize=True, max_examples=20)

Tensor = torch.Tensor
Tensors = Sequence[Tensor]


class Drawn(NamedTuple):
    """A case: what data look like, how far off they are, and what everything else follows from.

    `kinds` are those of the inputs, one after the other, and of the gradient; `noise` is an exponent of two.
    """

    sizes: Mapping[str, int]
    kinds: tuple[str, ...]
    scales: tuple[int, ...]
    noise: tuple[int, ...]
    dtype: torch.dtype
    seed: int


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Spare small tensors the threads of torch, which take far longer than they do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SIZES: Final = {
    "b": (1, 3),
    "c": (1, 4),
    "h": (2, 8),
    "r": (1, 8),
    "k": (1, 32),
    "w": (2, 64),
    "n": (8, 64),
    "s": (3, 8),
}
"""Smallest and largest of each dimension; n is that of norms: few elements may be all but equal by chance."""

KINDS = ("normal", "with a mean", "cancelling", "heavy rows", "heavy tails", "sparse")


def shape_of(word: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(letter) if letter.isdigit() else sizes[letter] for letter in word)


def data(
    kind: str, shape: tuple[int, ...], chance: np.random.Generator, before: Sequence[np.ndarray]
) -> np.ndarray:
    """Return values of about 1 that look like something."""
    made = chance.standard_normal(shape)
    if kind == "with a mean":
        return made + chance.choice([-1, 1]) * chance.uniform(1, 30)
    if kind == "cancelling" and before and before[0].shape == shape:
        return chance.choice([-1, 1]) * before[0] + 0.01 * made
    if kind == "cancelling":
        half = shape[-1] // 2
        made[..., half : 2 * half] = 0.01 * made[..., half : 2 * half] - made[..., :half]
    if kind == "heavy rows":
        # Massive ones: of rows far below all others the largest element and the norm tell nothing.
        made *= np.exp(np.abs(chance.standard_normal((*shape[:-1], 1))))
    if kind == "heavy tails":
        made = chance.standard_t(3, shape)
    if kind == "sparse":
        made *= chance.random(shape) < 0.5
    return made


def values_of(drawn: Drawn, operator: Operator, chance: np.random.Generator) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for place, word in enumerate(operator.shapes.split()):
        made = data(drawn.kinds[place], shape_of(word, drawn.sizes), chance, found)
        found.append(np.abs(made) + 0.25 if place in operator.positive else made)
    return [made * 2.0**scale for made, scale in zip(found, drawn.scales, strict=False)]


def rounded(exact: np.ndarray, noise: int, dtype: torch.dtype, chance: np.random.Generator) -> Tensor:
    """Return what the other run holds: off by a share of each element, or of its row, and rounded."""
    size = np.abs(exact)
    if exact.ndim and chance.random() < 0.5 and exact.min() < 0.0 < exact.max():
        size = np.sqrt(np.mean(exact**2, axis=-1, keepdims=True))
    size = np.where(exact == 0.0, 0.0, size)  # what was left out is left out in both runs
    off = chance.standard_normal(exact.shape) * size * 2.0**noise if noise else 0.0
    return torch.from_numpy(np.asarray(exact + off)).to(dtype)


def value(key: int, exact: Tensor, other: Tensor, roundoff: float) -> Value:
    """Return what a dump of values tells of a tensor."""
    exact, other = exact.double(), other.double()
    norm, off = float(exact.norm()), other - exact
    largest = float(exact.abs().max())
    return Value(
        key=str(key),
        size=exact.numel(),
        norm=norm,
        minimum=float(exact.min()),
        maximum=float(exact.max()),
        deviation=float(exact.std(correction=0)),
        error=max(float(off.norm()) / norm if norm else 0.0, roundoff),
        largest_error=max(float(off.abs().max()), roundoff * largest),
        shape=tuple(exact.shape),
        roundoff=roundoff,
        is_exact=True,
        relative=relative_error(exact, off, roundoff),
        drift=float(off.sum()),
    )


def relative_error(exact: Tensor, off: Tensor, roundoff: float) -> float:
    if bool(off[exact == 0.0].any()):
        return math.inf
    return max(float((off / exact.where(exact != 0.0, 1.0)).abs().max()), roundoff)


class Side(NamedTuple):
    """A run: what went in, what came out, the gradient that was given, and those that it gave."""

    given: Tensors
    made: Tensor
    gradient: Tensor
    gradients: Sequence[Tensor | None]


class Both(NamedTuple):
    """Two runs of an operator, and the roundoff of the coarser one."""

    operator: Operator
    golden: Side
    target: Side
    roundoff: float


def run(operator: Operator, given: Tensors, gradient: Tensor) -> Side:
    leaves = [one.detach().requires_grad_() for one in given]
    made = operator.apply(*leaves)
    made.backward(gradient.to(made.dtype))
    return Side([one.detach() for one in leaves], made.detach(), gradient, [one.grad for one in leaves])


def gradient_of(drawn: Drawn, operator: Operator, given: Tensors, chance: np.random.Generator) -> np.ndarray:
    shape = tuple(operator.apply(*given).shape)
    gradient = data(drawn.kinds[-1], shape or (1,), chance, []) * 2.0 ** drawn.scales[-1]
    return gradient.reshape(shape)


def exact_and_coarse(drawn: Drawn, operator: Operator) -> Both:
    """Run an operator in float64, and in a dtype on inputs that are off."""
    chance = np.random.default_rng(drawn.seed)
    values = values_of(drawn, operator, chance)
    exact = [torch.from_numpy(one) for one in values]
    other = [
        rounded(one, noise, drawn.dtype, chance) for one, noise in zip(values, drawn.noise, strict=False)
    ]
    gradient = gradient_of(drawn, operator, exact, chance)
    coarse = rounded(gradient, drawn.noise[-1], drawn.dtype, chance)
    golden, target = (
        run(operator, exact, torch.from_numpy(gradient)),
        run(operator, other, coarse),
    )
    return Both(operator, golden, target, ROUNDOFF[drawn.dtype])


def in_another_order(drawn: Drawn, operator: Operator) -> Both:
    """Run an operator twice on equal inputs; the second time what it adds up lies the other way round."""
    chance = np.random.default_rng(drawn.seed)
    values = values_of(drawn, operator, chance)
    given = [torch.from_numpy(one).to(drawn.dtype) for one in values]
    gradient = torch.from_numpy(gradient_of(drawn, operator, given, chance)).to(drawn.dtype)
    words = operator.shapes.split()
    golden = run(operator, given, gradient)
    turned = [_turned(one, word, operator.adds_up) for one, word in zip(given, words, strict=True)]
    back = words[0] if operator.model is ErrorModel.EXPONENTIAL else ""  # a softmax keeps what it adds up
    other = run(operator, turned, _turned(gradient, back, operator.adds_up))
    target = Side(
        given,
        _turned(other.made, back, operator.adds_up),
        gradient,
        [
            None if one is None else _turned(one, word, operator.adds_up)
            for one, word in zip(other.gradients, words, strict=True)
        ],
    )
    return Both(operator, golden, target, ROUNDOFF[drawn.dtype])


def _turned(one: Tensor, word: str, letter: str) -> Tensor:
    return one.flip([at for at, each in enumerate(word) if each == letter])


class Seen(NamedTuple):
    """The error of a tensor, what explains it, and of how many elements it is."""

    error: float
    bound: float
    size: int

    @property
    def is_explained(self) -> bool:
        return self.error <= FACTOR * (1.0 + 2.0 / math.sqrt(self.size)) * self.bound

    @property
    def width(self) -> float:
        """How many times the error is explained."""
        return self.bound / self.error if self.error else math.inf


def seen(golden: Tensor, target: Tensor, bound: float) -> Iterator[Seen]:
    """Yield what is seen of a tensor, if the run could write it.

    Infinities and what underflows are no errors of rounding, and have rules of their own.
    """
    largest = float(golden.abs().max()) if golden.numel() else 0.0
    least = torch.finfo(target.dtype).tiny if target.dtype.is_floating_point else 0.0
    if target.isfinite().all() and largest > 4.0 * least:
        norm = float(golden.double().norm())
        yield Seen(float((target.double() - golden.double()).norm()) / norm, bound, golden.numel())


def known(golden: Tensors, target: Tensors, roundoff: float) -> list[Value]:
    return [value(at, *pair, roundoff) for at, pair in enumerate(zip(golden, target, strict=True))]


def forward_seen(both: Both) -> Iterator[Seen]:
    operator, golden, target, roundoff = both
    given = _given(both)
    (made,) = known([golden.made], [target.made], roundoff)
    weights = parameter_positions(operator.called)
    worst = max(one.error for one in given if one.key not in weights)
    yield from seen(golden.made, target.made, max(forward_bound(operator.model, given, made), worst))


def backward_seen(both: Both) -> Iterator[Seen]:
    operator, golden, target, roundoff = both
    kept = _given(both)
    result = known([golden.made], [target.made], roundoff)
    (gradient,) = known([golden.gradient], [target.gradient], roundoff)
    for at, (one, other) in enumerate(zip(golden.gradients, target.gradients, strict=True)):
        if one is None or other is None:
            continue
        made = value(at, one, other, roundoff)
        bound = backward_bound(operator.model, [gradient], kept, result, made)
        yield from seen(one, other, max(bound, gradient.error))


def _given(both: Both) -> list[Value]:
    given = known(both.golden.given, both.target.given, both.roundoff)
    power = both.operator.number
    roles = both.operator.roles.split()
    given = [replace(one, role=role) for one, role in zip(given, roles, strict=False)] if roles else given
    if "training" in roles:
        given.append(Value("training", 1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, role="training"))
    return given if power is None else [*given, Value("power", 1, power, power, power, 0.0, 0.0, 0.0)]


EXPONENTS = st.just(0) | st.integers(-24, -7)


@st.composite
def cases(draw: st.DrawFn) -> Drawn:
    """Draw what everything else follows from; an exponent of 0 stands for no error."""
    sizes = {letter: draw(st.integers(*ends)) for letter, ends in SIZES.items()}
    return Drawn(
        sizes,
        tuple(draw(st.tuples(*[st.sampled_from(KINDS)] * 6))),
        tuple(draw(st.tuples(*[st.integers(-4, 4)] * 6))),
        tuple(draw(st.tuples(*[EXPONENTS] * 6))),
        draw(st.sampled_from(list(ROUNDOFF))),
        draw(st.integers(0, 2**32 - 1)),
    )


def fixed_cases(count: int) -> Iterator[Drawn]:
    chance = np.random.default_rng(7)
    for _ in range(count):
        yield Drawn(
            {letter: int(chance.integers(*ends, endpoint=True)) for letter, ends in SIZES.items()},
            tuple(chance.choice(KINDS, 6)),
            tuple(int(one) for one in chance.integers(-4, 5, 6)),
            tuple(int(one) for one in chance.integers(-24, -6, 6)),
            list(ROUNDOFF)[chance.integers(3)],
            int(chance.integers(2**32)),
        )


BACKWARD: Final = [name for name, one in OPERATORS.items() if has_bound(one.model)]
ADDING: Final = [name for name, one in OPERATORS.items() if one.adds_up]


def test_every_operator_of_the_registry_with_a_model_is_among_them() -> None:
    named = [operators_named(snake_case(one.called)) for one in OPERATORS.values()]
    tried = {id(next(entry for entry in entries if entry.error)) for entries in named}
    assert [name for name, one in registry().operators.items() if one.error and id(one) not in tried] == []


@pytest.mark.parametrize("name", OPERATORS)
@UNHURRIED
@given(drawn=cases())
def test_no_output_is_further_off_than_is_explained(name: str, drawn: Drawn) -> None:
    assert all(one.is_explained for one in forward_seen(exact_and_coarse(drawn, OPERATORS[name])))


@pytest.mark.parametrize("name", BACKWARD)
@UNHURRIED
@given(drawn=cases())
def test_no_gradient_is_further_off_than_is_explained(name: str, drawn: Drawn) -> None:
    assert all(one.is_explained for one in backward_seen(exact_and_coarse(drawn, OPERATORS[name])))


@pytest.mark.parametrize("name", ADDING)
@UNHURRIED
@given(drawn=cases())
def test_another_order_of_a_sum_is_explained(name: str, drawn: Drawn) -> None:
    both = in_another_order(drawn, OPERATORS[name])
    assert all(one.is_explained for one in (*forward_seen(both), *backward_seen(both)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_kernel_may_add_up_the_gradients_of_a_norm_in_their_dtype(dtype: torch.dtype) -> None:
    """Of 2048 rows in bfloat16 little is left: the sum no longer moves when a row is added."""
    chance = np.random.default_rng(3)
    given = [torch.from_numpy(chance.standard_normal(shape)) for shape in ((2048, 32), (32,), (32,))]
    gradient = torch.from_numpy(chance.standard_normal((2048, 32)) + 0.5)
    operator = Operator("layer_norm", normalised(functional.layer_norm), "")
    exact = run(operator, given, gradient)
    other = run(operator, [one.to(dtype) for one in given], gradient.to(dtype))
    assert all(one.is_explained for one in backward_seen(Both(operator, exact, other, ROUNDOFF[dtype])))


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
def test_errors_of_one_sign_add_up_in_the_gradient_of_a_bias(name: str) -> None:
    chance = np.random.default_rng(11)
    operator = OPERATORS[name]
    shapes = {"layer_norm": ((4, 64, 32), (32,), (32,)), "batch_norm": ((4, 32, 8, 8), (32,), (32,))}[name]
    given = [torch.from_numpy(chance.standard_normal(shape)) for shape in shapes]
    gradient = torch.from_numpy(chance.standard_normal(shapes[0]))
    golden, target = run(operator, given, gradient), run(operator, given, gradient + 1e-3)
    *_, of_bias = backward_seen(Both(operator, golden, target, ROUNDOFF[torch.float32]))
    assert of_bias.error > 10 * 1e-3
    assert of_bias.is_explained


@pytest.mark.parametrize("name", ["sum of all", "mean of all"])
def test_of_a_whole_tensor_a_sum_is_off_by_what_its_terms_are_and_no_more(name: str) -> None:
    given = torch.from_numpy(np.random.default_rng(2).standard_normal((64, 64)))
    operator, gradient = OPERATORS[name], torch.ones((), dtype=torch.float64)
    golden, target = (run(operator, [one], gradient) for one in (given, given + 1e-3))
    both = Both(operator, golden, target, ROUNDOFF[torch.float32])
    (healthy,) = forward_seen(both)
    assert healthy.is_explained
    further = golden.made + 12.0 * (target.made - golden.made)
    (faulty,) = forward_seen(both._replace(target=target._replace(made=further)))
    assert not faulty.is_explained


@pytest.mark.parametrize(("name", "apart"), [("l1_loss", 0.004), ("mse_loss", 0.1)])
def test_a_loss_that_is_more_than_a_mean_can_be_was_added_up(name: str, apart: float) -> None:
    """Errors that all have the sign of the difference add up; by chance they hardly do."""
    operator = Operator(name, lambda *given: getattr(functional, name)(*given, reduction="sum"), "rw rw")
    chance, gradient = np.random.default_rng(5), torch.ones((), dtype=torch.float64)
    first, noise = (torch.from_numpy(chance.standard_normal((32, 64))) for _ in range(2))
    exact = [first, first + apart * noise]
    other = [first, exact[1] + 2.0**-9 * exact[1].abs() * noise.sign()]
    golden, target = run(operator, exact, gradient), run(operator, other, gradient)
    both = Both(operator, golden, target, ROUNDOFF[torch.bfloat16])
    assert all(one.is_explained for one in (*forward_seen(both), *backward_seen(both)))


def test_a_single_gate_that_flips_is_explained_and_a_fault_of_all_gradients_is_not() -> None:
    given = torch.linspace(-2.0, 2.0, 256, dtype=torch.float64)
    given[128] = 1e-9
    other = given.clone()
    other[128] = -1e-9
    gradient = torch.ones_like(given)
    operator = OPERATORS["relu"]
    golden, target = run(operator, [given], gradient), run(operator, [other], gradient)
    both = Both(operator, golden, target, ROUNDOFF[torch.float32])
    (flipped,) = backward_seen(both)
    assert flipped.error > 0.05
    assert flipped.is_explained
    halved = [0.5 * one for one in golden.gradients if one is not None]
    (faulty,) = backward_seen(both._replace(target=golden._replace(gradients=halved)))
    assert not faulty.is_explained


@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_explained_is_within_ten_times_of_what_is_seen_in_half_of_the_cases(name: str) -> None:
    pairs = [exact_and_coarse(drawn, OPERATORS[name]) for drawn in fixed_cases(60)]
    for look in (forward_seen, backward_seen) if name in BACKWARD else (forward_seen,):
        widths = [one.width for both in pairs for one in look(both)]
        assert len(widths) >= 40
        assert statistics.median(widths) <= 10.0


@pytest.mark.parametrize("name", OPERATORS)
def test_statistics_explain_no_less_than_values_of_the_same_errors(name: str) -> None:
    """What they tell of errors are lower bounds: nothing else holds of them."""
    operator = OPERATORS[name]
    for drawn in fixed_cases(8):
        both = exact_and_coarse(drawn, operator)
        (made,) = known([both.golden.made], [both.target.made], both.roundoff)
        of_values = _given(both)
        of_statistics = [replace(one, is_exact=False, relative=math.inf, drift=math.inf) for one in of_values]
        exact, least = (forward_bound(operator.model, one, made) for one in (of_values, of_statistics))
        assert exact <= least
