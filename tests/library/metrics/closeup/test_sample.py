from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from library.metrics.tensors_at_random import pairs

from firstdrift.metrics.closeup.area import difference_map, plane, values_around
from firstdrift.metrics.closeup.histogram import histograms
from firstdrift.metrics.closeup.profiles import guess_heads, profiles
from firstdrift.metrics.closeup.sample import Sample, coprime, distances, take_sample
from firstdrift.metrics.closeup.worst import ulp_dtype, ulps, worst_elements

shapes = st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple)


def numbers(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=shape).astype("float32"), random.normal(size=shape).astype("float32")


def far(golden: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Subtract element by element: what is equal is 0, what cannot be subtracted infinite."""
    x, y = golden.astype("complex128"), target.astype("complex128")
    with np.errstate(all="ignore"):
        difference = np.abs(y - x)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0, np.where(np.isfinite(difference), difference, np.inf))


@settings(deadline=None)
@given(pairs())
def test_a_sample_within_the_budget_is_the_whole_pair(pair: tuple[np.ndarray, np.ndarray]) -> None:
    golden, target = pair
    sample = take_sample(golden, target)
    assert sample.is_whole
    assert sample.distance.size == golden.size
    assert np.array_equal(sample.golden.reshape(golden.shape), golden.astype("float64"), equal_nan=True)
    if golden.dtype.itemsize < 8 and target.dtype.itemsize < 8:
        assert np.allclose(sample.distance.reshape(golden.shape), far(golden, target), rtol=1e-12, atol=0)


@settings(deadline=None)
@given(shapes, st.integers(1, 50), st.data())
def test_what_is_left_out_is_said_and_every_index_is_met(
    shape: tuple[int, ...], budget: int, data: st.DataObject
) -> None:
    golden, target = numbers(shape)
    known = data.draw(st.lists(st.integers(0, golden.size - 1), max_size=2))
    sample = take_sample(golden, target, budget, known)
    table = golden.reshape(-1, sample.shape[-1])
    assert np.array_equal(sample.golden, table[np.ix_(sample.rows, sample.columns)])
    for at in known:
        assert at // sample.shape[-1] in sample.rows
        assert at % sample.shape[-1] in sample.columns
    for axis, size in enumerate(sample.shape[:-1]):
        rows = prod(sample.shape[:-1])
        if rows // sample.every >= size * sample.every:
            assert set(sample.indexes(axis).tolist()) == set(range(size))


@settings(deadline=None)
@given(st.integers(1, 500), st.lists(st.integers(1, 60), max_size=3))
def test_a_step_shares_no_factor_with_any_dimension(step: int, dimensions: list[int]) -> None:
    found = coprime(step, dimensions)
    assert found >= step
    assert all(np.gcd(found, size) == 1 for size in dimensions if found > 1)


def test_a_large_tensor_is_not_read_as_a_whole() -> None:
    # More than there is memory for: what is looked at is all that exists of it.
    seen = np.lib.stride_tricks.as_strided(np.ones(1, "float32"), (2**24, 2**16), (0, 0))
    sample = take_sample(seen, seen, 10_000)
    assert 5_000 < sample.distance.size < 200_000
    area = difference_map(seen, seen, (0, 1), (0, 0), budget=100_000)
    assert (len(area.cells), len(area.cells[0])) == (256, 256)
    assert values_around(seen, seen, (0, 1), (2**23, 7)).rows == (2**23 - 4, 2**23 + 5)


@settings(deadline=None)
@given(pairs())
def test_the_worst_elements_are_those_of_a_sort(pair: tuple[np.ndarray, np.ndarray]) -> None:
    golden, target = pair
    sample = take_sample(golden, target)
    found = worst_elements(sample, None, most=5)
    flat = sample.distance.reshape(-1)
    wanted = [at for at in np.argsort(-flat, kind="stable") if flat[at] > 0][:5]
    shape = golden.shape or (1,)
    assert [np.ravel_multi_index(one.index, shape) for one in found] == wanted
    for one in found:
        assert np.array_equal(one.golden, float(golden.reshape(shape)[one.index]), equal_nan=True)


@settings(deadline=None)
@given(st.integers(0, 2**16 - 1), st.integers(-300, 300), st.sampled_from(["float16", "bfloat16"]))
def test_steps_between_numbers_are_counted_one_by_one(bits: int, steps: int, name: str) -> None:
    dtype = ulp_dtype(np.dtype("float32"), np.dtype(name))
    assert dtype == np.dtype(name)
    start = np.array([bits], "uint16").view(dtype)
    assume(not np.isnan(start).any())
    at = start.copy()
    for _ in range(abs(steps)):
        at = np.nextafter(at, np.array([np.inf if steps > 0 else -np.inf], dtype))
    if np.isfinite(at.astype("float64")).all() and np.isfinite(start.astype("float64")).all():
        counted = ulps(start.astype("float64"), at.astype("float64"), dtype)
        assert counted is not None
        assert counted[0] == abs(steps)


def test_there_are_no_steps_between_whole_numbers_or_in_float64() -> None:
    assert ulp_dtype(np.dtype("int32"), np.dtype("float16")) is None
    assert ulp_dtype(np.dtype("float64"), np.dtype("float64")) is None
    assert ulp_dtype(np.dtype("float64"), np.dtype("float32")) == np.dtype("float32")


@settings(deadline=None)
@given(pairs())
def test_every_element_is_in_one_bin(pair: tuple[np.ndarray, np.ndarray]) -> None:
    sample = take_sample(*pair)
    values, differences = histograms(sample, bins=8)
    for counts, lost in zip(
        (*values.counts, *differences.counts), (*values.nonfinite, *differences.nonfinite), strict=True
    ):
        assert sum(counts) + lost == sample.distance.size


def test_bins_are_those_of_numpy() -> None:
    golden, target = numbers((50, 7))
    values, differences = histograms(take_sample(golden, target), bins=16)
    for counts, array in zip(values.counts, (golden, target), strict=True):
        assert list(counts) == np.histogram(array, 16, (values.low, values.high))[0].tolist()
    assert list(differences.counts[0]) == np.histogram(target.astype("float64") - golden, 16)[0].tolist()


@settings(deadline=None)
@given(shapes, st.integers(2, 5))
def test_profiles_are_maxima_and_norms_over_the_other_dimensions(shape: tuple[int, ...], most: int) -> None:
    golden, target = numbers(shape)
    distance = far(golden, target)
    found = profiles(take_sample(golden, target), most=most)
    assert [one.axis for one in found] == [axis for axis, size in enumerate(shape) if size > 1]
    for one in found:
        lines = np.moveaxis(distance, one.axis, 0).reshape(one.size, -1)
        pieces = [lines[start : start + one.width] for start in range(0, one.size, one.width)]
        assert len(pieces) <= most
        assert one.maximum == pytest.approx([piece.max() for piece in pieces])
        assert one.norm == pytest.approx([np.linalg.norm(piece) for piece in pieces])


def test_heads_are_the_last_dimension_cut_in_pieces() -> None:
    golden = np.zeros((3, 12))
    target = golden.copy()
    target[1, 4:8] = [0, 3, 4, 0]
    *_, heads = profiles(take_sample(golden, target), heads=3)
    assert (heads.heads, heads.size) == (3, 3)
    assert heads.maximum == (0, 4, 0)
    assert heads.norm == (0, 5, 0)
    assert len(profiles(take_sample(golden, target), heads=5)) == 2


@pytest.mark.parametrize(
    ("shape", "other", "heads"),
    [
        ((5, 896), (5, 14, 64), 14),
        ((5, 896), (1, 14, 5, 64), 14),
        ((1, 5, 896), (1, 5, 14, 64), 14),
        ((5, 896), (1, 5, 896), None),
        ((5, 896), None, None),
        ((5, 896), (5, 895), None),
        ((), (), None),
    ],
)
def test_the_number_of_heads_is_guessed_from_another_shape(
    shape: tuple[int, ...], other: tuple[int, ...] | None, heads: int | None
) -> None:
    assert guess_heads(shape, other) == heads


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=4).map(tuple), st.integers(1, 12), st.data())
def test_a_cell_of_the_map_is_the_maximum_of_its_block(
    shape: tuple[int, ...], most: int, data: st.DataObject
) -> None:
    golden, target = numbers(shape)
    axes: tuple[int | None, int] = (None, 0)
    if len(shape) > 1:
        axes = tuple(data.draw(st.permutations(range(len(shape))))[:2])
    at = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    area = difference_map(golden, target, axes, at, most=most)
    table = plane(far(golden, target), axes, at)
    assert area.size == table.shape
    assert area.every == (1, 1)
    for row, cells in enumerate(area.cells):
        for column, cell in enumerate(cells):
            down, across = (slice(n * b, (n + 1) * b) for n, b in zip((row, column), area.block, strict=True))
            assert cell == pytest.approx(table[down, across].max())
    assert len(area.cells) <= most
    assert area.largest == pytest.approx(table.max())


def test_a_map_of_more_than_the_budget_looks_into_every_block() -> None:
    golden = np.zeros((1000, 600))
    area = difference_map(golden, golden + 1, (0, 1), (0, 0), most=10, budget=2000)
    assert area.every == (100, 3)
    assert all(cell == 1 for row in area.cells for cell in row)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=0, max_size=3).map(tuple), st.data())
def test_a_window_shows_the_values_around_a_place(shape: tuple[int, ...], data: st.DataObject) -> None:
    golden, target = numbers(shape)
    axes: tuple[int | None, int] = (0, 1) if len(shape) > 1 else (None, 0)
    at = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    found = values_around(golden, target, axes, at, (5, 4))
    table = plane(golden, axes, at)
    part = table[slice(*found.rows), slice(*found.columns)]
    assert np.array_equal(np.array(found.golden), part)
    assert part.shape == (min(5, table.shape[0]), min(4, table.shape[1]))
    if at:
        assert found.columns[0] <= at[axes[1]] < found.columns[1]


def test_what_cannot_be_subtracted_is_infinitely_far() -> None:
    golden = np.array([np.nan, np.nan, np.inf, np.inf, -np.inf, 1.0])
    target = np.array([np.nan, 1.0, np.inf, -np.inf, 1.0, 1.5])
    assert distances(golden, target).tolist() == [0, np.inf, 0, np.inf, np.inf, 0.5]


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        take_sample(np.zeros(3), np.zeros(4))


def test_an_empty_pair_has_nothing_to_show() -> None:
    empty = np.empty((3, 0), "float32")
    sample = take_sample(empty, empty)
    assert isinstance(sample, Sample)
    assert worst_elements(sample, None) == ()
    assert profiles(sample)[0].maximum == (None, None, None)
    assert difference_map(empty, empty, (0, 1), (0, 0)).largest == 0
    assert values_around(empty, empty, (0, 1), (0, 0)).golden == ((), (), ())
