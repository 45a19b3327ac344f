"""The first-order bounds hold for the real operators, forward and backward, and are not much too wide.

The exact run is torch's in float64; the other one runs in a coarser dtype, on inputs that are off by a drawn
error and rounded. A bound is made from what a dump would tell of the exact run and of the errors alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from torch.nn import functional

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict.error_model import Value, backward_bound, forward_bound
from firstdrift.verdict.movable_thresholds import Thresholds

FACTOR = Thresholds().factor
ROUNDOFF: Final = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-11}
UNHURRIED = settings(deadline=None, derandomize=True, max_examples=25)

Tensor = torch.Tensor
Tensors = Sequence[Tensor]


class Operator(NamedTuple):
    """An operator: what it does to errors, and the shapes of its inputs, a letter for each dimension.

    `positive` are the places of the inputs that it takes a root of, or divides by; `number` is a power.
    """

    model: ErrorModel
    apply: Callable[..., Tensor]
    shapes: str
    positive: tuple[int, ...] = ()
    number: float | None = None


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


def _normalised(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *weights: norm(x, x.shape[-1:], *weights, eps=1e-5)


def _cross_entropy(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1])


def _where(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(torch.arange(a.shape[-1]) % 3 == 0, a, b)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Spare small tensors the threads of torch, which take far longer than they do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SIZES: Final = {"b": (1, 3), "c": (1, 4), "h": (2, 8), "r": (1, 8), "k": (1, 32), "w": (2, 64)}
"""Smallest and largest of each dimension."""

M = ErrorModel
OPERATORS: Final = {
    "add": Operator(M.ADDITIVE, torch.add, "rw rw"),
    "add a bias": Operator(M.ADDITIVE, torch.add, "brw w"),
    "sub": Operator(M.ADDITIVE, torch.sub, "rw rw"),
    "cat": Operator(M.ADDITIVE, lambda *given: torch.cat(given), "rw kw"),
    "where": Operator(M.ADDITIVE, _where, "rw rw"),
    "gelu": Operator(M.SMOOTH, functional.gelu, "rw"),
    "silu": Operator(M.SMOOTH, functional.silu, "rw"),
    "sin": Operator(M.SMOOTH, torch.sin, "rw"),
    "relu": Operator(M.KINKED, torch.relu, "rw"),
    "clamp": Operator(M.KINKED, lambda x: torch.clamp(x, -0.5, 1.0), "rw"),
    "max_pool": Operator(M.KINKED, lambda x: functional.max_pool2d(x, 2), "bchh"),
    "sum": Operator(M.SUMMED, lambda x: x.sum(-1), "rw"),
    "sum of all": Operator(M.SUMMED, torch.sum, "rw"),
    "mean": Operator(M.AVERAGED, lambda x: x.mean(-1), "rw"),
    "mean of all": Operator(M.AVERAGED, torch.mean, "rw"),
    "mse_loss": Operator(M.SQUARED, functional.mse_loss, "rw rw"),
    "mse_loss, each": Operator(
        M.SQUARED, lambda *given: functional.mse_loss(*given, reduction="none"), "rw rw"
    ),
    "l1_loss": Operator(M.AVERAGED, functional.l1_loss, "rw rw"),
    "mul": Operator(M.MULTIPLIED, torch.mul, "rw rw"),
    "mul by a row": Operator(M.MULTIPLIED, torch.mul, "brw w"),
    "div": Operator(M.DIVIDED, torch.div, "rw rw", positive=(1,)),
    "div by a row": Operator(M.DIVIDED, torch.div, "brw w", positive=(1,)),
    "square": Operator(M.POWER, lambda x: x**2, "rw", number=2.0),
    "cube": Operator(M.POWER, lambda x: x**3, "rw", number=3.0),
    "sqrt": Operator(M.ROOT, torch.sqrt, "rw", positive=(0,)),
    "rsqrt": Operator(M.INVERSE_ROOT, torch.rsqrt, "rw", positive=(0,)),
    "linear": Operator(M.PRODUCT, functional.linear, "brk wk w"),
    "matmul": Operator(M.PRODUCT, torch.matmul, "brk bkw"),
    "conv2d": Operator(M.CONVOLVED, lambda *given: functional.conv2d(*given, padding=1), "bchh kc33 k"),
    "softmax": Operator(M.EXPONENTIAL, lambda x: x.softmax(-1), "rw"),
    "exp": Operator(M.EXPONENTIAL, torch.exp, "rw"),
    "log_softmax": Operator(M.LOGARITHMIC, lambda x: x.log_softmax(-1), "rw"),
    "logsumexp": Operator(M.LOGARITHMIC, lambda x: x.logsumexp(-1), "rw"),
    "cross_entropy": Operator(M.LOGARITHMIC, _cross_entropy, "rw"),
    "layer_norm": Operator(M.CENTRED, _normalised(functional.layer_norm), "brw w w"),
    "rms_norm": Operator(M.SCALED, _normalised(functional.rms_norm), "brw w"),
}
BACKWARD: Final = [name for name in OPERATORS if name not in {"log_softmax", "logsumexp", "l1_loss"}]
"""Norms bound neither a gradient for each element of a logarithm, nor how many signs of differences turn."""

WIDE: Final = {M.KINKED, M.DIVIDED}
"""Whether one of few elements flips is chance; and the smallest divisor alone decides what is explained."""

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
    if chance.random() < 0.5 and exact.min() < 0.0 < exact.max():
        size = np.sqrt(np.mean(exact**2, axis=-1, keepdims=True))
    size = np.where(exact == 0.0, 0.0, size)  # what was left out is left out in both runs
    off = chance.standard_normal(exact.shape) * size * 2.0**noise if noise else 0.0
    return torch.from_numpy(exact + off).to(dtype)


def value(key: int, exact: Tensor, other: Tensor, roundoff: float) -> Value:
    """Return what a dump tells of a tensor."""
    norm, off = float(exact.norm()), other.double() - exact
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
    )


class Side(NamedTuple):
    """A run: what went in, what came out, the gradient that was given, and those that it gave."""

    given: Tensors
    made: Tensor
    gradient: Tensor
    gradients: Tensors


def run(operator: Operator, given: Tensors, gradient: Tensor) -> Side:
    leaves = [one.detach().requires_grad_() for one in given]
    made = operator.apply(*leaves)
    made.backward(gradient)
    return Side([one.detach() for one in leaves], made.detach(), gradient, [one.grad for one in leaves])


def both(drawn: Drawn, operator: Operator) -> tuple[Side, Side]:
    chance = np.random.default_rng(drawn.seed)
    values = values_of(drawn, operator, chance)
    exact = [torch.from_numpy(one) for one in values]
    other = [
        rounded(one, noise, drawn.dtype, chance) for one, noise in zip(values, drawn.noise, strict=False)
    ]
    shape = tuple(operator.apply(*exact).shape)
    gradient = data(drawn.kinds[-1], shape or (1,), chance, []) * 2.0 ** drawn.scales[-1]
    coarse = rounded(gradient, drawn.noise[-1], drawn.dtype, chance)
    return (
        run(operator, exact, torch.from_numpy(gradient).reshape(shape)),
        run(operator, other, coarse.reshape(shape)),
    )


class Seen(NamedTuple):
    """The error of a tensor, what explains it, and of how many elements it is."""

    error: float
    bound: float
    size: int

    @property
    def is_explained(self) -> bool:
        return self.error <= FACTOR * (1.0 + 2.0 / math.sqrt(self.size)) * self.bound


def seen(exact: Tensor, other: Tensor, bound: float, roundoff: float) -> Iterator[Seen]:
    """Yield what is seen of a tensor, if the run could write it.

    Infinities and what underflows are no errors of rounding, and have rules of their own.
    """
    if other.isfinite().all() and float(exact.abs().max()) > 4.0 * torch.finfo(other.dtype).tiny:
        error = float((other.double() - exact).norm()) / float(exact.norm())
        yield Seen(error, max(bound, roundoff), exact.numel())


def known(golden: Tensors, target: Tensors, roundoff: float) -> list[Value]:
    return [value(at, *pair, roundoff) for at, pair in enumerate(zip(golden, target, strict=True))]


def forward_seen(drawn: Drawn, name: str) -> Iterator[Seen]:
    operator, roundoff = OPERATORS[name], ROUNDOFF[drawn.dtype]
    exact, other = both(drawn, operator)
    (made,) = known([exact.made], [other.made], roundoff)
    bound = forward_bound(operator.model, _given(operator, exact, other, roundoff), made)
    yield from seen(exact.made, other.made, bound, roundoff)


def backward_seen(drawn: Drawn, name: str) -> Iterator[Seen]:
    operator, roundoff = OPERATORS[name], ROUNDOFF[drawn.dtype]
    exact, other = both(drawn, operator)
    kept = _given(operator, exact, other, roundoff)
    result = known([exact.made], [other.made], roundoff)
    gradients = known([exact.gradient], [other.gradient], roundoff)
    made = known(exact.gradients, other.gradients, roundoff)
    for asked, golden, target in zip(made, exact.gradients, other.gradients, strict=True):
        bound = backward_bound(operator.model, gradients, kept, result, asked)
        if operator.model is M.KINKED:  # a share of many elements says nothing of a single one that flips
            bound += math.sqrt(2.0) * gradients[0].largest / asked.norm if asked.norm else math.inf
        yield from seen(golden, target, bound, roundoff)


def _given(operator: Operator, exact: Side, other: Side, roundoff: float) -> list[Value]:
    given = known(exact.given, other.given, roundoff)
    power = operator.number
    return given if power is None else [*given, Value("power", 1, power, power, power, 0.0, 0.0, 0.0)]


EXPONENTS = st.just(0) | st.integers(-24, -7)


@st.composite
def cases(draw: st.DrawFn) -> Drawn:
    """Draw what everything else follows from; an exponent of 0 stands for no error."""
    sizes = {letter: draw(st.integers(*ends)) for letter, ends in SIZES.items()}
    return Drawn(
        sizes,
        tuple(draw(st.tuples(*[st.sampled_from(KINDS)] * 4))),
        tuple(draw(st.tuples(*[st.integers(-4, 4)] * 4))),
        tuple(draw(st.tuples(*[EXPONENTS] * 4))),
        draw(st.sampled_from(list(ROUNDOFF))),
        draw(st.integers(0, 2**32 - 1)),
    )


def fixed_cases(count: int) -> Iterator[Drawn]:
    chance = np.random.default_rng(7)
    for _ in range(count):
        yield Drawn(
            {letter: int(chance.integers(*ends, endpoint=True)) for letter, ends in SIZES.items()},
            tuple(chance.choice(KINDS, 4)),
            tuple(int(one) for one in chance.integers(-4, 5, 4)),
            tuple(int(one) for one in chance.integers(-24, -6, 4)),
            list(ROUNDOFF)[chance.integers(3)],
            int(chance.integers(2**32)),
        )


@pytest.mark.parametrize("name", OPERATORS)
@UNHURRIED
@given(drawn=cases())
def test_no_output_is_further_off_than_is_explained(name: str, drawn: Drawn) -> None:
    assert all(one.is_explained for one in forward_seen(drawn, name))


@pytest.mark.parametrize("name", BACKWARD)
@UNHURRIED
@given(drawn=cases())
def test_no_gradient_is_further_off_than_is_explained(name: str, drawn: Drawn) -> None:
    assert all(one.is_explained for one in backward_seen(drawn, name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_kernel_may_add_up_the_gradients_of_a_norm_in_their_dtype(dtype: torch.dtype) -> None:
    """Of 2048 rows in bfloat16 little is left: the sum no longer moves when a row is added."""
    chance, norm = np.random.default_rng(3), _normalised(functional.layer_norm)
    given = [torch.from_numpy(chance.standard_normal(shape)) for shape in ((2048, 32), (32,), (32,))]
    gradient = torch.from_numpy(chance.standard_normal((2048, 32)) + 0.5)
    operator = Operator(M.CENTRED, norm, "")
    exact = run(operator, given, gradient)
    other = run(operator, [one.to(dtype) for one in given], gradient.to(dtype))
    roundoff = ROUNDOFF[dtype]
    kept, (result,) = known(exact.given, other.given, roundoff), known([exact.made], [other.made], roundoff)
    gradients = known([exact.gradient], [other.gradient], roundoff)
    for asked, golden, target in zip(
        known(exact.gradients, other.gradients, roundoff), exact.gradients, other.gradients, strict=True
    ):
        bound = backward_bound(M.CENTRED, gradients, kept, [result], replace(asked, roundoff=roundoff))
        assert all(one.is_explained for one in seen(golden, target, bound, roundoff))


@pytest.mark.parametrize("model", sorted({one.model for one in OPERATORS.values()}))
def test_what_is_explained_is_often_within_ten_times_of_what_is_seen(
    model: ErrorModel,
) -> None:
    names = [name for name, one in OPERATORS.items() if one.model is model]
    forward = [(forward_seen, name) for name in names]
    backward = [(backward_seen, name) for name in names if name in BACKWARD]
    found = [
        one for drawn in fixed_cases(40) for look, name in (*forward, *backward) for one in look(drawn, name)
    ]
    assert len(found) >= 40
    share = 1 / 3 if model in WIDE else 1 / 2
    assert sum(one.bound <= 10.0 * one.error for one in found) >= share * len(found)
