"""A fault of each kind is planted and named; healthy rounding is called rounding and nothing else."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.metrics.tensors_at_random import pairs
from messages import gaps_of

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.look import look_closely
from firstdrift.model.tensor import ROUNDING
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = ml_dtypes.float8_e4m3fn
SINGLE = ROUNDING["float32"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def asked(
    golden: np.ndarray, target: np.ndarray, roundoff: float = SINGLE, **more: object
) -> tuple[Hint, ...]:
    return look_closely(golden, target, roundoff, **more).hints  # type: ignore[arg-type]


approx = pytest.approx
GOLDEN, TARGET = side_named("golden"), side_named("target")
X = normal(2, 16, 64)
LATE = np.arange(16)[:, None] >= 5
CHANNELS = normal(5, 896)


def changed(golden: np.ndarray, where: object, change: Callable[[np.ndarray], object]) -> np.ndarray:
    target = golden.copy()
    target[where] = change(target[where])
    return target


@pytest.mark.parametrize(
    ("target", "kind", "says"),
    [
        (X, HintKind.EQUAL, {"hint.equal": {}}),
        (X * 1.9, HintKind.SCALED, {"hint.times": {"factor": approx(1.9)}}),
        (
            X * 1.9 + 0.1,
            HintKind.SCALED,
            {"hint.times": {"factor": approx(1.9)}, "hint.plus": {"shift": approx(0.1, rel=1e-3)}},
        ),
        (X - 0.25, HintKind.SCALED, {"hint.minus": {"line": GOLDEN, "shift": approx(0.25)}}),
        (-X, HintKind.SIGN, {"hint.flipped": {}}),
        (-2 * X, HintKind.SIGN, {"hint.times": {"factor": approx(-2)}}),
        (
            np.where(np.arange(64) % 3 == 0, -X, X),
            HintKind.SIGN,
            {"hint.other_sign": {"share": approx(34.375)}},
        ),
        (np.roll(X, 1, 1), HintKind.MOVED, {"hint.shifted_later": {"far": 1, "axis": 1}}),
        (np.roll(X, -2, 1), HintKind.MOVED, {"hint.shifted_earlier": {"far": 2, "axis": 1}}),
        (np.roll(X, 1, 2), HintKind.MOVED, {"hint.shifted_later": {"far": 1, "axis": 2}}),
        (X[:, ::-1], HintKind.MOVED, {"hint.reversed": {"axis": 1}}),
        (X[:, [3, 0, 2, 1, *range(4, X.shape[1])]], HintKind.MOVED, {"hint.reordered": {"axis": 1}}),
        (X.transpose(1, 0, 2).reshape(X.shape), HintKind.MOVED, {"hint.permuted": {"order": (1, 0, 2)}}),
        (X.reshape(2, 16, 2, 32).swapaxes(2, 3).reshape(X.shape), HintKind.MOVED, {"hint.interleaved": {}}),
        (np.clip(X, -9, 1.5), HintKind.SATURATED, {"hint.clipped": {"bound": 1.5}}),
        (np.clip(X, -1.25, 9), HintKind.SATURATED, {"hint.clipped": {"bound": -1.25}}),
        (X * 0, HintKind.CONSTANT, {"hint.zero": {"side": TARGET}}),
        (X * 0 + 3, HintKind.CONSTANT, {"hint.constant": {"side": TARGET, "value": 3.0}}),
        (
            changed(X, (1, 3, 4), lambda _: np.nan),
            HintKind.NON_FINITE,
            {"hint.non_finite": {"side": TARGET, "count": 1, "place": (1, 3, 4)}, "hint.nan": {}},
        ),
        (
            changed(X, (0, 2), lambda _: np.inf),
            HintKind.NON_FINITE,
            {"hint.non_finite": {"count": 64}, "hint.infinities": {}},
        ),
        (
            X.astype(BF16).astype("float32"),
            HintKind.ROUNDED,
            {"hint.rounded": {"side": TARGET, "format": "bfloat16"}},
        ),
        (
            X.astype("float16").astype("float32"),
            HintKind.ROUNDED,
            {"hint.rounded": {"side": TARGET, "format": "float16"}},
        ),
        (X.astype(FP8).astype("float32"), HintKind.ROUNDED, {"hint.rounded": {"format": "float8_e4m3fn"}}),
        (
            (X.view("uint32") & 0xFFFF0000).view("float32"),
            HintKind.ROUNDED,
            {"hint.cut": {"format": "bfloat16"}},
        ),
        (
            changed(X, (slice(None), 3), lambda part: part * 1.9),
            HintKind.CONFINED,
            {"hint.in_index": {"index": 3, "axis": 1}},
        ),
        (
            changed(X, (..., 5), lambda part: part + 1),
            HintKind.CONFINED,
            {"hint.in_index": {"index": 5, "axis": 2}},
        ),
        (np.where(LATE, normal(*X.shape, seed=7), X), HintKind.CONFINED, {"hint.from_there_on": {}}),
    ],
)
def test_a_planted_fault_is_named(
    target: np.ndarray, kind: HintKind, says: dict[str, dict[str, object]]
) -> None:
    hints = asked(X, np.ascontiguousarray(target, "float32"))
    assert hints[0].kind is kind
    for id, gaps in says.items():  # noqa: A001
        found = gaps_of(hints[0].says, id)
        assert {name: found[name] for name in gaps} == gaps


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", ["scaled", "moved", "head"])
def test_a_fault_is_named_through_rounding(fault: str, seed: int) -> None:
    golden = normal(5, 896, seed=seed)
    target = {
        "scaled": golden * 1.9,
        "moved": np.roll(golden, 1, 0),
        "head": changed(golden, (..., slice(128, 192)), lambda part: part * 1.5),
    }[fault].astype(BF16)
    first = asked(golden, target, ROUNDING["bfloat16"], heads=14)
    assert len(first) == (2 if fault == "head" else 1)
    if fault == "scaled":
        assert gaps_of(first[0].says, "hint.times")["factor"] == approx(1.9, rel=1e-3)
    elif fault == "moved":
        assert first[0].says == Message.of("hint.shifted_later", far=1, axis=0)
    else:
        assert gaps_of(first[0].says, "hint.head") == {"number": 2, "count": 14}
        assert first[1].says.id == "hint.there"
        assert gaps_of(first[1].says, "hint.times")["factor"] == approx(1.5, rel=1e-3)


def test_a_transposed_weight_is_named_whether_or_not_it_is_square() -> None:
    for shape in ((64, 64), (32, 64)):
        weight = normal(*shape)
        (hint,) = asked(weight, np.ascontiguousarray(weight.T).reshape(shape))
        assert hint.says == Message.of("hint.transposed")


def test_heads_and_tokens_that_are_exchanged_are_named_where_a_side_has_them_apart() -> None:
    target = CHANNELS.reshape(5, 14, 64).swapaxes(0, 1).reshape(5, 896)
    assert asked(CHANNELS, target) == ()
    (hint,) = asked(CHANNELS, target, fine=(5, 14, 64))
    assert hint.says == Message.of("hint.permuted", shape=(5, 14, 64), order=(1, 0, 2))


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
    (hint,) = asked(golden, target, ROUNDING[words])
    assert hint.kind is HintKind.ROUNDED
    assert hint.says == Message.of("hint.like_rounding", formats=(words,))


@pytest.mark.parametrize("seed", range(5))
def test_sums_in_another_order_are_rounding_to_the_format_they_have(seed: int) -> None:
    a, b = normal(32, 256, seed=seed), normal(256, 128, seed=seed + 100)
    (hint,) = asked(a @ b, a[:, ::-1] @ b[::-1])
    assert hint.says == Message.of("hint.like_rounding", formats=("float32",))


def test_float32_that_was_computed_in_tf32_is_said_to_look_so() -> None:
    a, b = normal(32, 256), normal(256, 128, seed=1)
    in_tf32 = [((array.view("uint32") + 0x1000) & 0xFFFFE000).view("float32") for array in (a, b)]
    (hint,) = asked(a @ b, in_tf32[0] @ in_tf32[1])
    assert hint.says == Message.of("hint.like_rounding", formats=("TF32", "float16"))


def test_values_that_have_nothing_in_common_have_no_hint() -> None:
    assert asked(X, normal(*X.shape, seed=5)) == ()


def dropped(values: np.ndarray, probability: float, seed: int = 3) -> np.ndarray:
    kept = np.random.default_rng(seed).random(values.shape) >= probability
    return np.where(kept, values / np.float32(1.0 - probability), np.float32(0.0))


@pytest.mark.parametrize("probability", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("on", ["golden", "target"])
def test_dropout_that_one_side_has_is_said_with_its_probability(probability: float, on: str) -> None:
    pair = {"golden": X, "target": X} | {on: dropped(X, probability)}
    (hint,) = asked(pair["golden"], pair["target"])
    assert hint.kind is HintKind.DROPPED
    said = gaps_of(hint.says, "hint.dropout")
    assert said["side"] == side_named(on)
    assert said["probability"] == approx(probability)
    assert said["share"] == approx(100 * probability, rel=0.2)


def test_elements_that_became_zero_are_counted() -> None:
    masked = np.where(np.random.default_rng(1).random(X.shape) < 0.25, np.float32(0.0), X)
    assert gaps_of(asked(X, masked)[0].says, "hint.zeroed")["share"] == approx(25, rel=0.1)
    tripled = gaps_of(asked(X, 3 * masked)[0].says, "hint.zeroed_scaled")
    assert (tripled["share"], tripled["factor"]) == (approx(25, rel=0.1), approx(3))


def test_an_activation_that_cuts_at_zero_is_named() -> None:
    assert asked(X, np.maximum(X, 0.0))[0].says == Message.of("hint.rectified", side=TARGET, other=GOLDEN)
    assert asked(np.maximum(X, 0.0), X)[0].says == Message.of("hint.rectified", side=GOLDEN, other=TARGET)


@pytest.mark.parametrize("roundoff", [SINGLE, ROUNDING["bfloat16"]])
def test_another_activation_is_no_dropout(roundoff: float) -> None:
    gelu = X / (1.0 + np.exp(-1.702 * X))
    assert all(hint.kind is not HintKind.DROPPED for hint in asked(gelu, np.maximum(X, 0.0), roundoff))


@pytest.mark.parametrize(("times", "by"), [(16.0, 16.0), (1 / 7, 1 / 7), (-2.0, -2.0)])
def test_a_single_number_is_a_whole_multiple(times: float, by: float) -> None:
    (hint,) = asked(np.float32(2.0145).reshape(()), np.float32(2.0145 * times * (1 + 1e-5)).reshape(()))
    assert gaps_of(hint.says, "hint.times")["factor"] == approx(by, rel=1e-3)


@pytest.mark.parametrize("times", [1.3, 16.3, 5000.0])
def test_a_single_number_is_any_other_multiple_by_chance(times: float) -> None:
    assert asked(np.float32(2.0145).reshape(()), np.float32(2.0145 * times).reshape(())) == ()


@pytest.mark.parametrize("rank", [1, 2, 8])
def test_what_an_adapter_adds_to_a_weight_has_a_low_rank(rank: int) -> None:
    weight = normal(64, 96)
    target = weight + 0.01 * normal(64, rank, seed=1) @ normal(rank, 96, seed=2)
    (hint,) = asked(weight, target)
    assert (hint.kind, hint.says.arguments) == (HintKind.LOW_RANK, {"rank": rank, "most": 64})


@pytest.mark.parametrize("rows", [[3, 20, 41, 60], [0]])
def test_few_rows_that_differ_are_no_adapter(rows: list[int]) -> None:
    weight = normal(64, 96)
    target = changed(weight, rows, lambda part: part + normal(len(rows), 96, seed=4))
    assert all(hint.kind is not HintKind.LOW_RANK for hint in asked(weight, target))


def test_zeros_that_explain_nothing_of_an_error_are_not_named() -> None:
    noise = 8 * SINGLE * normal(*X.shape, seed=2)
    small = np.where(np.abs(X) < 1e-2, np.float32(1e-9), X)
    target = np.where(small == np.float32(1e-9), np.float32(0.0), small * (1 + noise))
    assert all(hint.kind is not HintKind.DROPPED for hint in asked(small, target.astype("float32")))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_two_tensors_of_eight_bits_that_have_nothing_in_common_were_not_zeroed(dtype: type) -> None:
    one, other = (0.003 * normal(128, 128, seed=seed) for seed in (1, 2))
    pair = [side.astype(dtype) for side in (one, other)]
    assert all(hint.kind is not HintKind.DROPPED for hint in asked(*pair, ROUNDING[np.dtype(dtype).name]))


@pytest.mark.parametrize("dtype", ["float16", BF16])
@pytest.mark.parametrize("side", ["golden", "target"])
def test_what_one_side_computed_in_a_coarser_format_is_of_its_numbers(dtype: object, side: str) -> None:
    one, other = normal(32, 64, seed=1), normal(64, 48, seed=2)
    fine, coarse = one @ other, (one.astype(dtype) @ other.astype(dtype)).astype(dtype).astype("float32")
    pair = {"golden": fine, "target": fine} | {side: coarse}
    (hint,) = asked(pair["golden"], pair["target"])
    assert gaps_of(hint.says, "hint.numbers_of") == {
        "side": side_named(side),
        "other": side_named("target" if side == "golden" else "golden"),
        "format": np.dtype(dtype).name,
    }


def test_of_two_dtypes_one_is_of_coarser_numbers_anyway() -> None:
    fine = normal(32, 64) @ normal(64, 48, seed=2)
    coarse = (fine * (1 + 3e-4 * normal(32, 48, seed=3))).astype("float16")
    assert all(hint.says.id != "hint.numbers_of" for hint in asked(fine, coarse))


def test_what_masks_outweighs_nothing_where_values_are_looked_for() -> None:
    scores, columns = normal(2, 4, 16, 16), np.arange(16)
    lowest = np.float32(-3.4028235e38)
    mask = np.where(columns[:, None] >= columns, np.float32(0.0), lowest)
    later = np.where(columns[:, None] + 1 >= columns, np.float32(0.0), lowest)
    assert gaps_of(asked(mask, later)[0].says, "hint.shifted_earlier") == {"far": 1, "axis": 0}
    assert all(hint.kind is not HintKind.MOVED for hint in asked(scores + mask, scores + later))


def test_an_id_is_no_multiple_of_another() -> None:
    assert asked(np.array([[1]]), np.array([[7]])) == ()


def test_any_other_weight_differs_in_full_rank() -> None:
    assert asked(normal(64, 96), normal(64, 96, seed=1)) == ()


def test_two_that_changed_places_are_in_reverse_order_and_not_shifted() -> None:
    two = normal(2, 8, 16)
    assert gaps_of(asked(two, two[::-1])[0].says, "hint.reversed") == {"axis": 0}
    rounded = two[::-1].astype("float16").astype("float32")
    assert gaps_of(asked(two, rounded, ROUNDING["float16"])[0].says, "hint.reversed") == {"axis": 0}


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
@given(pairs(), st.sampled_from([SINGLE, ROUNDING["bfloat16"]]))
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
