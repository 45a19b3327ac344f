"""A fault of each kind is planted and named; healthy rounding is called rounding and nothing else."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.metrics.tensors_at_random import pairs

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.look import look_closely
from firstdrift.model.tensor import UNIT_ROUNDOFF

BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = ml_dtypes.float8_e4m3fn
SINGLE = UNIT_ROUNDOFF["float32"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def asked(
    golden: np.ndarray, target: np.ndarray, roundoff: float = SINGLE, **more: object
) -> tuple[Hint, ...]:
    return look_closely(golden, target, roundoff, **more).hints  # type: ignore[arg-type]


def said(hints: tuple[Hint, ...]) -> list[str]:
    return [hint.says for hint in hints]


X = normal(2, 16, 64)
LATE = np.arange(16)[:, None] >= 5
CHANNELS = normal(5, 896)


def changed(golden: np.ndarray, where: object, change: Callable[[np.ndarray], object]) -> np.ndarray:
    target = golden.copy()
    target[where] = change(target[where])
    return target


@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        (X, HintKind.EQUAL, "all elements are equal"),
        (X * 1.9, HintKind.SCALED, "golden x 1.9"),
        (X * 1.9 + 0.1, HintKind.SCALED, "golden x 1.9 + 0.1"),
        (X - 0.25, HintKind.SCALED, "golden - 0.25"),
        (-X, HintKind.SIGN, "sign flipped"),
        (-2 * X, HintKind.SIGN, "golden x -2"),
        (np.where(np.arange(64) % 3 == 0, -X, X), HintKind.SIGN, "34.4 % of the elements have"),
        (np.roll(X, 1, 1), HintKind.MOVED, "1 later along dimension 1"),
        (np.roll(X, -2, 1), HintKind.MOVED, "2 earlier along dimension 1"),
        (np.roll(X, 1, 2), HintKind.MOVED, "1 later along dimension 2"),
        (X[:, ::-1], HintKind.MOVED, "reverse order along dimension 1"),
        (X.transpose(1, 0, 2).reshape(X.shape), HintKind.MOVED, "dimensions in the order 1, 0, 2"),
        (X.reshape(2, 16, 2, 32).swapaxes(2, 3).reshape(X.shape), HintKind.MOVED, "in turn"),
        (np.clip(X, -9, 1.5), HintKind.SATURATED, "clipped at 1.5"),
        (np.clip(X, -1.25, 9), HintKind.SATURATED, "clipped at -1.25"),
        (X * 0, HintKind.CONSTANT, "target is zero everywhere"),
        (X * 0 + 3, HintKind.CONSTANT, "target is 3 everywhere"),
        (
            changed(X, (1, 3, 4), lambda _: np.nan),
            HintKind.NON_FINITE,
            "NaN at 1 place where golden has not, the first",
        ),
        (changed(X, (0, 2), lambda _: np.inf), HintKind.NON_FINITE, "infinities at 64 places"),
        (X.astype(BF16).astype("float32"), HintKind.ROUNDED, "golden rounded to bfloat16"),
        (X.astype("float16").astype("float32"), HintKind.ROUNDED, "golden rounded to float16"),
        (X.astype(FP8).astype("float32"), HintKind.ROUNDED, "rounded to float8_e4m3fn"),
        ((X.view("uint32") & 0xFFFF0000).view("float32"), HintKind.ROUNDED, "cut, not rounded, to bfloat16"),
        (changed(X, (slice(None), 3), lambda part: part * 1.9), HintKind.CONFINED, "index 3 of dimension 1"),
        (changed(X, (..., 5), lambda part: part + 1), HintKind.CONFINED, "index 5 of dimension 2"),
        (np.where(LATE, normal(*X.shape, seed=7), X), HintKind.CONFINED, "alone: from there on"),
    ],
)
def test_a_planted_fault_is_named(target: np.ndarray, kind: HintKind, words: str) -> None:
    hints = asked(X, np.ascontiguousarray(target, "float32"))
    assert hints[0].kind is kind
    assert words in hints[0].says


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", ["scaled", "moved", "head"])
def test_a_fault_is_named_through_rounding(fault: str, seed: int) -> None:
    golden = normal(5, 896, seed=seed)
    target = {
        "scaled": golden * 1.9,
        "moved": np.roll(golden, 1, 0),
        "head": changed(golden, (..., slice(128, 192)), lambda part: part * 1.5),
    }[fault].astype(BF16)
    first = asked(golden, target, UNIT_ROUNDOFF["bfloat16"], heads=14)
    assert len(first) == (2 if fault == "head" else 1)
    words = {"scaled": "golden x 1.9", "moved": "1 later along dimension 0", "head": "head 2 of 14"}[fault]
    assert words in first[0].says
    if fault == "head":
        assert said(first)[1] == "there, target is golden x 1.5"


def test_a_transposed_weight_is_named_whether_or_not_it_is_square() -> None:
    for shape in ((64, 64), (32, 64)):
        weight = normal(*shape)
        (hint,) = asked(weight, np.ascontiguousarray(weight.T).reshape(shape))
        assert hint.says == "target is golden transposed"


def test_heads_and_tokens_that_are_exchanged_are_named_where_a_side_has_them_apart() -> None:
    target = CHANNELS.reshape(5, 14, 64).swapaxes(0, 1).reshape(5, 896)
    assert asked(CHANNELS, target) == ()
    (hint,) = asked(CHANNELS, target, fine=(5, 14, 64))
    assert hint.says == "target is golden (5 x 14 x 64) with its dimensions in the order 1, 0, 2"


def product(a: np.ndarray, b: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """Multiply as a model of some format does, which adds up in float32 and rounds what goes in and out."""
    if dtype is None:
        return a @ b
    rounded = [array.astype(dtype).astype("float32") for array in (a, b)]
    return (rounded[0] @ rounded[1]).astype(dtype)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize(
    ("dtype", "words"), [(BF16, "bfloat16"), (np.dtype("float16"), "float16")], ids=["bfloat16", "float16"]
)
def test_healthy_rounding_is_called_rounding_and_nothing_else(
    dtype: np.dtype, words: str, outliers: bool, seed: int
) -> None:
    a, b = normal(32, 256, seed=seed), normal(256, 128, seed=seed + 100)
    if outliers:  # as the channels and tokens have that carry most of a language model's activations
        b[:, 7] *= 40
        a[0] *= 25
    golden, target = product(a, b), product(a, b, dtype)
    (hint,) = asked(golden, target, UNIT_ROUNDOFF[words])
    assert hint.kind is HintKind.ROUNDED
    assert hint.says == f"the difference has the size of rounding to {words}"


@pytest.mark.parametrize("seed", range(5))
def test_sums_in_another_order_are_rounding_to_the_format_they_have(seed: int) -> None:
    a, b = normal(32, 256, seed=seed), normal(256, 128, seed=seed + 100)
    (hint,) = asked(a @ b, a[:, ::-1] @ b[::-1])
    assert hint.says == "the difference has the size of rounding to float32"


def test_float32_that_was_computed_in_tf32_is_said_to_look_so() -> None:
    a, b = normal(32, 256), normal(256, 128, seed=1)
    in_tf32 = [((array.view("uint32") + 0x1000) & 0xFFFFE000).view("float32") for array in (a, b)]
    (hint,) = asked(a @ b, in_tf32[0] @ in_tf32[1])
    assert hint.says == "the difference has the size of rounding to TF32 or float16"


def test_values_that_have_nothing_in_common_have_no_hint() -> None:
    assert asked(X, normal(*X.shape, seed=5)) == ()


def test_zeros_of_an_activation_are_not_clipped() -> None:
    golden = np.maximum(X, 0)
    target = (golden + normal(*X.shape, seed=3) * 1e-2 * (golden > 0)).astype("float32")
    assert all(hint.kind is not HintKind.SATURATED for hint in asked(golden, np.maximum(target, 0)))


def test_a_large_tensor_is_asked_too_and_the_worst_row_is_among_what_is_seen() -> None:
    golden = np.lib.stride_tricks.as_strided(normal(64), (4096, 64), (0, 4))
    target = golden.copy()
    target[1001, 3] = 50
    seen = look_closely(golden, target, SINGLE, always=(1001 * 64 + 3,), budget=2**12)
    assert seen.every > 1
    assert seen.worst[0].index == (1001, 3)


@settings(deadline=None)
@given(pairs(), st.sampled_from([SINGLE, UNIT_ROUNDOFF["bfloat16"]]))
def test_whatever_the_values_are_there_is_an_answer(
    pair: tuple[np.ndarray, np.ndarray], roundoff: float
) -> None:
    golden, target = pair
    before = golden.tobytes(), target.tobytes()
    seen = look_closely(golden, target, roundoff)
    assert seen.shape == golden.shape
    assert (golden.tobytes(), target.tobytes()) == before
    equal = all(hint.kind is HintKind.EQUAL for hint in seen.hints) and bool(seen.hints)
    assert equal == (not seen.worst)
