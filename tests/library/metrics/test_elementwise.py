import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from library.metrics.reference import reference_errors
from library.metrics.tensors_at_random import FLOATS, INTEGERS, pairs
from msgspec.structs import asdict, replace
from soak import recorded, rounds

from firstdrift.metrics.bits import NOWHERE, first_difference
from firstdrift.metrics.elementwise import machine_code
from firstdrift.metrics.elementwise.measure import Engine, compare_elements, measure_elements, summarise
from firstdrift.metrics.elementwise.rows import profile_of, row_profile
from firstdrift.metrics.measurement import PairErrors, RowProfile
from firstdrift.metrics.stored_format import stored_roundoff

NAN, INF = math.nan, math.inf
ENGINES: list[Engine] = ["numpy", "numba"]


def errors(golden: npt.ArrayLike, target: npt.ArrayLike, engine: Engine = "numpy") -> PairErrors:
    return measure_elements(np.asarray(golden), np.asarray(target), engine)[2]


def close(value: float | None, **tolerances: float) -> object:
    """Return what equals the value within tolerances; None equals None."""
    return None if value is None else pytest.approx(value, **tolerances)


def assert_agrees(measured: PairErrors, expected: dict[str, Any]) -> None:
    """Compare with the reference: counts and places exactly, sums to rounding."""
    found = asdict(measured)
    rows = expected.pop("rows_relative_l2")
    worst, row = found.pop("worst_row_relative_l2"), found.pop("worst_row")
    assert worst == pytest.approx(max(rows, default=0.0), rel=1e-12)
    assert row is None if not rows else rows[row] == pytest.approx(max(rows), rel=1e-12)
    absolute = expected["sum_absolute_difference"]
    assert found.pop("sum_difference") == pytest.approx(expected.pop("sum_difference"), abs=1e-12 * absolute)
    distance, similarity = expected.pop("cosine_distance"), expected.pop("cosine_similarity")
    assert found.pop("cosine_similarity") == close(similarity, abs=1e-12)
    assert found.pop("cosine_distance") == close(distance, rel=1e-9, abs=1e-14)
    assert found.pop("sqnr") == pytest.approx(expected.pop("sqnr"), abs=1e-9)
    for name, value in expected.items():
        assert found[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


NOTHING_DIFFERS = {"relative_l2": 0.0, "cosine_similarity": 1.0, "cosine_distance": 0.0, "sqnr": INF}


EDGE_CASES: dict[str, tuple[npt.ArrayLike, npt.ArrayLike, dict[str, Any]]] = {
    "finite": ([1.0, 2.0], [1.0, 3.0], {"equal": 1, "sum_squared_difference": 1.0}),
    "nan on both sides": (
        [NAN, 1.0],
        [NAN, 2.0],
        {"equal": 1, "mismatched_nonfinite": 0, "relative_l2": 1.0},
    ),
    "equal infinities": ([INF, -INF, 2.0], [INF, -INF, 2.0], {"equal": 3, **NOTHING_DIFFERS}),
    "opposite infinities": (
        [INF, 2.0],
        [-INF, 2.0],
        {"equal": 1, "mismatched_nonfinite": 1, **NOTHING_DIFFERS},
    ),
    "nan and infinity": ([NAN, 2.0], [INF, 2.0], {"mismatched_nonfinite": 1, "share_within_1e3": 0.5}),
    "nan on one side": ([1.0, 2.0], [NAN, 2.0], {"mismatched_nonfinite": 1, "sum_squared_golden": 4.0}),
    "no finite pair": ([NAN], [1.0], {"equal": 0, "max_absolute_at": None, "max_relative_error": None}),
    "both zero": ([0.0, 0.0], [0.0, 0.0], {"equal": 2, "max_relative_error": None, **NOTHING_DIFFERS}),
    "golden zero": ([0.0, 0.0], [0.0, 3.0], {"relative_l2": INF, "cosine_distance": None, "sqnr": -INF}),
    "golden zero, rows": ([0.0, 0.0], [0.0, 3.0], {"worst_row_relative_l2": INF, "share_within_5e3": 0.5}),
    "target zero": ([3.0, 4.0], [0.0, 0.0], {"relative_l2": 1.0, "cosine_similarity": None, "sqnr": 0.0}),
    "signs of zero": ([-0.0], [0.0], {"equal": 1, **NOTHING_DIFFERS}),
    "empty": ([], [], {"size": 0, "worst_row": None, "share_within_1e3": 1.0, **NOTHING_DIFFERS}),
    "scalar": (2.0, 3.0, {"size": 1, "worst_row": 0, "relative_l2": 0.5, "max_absolute_at": 0}),
    "scalar zero and infinity": (0.0, INF, {"equal": 0, "mismatched_nonfinite": 1}),
    "scalar whose square vanishes": (1e-200, -1e-200, {"equal": 0, "relative_l2": 2.0, "max_absolute_at": 0}),
    "opposite": ([3.0, 4.0], [-3.0, -4.0], {"cosine_similarity": -1.0, "relative_l2": 2.0}),
    "huge quotient": ([1.0, 5e-324], [1.0, 1.0], {"max_relative_error": INF, "mean_relative_error": INF}),
    "the bound itself": ([1e3, 1.0], [1001.0, 1.0], {"share_within_1e3": 0.5, "share_within_5e3": 1.0}),
    "target far larger": ([1e-45, 0.0], [0.0, 1.5], {"cosine_similarity": 0.0}),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("golden", "target", "expected"), EDGE_CASES.values(), ids=EDGE_CASES)
def test_edge_cases(
    engine: Engine, golden: npt.ArrayLike, target: npt.ArrayLike, expected: dict[str, Any]
) -> None:
    measured = errors(np.array(golden, float), np.array(target, float), engine)
    assert {name: getattr(measured, name) for name in expected} == expected


@recorded("numbers", "{} pairs of tensors, every metric of both engines as decimals of 300 digits give it")
@given(pairs())
@settings(max_examples=rounds(1000, 10_000), deadline=None)
def test_every_engine_measures_what_exact_arithmetic_gives(pair: tuple[np.ndarray, np.ndarray]) -> None:
    exact = reference_errors(*pair)
    for engine in ENGINES:
        assert_agrees(errors(*pair, engine), dict(exact))


def large_pair(seed: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Draw normal numbers and a noisy copy, sprinkled with zeros, equal places and non-finite numbers."""
    random = np.random.default_rng(seed)
    golden = random.normal(size=shape) * 10.0 ** random.integers(-3, 3)
    noise = random.normal(size=shape) * 10.0 ** random.integers(-12, 1)
    target = np.where(random.random(shape) < 0.1, golden, golden * (1 + noise))
    for array in (golden, target):
        array[random.random(shape) < 0.05] = 0.0
        if seed % 2 and dtype in FLOATS:
            array[random.random(shape) < 0.001] = random.choice([NAN, INF, -INF])
    with np.errstate(all="ignore"):
        return golden.astype(dtype), target.astype(dtype)


@recorded("numbers", "{} pairs of up to 65,000 elements, both engines alike across their blocks")
@given(
    st.integers(0, 2**32),
    st.sampled_from(FLOATS + INTEGERS),
    st.sampled_from(
        [(40_000,), (3, 20_000), (7, 2048), (9, 16_384), (5, 2049), (60_000, 1), (700, 64), (7, 9, 11)]
    ),
)
@example(1, np.dtype(np.float32), (3, 20_000))
@settings(max_examples=rounds(120, 1000), deadline=None)
def test_both_engines_agree_across_their_blocks(
    seed: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    golden, target = large_pair(seed, dtype, shape)
    left, right = measure_elements(golden, target, "numpy"), measure_elements(golden, target, "numba")
    for a, b in zip(left[:2], right[:2], strict=True):
        assert asdict(b) == pytest.approx(asdict(a), rel=1e-11)
    a, b = (asdict(side[2]) for side in (left, right))
    scale = a["sum_absolute_difference"]
    assert b.pop("sum_difference") == pytest.approx(a.pop("sum_difference"), abs=1e-12 * scale)
    assert b.pop("histogram") == a.pop("histogram")
    for name, value in a.items():
        assert b[name] == close(value, rel=1e-11, abs=1e-15), name


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_add_up_to_what_one_calculation_over_the_whole_gives(engine: Engine) -> None:
    golden, target = large_pair(2, np.dtype(np.float32), (50, 1234))
    x, y = golden.astype(np.float64), target.astype(np.float64)
    d = y - x
    measured = errors(golden, target, engine)
    rows = np.linalg.norm(d, axis=1) / np.maximum(np.linalg.norm(x, axis=1), np.linalg.norm(x) / np.sqrt(50))
    assert measured.relative_l2 == pytest.approx(np.linalg.norm(d) / np.linalg.norm(x), rel=1e-12)
    assert measured.cosine_similarity == pytest.approx(np.vdot(x, y) / np.linalg.norm(x) / np.linalg.norm(y))
    assert measured.worst_row_relative_l2 == pytest.approx(rows.max(), rel=1e-12)
    assert measured.worst_row == rows.argmax()
    assert measured.max_absolute_at == np.abs(d).argmax()
    assert sum(measured.histogram) == measured.size
    assert measured.histogram[0] == measured.equal == np.count_nonzero(d == 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_wrong_position_among_many_shows_in_the_worst_row(engine: Engine) -> None:
    golden = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)
    target = golden.copy()
    target[37] *= 1.5
    measured = errors(golden, target, engine)
    assert measured.worst_row == 37
    assert measured.worst_row_relative_l2 == pytest.approx(0.5, rel=0.1)
    assert measured.relative_l2 < 0.1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_relative_error_of_5e_9_in_float32_is_5e_9_and_not_0(engine: Engine) -> None:
    golden = np.random.default_rng(0).normal(size=1 << 20).astype(np.float32)
    target = golden.copy()
    target[::300] = np.nextafter(golden[::300], np.float32(np.inf))
    d = target.astype(np.float64) - golden
    true = np.linalg.norm(d) / np.linalg.norm(golden.astype(np.float64))
    assert 4e-9 < true < 6e-9
    measured = errors(golden, target, engine)
    assert measured.relative_l2 == pytest.approx(true, rel=1e-12)
    assert measured.cosine_distance == pytest.approx(true**2 / 2, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_half_precision_differences_do_not_overflow(engine: Engine) -> None:
    big = np.array([60_000], np.float16)
    assert errors(big, -big, engine).max_absolute_error == 120_000
    assert errors(np.array([3e38], np.float32), np.array([-3e38], np.float32), engine).relative_l2 == 2.0


@pytest.mark.parametrize(
    ("golden", "target", "difference"),
    [
        pytest.param(np.int64(2**53), np.int64(2**53 + 1), 1.0, id="int64"),
        pytest.param(np.uint64(2**64 - 1), np.uint64(2**64 - 3), -2.0, id="uint64"),
        pytest.param(np.int64(2**63 - 1), np.int64(-(2**63)), -(2.0**64), id="the-whole-range"),
        pytest.param(np.int64(-1), np.uint64(2**64 - 1), 2.0**64, id="signed-and-unsigned"),
        pytest.param(np.int64(2**53 + 1), np.uint64(2**53), -1.0, id="signed-and-unsigned-close"),
        pytest.param(np.int32(-1), np.uint64(1), 2.0, id="narrow-and-wide"),
        pytest.param(np.int64(2**53 + 1), np.bool_(True), -(2.0**53), id="integer-and-bool"),  # noqa: FBT003
    ],
)
def test_large_integers_are_subtracted_before_they_are_rounded(
    golden: npt.ArrayLike, target: npt.ArrayLike, difference: float
) -> None:
    measured = errors(golden, target)
    assert measured.sum_difference == difference
    assert measured.equal == 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e-324 * 2**20])
def test_ratios_of_extreme_float64_tensors_are_right(engine: Engine, scale: float) -> None:
    golden = np.array([1.0, 2.0, 4.0, 8.0]) * scale
    target = golden * np.array([1.0, 1.5, 1.0, 1.0])
    side, _, measured = measure_elements(golden, target, engine)
    assert measured.relative_l2 == pytest.approx(1 / math.sqrt(85))
    assert measured.max_absolute_error == pytest.approx(scale)
    assert side.norm == pytest.approx(math.sqrt(85) * scale)
    assert side.mean == pytest.approx(15 / 4 * scale)
    assert asdict(summarise(golden)) == pytest.approx(asdict(side))


def test_the_lowest_float64_as_a_mask_on_both_sides_is_measured() -> None:
    lowest = np.finfo(np.float64).min
    measured = errors([lowest, 1.0], [lowest, 2.0])
    assert (measured.equal, measured.relative_l2, measured.max_absolute_error) == (1, 0.0, 1.0)


def test_complex_numbers_are_compared_by_modulus() -> None:
    golden = np.array([3 + 4j, 0j, complex(NAN, 1), complex(INF, 0)], np.complex64)
    target = np.array([3 + 5j, 0j, complex(NAN, 2), complex(1, INF)], np.complex64)
    left, _, measured = measure_elements(golden, target)
    assert (left.maximum, left.nan, left.positive_infinity, left.zeros) == (5.0, 1, 1, 1)
    assert (measured.equal, measured.mismatched_nonfinite) == (2, 1)
    assert measured.max_absolute_error == 1.0
    assert measured.relative_l2 == pytest.approx(0.2)


@pytest.mark.parametrize("engine", ENGINES)
def test_dtypes_may_differ(engine: Engine) -> None:
    golden = np.linspace(-2, 2, 5001, dtype=np.float32)
    target = golden.astype(ml_dtypes.bfloat16)
    measured = errors(golden, target, engine)
    assert 0.0005 < measured.relative_l2 < 2**-8
    assert measured == errors(golden, target.astype(np.float64), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_views_read_only_and_foreign_byte_order_are_fine_and_nothing_is_written(engine: Engine) -> None:
    data = np.random.default_rng(0).normal(size=(50, 70)).astype(np.float32)
    golden, target = data[::2, ::-1].T, np.roll(data, 1)[::2, ::-1].T
    expected = errors(golden.copy(), target.copy(), engine)
    before = data.copy()
    data.flags.writeable = False
    assert errors(golden, target, engine) == expected
    assert errors(golden.astype(">f4"), target.astype(">f4"), engine) == errors(golden, target)
    misaligned = np.frombuffer(b"x" + golden.tobytes(), np.uint8)[1:].view(np.float32).reshape(golden.shape)
    assert errors(misaligned, target, engine) == expected
    assert (data == before).all()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_a_tensor_never_differs_from_itself(dtype: np.dtype[Any]) -> None:
    golden, _ = large_pair(3, dtype, (40, 1000))
    same = errors(golden, golden.copy())
    assert (same.equal, same.mismatched_nonfinite, same.relative_l2) == (golden.size, 0, 0.0)
    assert same.histogram == (golden.size,) + (0,) * 14
    if dtype in FLOATS:
        wide = errors(golden, golden.astype(np.float64))
        assert wide.sum_squared_target == pytest.approx(same.sum_squared_target)
        assert (
            replace(
                wide, sum_squared_golden=same.sum_squared_golden, sum_squared_target=same.sum_squared_target
            )
            == same
        )


@recorded("numbers", "{} pairs, one pass finds what a pass for each question finds")
@given(pairs())
@settings(max_examples=rounds(500, 4000), deadline=None)
def test_one_pass_finds_what_passes_for_each_question_find(pair: tuple[np.ndarray, np.ndarray]) -> None:
    golden, target = pair
    for engine in ENGINES:
        found = compare_elements(golden, target, engine)
        assert found.differs_at == first_difference(golden, target)
        if found.errors.equal == found.errors.size:
            continue
        assert found.roundoff == max(stored_roundoff(golden), stored_roundoff(target))
        if not found.errors.mismatched_nonfinite:
            assert_same_profile(
                profile_of(found.row_squared_difference, found.row_squared_golden),
                row_profile(golden, target),
            )


def assert_same_profile(found: RowProfile | None, expected: RowProfile | None) -> None:
    if found is None or expected is None:
        assert found is expected
    else:
        assert found.rows == expected.rows
        assert found.errors == pytest.approx(expected.errors, rel=1e-11, abs=1e-150, nan_ok=True)


@given(
    st.integers(0, 2**32),
    st.sampled_from(FLOATS),
    st.sampled_from([(2049,), (3, 1025), (33, 31), (5000, 1), (5, 1104)]),
)
@settings(max_examples=60, deadline=None)
def test_one_pass_finds_the_same_across_blocks(
    seed: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    golden, target = large_pair(seed, dtype, shape)
    target.reshape(-1)[: seed % golden.size] = golden.reshape(-1)[: seed % golden.size]
    found = compare_elements(golden, target, "numba")
    assert found.differs_at == first_difference(golden, target)
    if not found.errors.mismatched_nonfinite and found.differs_at != NOWHERE:
        assert_same_profile(
            profile_of(found.row_squared_difference, found.row_squared_golden), row_profile(golden, target)
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_the_format_that_float32_came_from_is_seen_beside_what_is_not_finite(engine: Engine) -> None:
    golden = np.linspace(-2, 2, 5001).astype(ml_dtypes.bfloat16).astype(np.float32)
    target = golden.copy()
    target[7], target[4000] = NAN, 0.0
    assert compare_elements(golden, target, engine).roundoff == 2.0**-9
    target[8] = np.float32(0.1)
    assert compare_elements(golden, target, engine).roundoff == 2.0**-9


def test_one_undecodable_dtype_is_named() -> None:
    with pytest.raises(ValueError, match="dtype <U1 are not numbers"):
        measure_elements(np.array(["a"]), np.array(["b"]))
    with pytest.raises(ValueError, match="shapes differ"):
        measure_elements(np.zeros(2), np.zeros(3))


def test_a_summary_counts_what_is_not_finite_and_leaves_it_out() -> None:
    side = summarise(np.array([NAN, INF, -INF, -INF, 0.0, 3.0, -4.0]))
    assert (side.size, side.nan, side.positive_infinity, side.negative_infinity, side.zeros) == (
        7,
        1,
        1,
        2,
        1,
    )
    assert (side.maximum, side.minimum, side.norm) == (3.0, -4.0, 5.0)
    assert side.mean == pytest.approx(-1 / 3)
    nothing = summarise(np.array([NAN]))
    assert (nothing.maximum, nothing.minimum, nothing.mean, nothing.norm) == (None, None, None, 0.0)


def test_sides_are_summed_over_their_own_finite_elements() -> None:
    golden, target, _ = measure_elements(np.array([NAN, 5.0, 1.0]), np.array([7.0, INF, 1.0]))
    assert (golden.maximum, target.maximum) == (5.0, 7.0)


IMPORTS = """
import sys
import numpy as np
from firstdrift.metrics.elementwise import measure as elementwise
from firstdrift.metrics.measure import measure_pair
def measure():
    pair = np.zeros(1 << 19, np.float32), np.ones(1 << 19, np.float32)
    return elementwise.measure_elements(*pair)[2]
"""


def run(code: str) -> None:
    command = [sys.executable, "-W", "error", "-c", IMPORTS + code]
    subprocess.run(command, check=True, timeout=100)


def test_a_small_comparison_does_not_pay_for_numba_or_torch() -> None:
    run("elementwise.prepare_engine(1 << 20); measure(); assert not {'numba', 'torch'} & set(sys.modules)")


def test_what_was_compiled_before_is_used_without_numba() -> None:
    run("elementwise.prepare_engine(1); measure()\nassert elementwise._load() and 'numba' not in sys.modules")


def test_the_kernel_is_compiled_for_very_much_data_only() -> None:
    run(
        "from firstdrift.metrics.elementwise import machine_code\n"
        "machine_code.load = lambda: None\n"
        "machine_code.compile_and_keep = sys.exit\n"
        "elementwise.prepare_engine(1 << 29)\n"
        "assert measure().size == 1 << 19 and 'numba' not in sys.modules"
    )


def test_what_is_compiled_on_the_way_is_told_before_and_used() -> None:
    run(
        "from firstdrift.metrics.elementwise import compiled, machine_code\n"
        "kept = machine_code.load()\n"
        "machine_code.load = lambda: None\n"
        "machine_code.compile_and_keep = lambda: kept\n"
        "told = []\n"
        "elementwise.prepare_engine(1 << 40, lambda: told.append(compiled._Process.kernel))\n"
        "assert told == [None] and elementwise._engine('auto', np.zeros(1)) is compiled"
    )


def test_without_numba_numpy_goes_on_working() -> None:
    run(
        "from firstdrift.metrics.elementwise import machine_code\n"
        "machine_code.load = lambda: None\n"
        "sys.modules['numba'] = None; elementwise.prepare_engine(1 << 40); assert measure().size == 1 << 19"
    )


@pytest.mark.parametrize("others_may", [0o770, 0o707])
def test_machine_code_that_others_may_have_put_there_is_not_run(tmp_path: Path, others_may: int) -> None:
    folder = tmp_path / "firstdrift"
    file = folder / "kernel.o"
    machine_code._write(file, b"code")
    assert machine_code._read(file) == b"code"
    folder.chmod(others_may)
    assert machine_code._read(file) is None
    folder.chmod(0o700)
    file.chmod(others_may)
    assert machine_code._read(file) is None
