"""The element-by-element pass in numpy: few calls for a small pair, blocks for a large one.

golden ─┐ block of ≤ 16384   ┌ x  golden         ┐
        ├──────────────────▶ │ y  target         │ one float64 workspace,
target ─┘                    │ d  y - x          │ one call reduces all four rows
                             └ a  |d|            ┘
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from firstdrift.metrics.bits import NOWHERE, first_difference
from firstdrift.metrics.conversion import as_float64, fill
from firstdrift.metrics.dtypes import Array, Floats
from firstdrift.metrics.elementwise.equal import equal_sums
from firstdrift.metrics.elementwise.sums import (
    DECADES,
    FIVE_THOUSANDTHS,
    ONE_THOUSANDTH,
    PairSums,
    SideSums,
    Sums,
    bounds_of_bins,
    rows_and_columns,
)
from firstdrift.metrics.stored_format import stored_roundoff

BLOCK = 1 << 14
"""Elements per block: the workspace of four float64 rows (512 KiB) stays in the L2 cache."""

_FEW = 1 << 10
"""Up to here one binary search per element is cheaper than one comparison pass per histogram bin."""


def supports(_array: Array) -> bool:
    """Tell that any numeric dtype is fine."""
    return True


def measure(golden: Array, target: Array) -> Sums:
    """Add up everything about two non-empty tensors of one shape and any numeric dtype."""
    differs_at = first_difference(golden, target)
    if differs_at == NOWHERE:
        return equal_sums(summarise(golden), golden)
    sums = _measure(golden, target)
    sums.differs_at = differs_at
    sums.roundoff = max(stored_roundoff(golden), stored_roundoff(target))
    return sums


def _measure(golden: Array, target: Array) -> Sums:
    rows, columns = rows_and_columns(golden.shape)
    golden, target = golden.reshape(-1), target.reshape(-1)
    with np.errstate(all="ignore"):
        if golden.size <= BLOCK:
            work = np.empty((4, golden.size))
            return Sums(*_measure_block(golden, target, work, None), *_row_sums(work, columns))
        return _measure_blocks(golden, target, rows, columns)


def summarise(array: Array) -> SideSums:
    """Add up everything about one non-empty tensor."""
    array = array.reshape(-1)
    work = np.empty(min(array.size, BLOCK))
    sums = SideSums()
    with np.errstate(all="ignore"):
        for start in range(0, array.size, BLOCK):
            part = array[start : start + BLOCK]
            values = work[: part.size]
            as_float64(part, values)
            sums.add(_side_sums(values))
    return sums


def _measure_blocks(golden: Array, target: Array, rows: int, columns: int) -> Sums:
    magnitude = summarise(golden).magnitude
    whole = Sums(SideSums(), SideSums(), _no_pairs(), np.zeros(rows), np.zeros(rows))
    work = np.empty((4, BLOCK))
    for start, stop in _blocks(rows, columns):
        part = work[:, : stop - start]
        golden_sums, target_sums, pair_sums = _measure_block(
            golden[start:stop], target[start:stop], part, magnitude
        )
        whole.golden.add(golden_sums)
        whole.target.add(target_sums)
        whole.pair.add(pair_sums, start)
        differences, squares = _row_sums(part, min(columns, stop - start))
        covered = slice(start // columns, start // columns + len(squares))
        whole.row_squared_difference[covered] += differences
        whole.row_squared_golden[covered] += squares
    return whole


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Cut a tensor into flat ranges that are whole rows, or parts of one row."""
    if columns <= BLOCK:
        length = BLOCK // columns * columns
        for start in range(0, rows * columns, length):
            yield start, min(start + length, rows * columns)
        return
    for row in range(0, rows * columns, columns):
        for start in range(row, row + columns, BLOCK):
            yield start, min(start + BLOCK, row + columns)


def _row_sums(work: Floats, columns: int) -> tuple[Floats, Floats]:
    differences, golden = work[3].reshape(-1, columns), work[0].reshape(-1, columns)
    return np.vecdot(differences, differences), np.vecdot(golden, golden)


def _no_pairs() -> PairSums:
    return PairSums(histogram=np.zeros(len(DECADES) + 2, np.int64))


def _measure_block(
    golden: Array, target: Array, work: Floats, magnitude: float | None
) -> tuple[SideSums, SideSums, PairSums]:
    """Measure one block; leaves golden, target, d and |d| of the finite pairs in the workspace.

    `magnitude` is the largest finite golden magnitude of the whole tensor, None if the block is all.
    """
    fill(golden, target, work)
    totals = np.add.reduce(work, axis=1)
    if np.isfinite(totals[3]):
        return _measure_finite(work, totals, magnitude)
    golden_sums, target_sums = _side_sums(work[0]), _side_sums(work[1])
    excluded = np.flatnonzero(~(np.isfinite(work[0]) & np.isfinite(work[1])))
    equal = _count_equal(golden[excluded], target[excluded])
    work[:, excluded] = 0.0
    if magnitude is None:
        magnitude = golden_sums.magnitude
    _, _, pair_sums = _measure_finite(work, np.add.reduce(work, axis=1), magnitude)
    _leave_out(pair_sums, len(excluded))
    pair_sums.equal_nonfinite = equal
    pair_sums.mismatched_nonfinite = len(excluded) - equal
    if len(excluded) == golden.size:
        pair_sums.largest = -1.0
    elif pair_sums.largest == 0.0:
        pair_sums.largest_at = int(np.delete(np.arange(golden.size), excluded)[0])
        pair_sums.largest_golden = pair_sums.largest_target = float(work[0, pair_sums.largest_at])
    return golden_sums, target_sums, pair_sums


def _leave_out(pair_sums: PairSums, excluded: int) -> None:
    """Take back what non-finite pairs, set to zero, were counted as."""
    pair_sums.equal -= excluded
    pair_sums.histogram[0] -= excluded
    pair_sums.within_1e3 -= excluded
    pair_sums.within_5e3 -= excluded


def _count_equal(golden: Array, target: Array) -> int:
    """Count the equal pairs among non-finite ones; NaN equals NaN."""
    left, right = golden.astype(np.complex128), target.astype(np.complex128)
    return int(np.count_nonzero((left == right) | (np.isnan(left) & np.isnan(right))))


def _measure_finite(
    work: Floats, totals: Floats, magnitude: float | None
) -> tuple[SideSums, SideSums, PairSums]:
    golden, target, _, absolute = work
    highest = np.maximum.reduce(work, axis=1).tolist()
    lowest = np.minimum.reduce(work[:2], axis=1).tolist()
    total = totals.tolist()
    squares = np.vecdot(work, work).tolist()
    size = golden.size
    golden_zeros = size - int(np.count_nonzero(golden))
    target_zeros = size - int(np.count_nonzero(target))
    golden_sums = SideSums(highest[0], lowest[0], total[0], squares[0], golden_zeros)
    target_sums = SideSums(highest[1], lowest[1], total[1], squares[1], target_zeros)
    equal = size - int(np.count_nonzero(absolute))
    bounds = bounds_of_bins(golden_sums.magnitude if magnitude is None else magnitude)
    at = int(absolute.argmax())
    pair_sums = PairSums(
        histogram=_histogram(absolute, highest[3], bounds, equal),
        equal=equal,
        difference=total[2],
        absolute=total[3],
        squared_difference=squares[3],
        squared_golden=squares[0],
        squared_target=squares[1],
        # for complex numbers, rows hold moduli: Re(conj(x) y) = |x||y| + ((|y| - |x|)^2 - |y - x|^2) / 2
        product=float(np.vecdot(golden, target)) + (squares[2] - squares[3]) / 2,
        largest=highest[3],
        largest_at=at,
        largest_golden=float(golden[at]),
        largest_target=float(target[at]),
    )
    _add_relative(pair_sums, golden, absolute, golden_zeros)
    return golden_sums, target_sums, pair_sums


def _add_relative(pair_sums: PairSums, golden: Floats, absolute: Floats, golden_zeros: int) -> None:
    relative = np.abs(golden)
    np.divide(absolute, relative, out=relative)
    within_without_relative = 0
    if golden_zeros:
        relative = relative[golden != 0]
        within_without_relative = golden_zeros - int(np.count_nonzero(absolute[golden == 0]))
    pair_sums.relative_count = relative.size
    if relative.size:
        pair_sums.relative_total = float(np.add.reduce(relative))
        pair_sums.relative_maximum = float(np.maximum.reduce(relative))
    pair_sums.within_1e3 = int(np.count_nonzero(relative < ONE_THOUSANDTH)) + within_without_relative
    pair_sums.within_5e3 = int(np.count_nonzero(relative < FIVE_THOUSANDTHS)) + within_without_relative


def _histogram(absolute: Floats, largest: float, bounds: Floats, equal: int) -> npt.NDArray[np.int64]:
    if absolute.size <= _FEW:
        histogram = np.empty(len(bounds) + 2, np.int64)
        histogram[0] = equal
        histogram[1:] = np.bincount(bounds.searchsorted(absolute, "right"), minlength=len(bounds) + 1)
        histogram[1 + int(bounds.searchsorted(0.0, "right"))] -= equal
        return histogram
    different = absolute.size - equal
    at_least = np.full(len(bounds) + 3, different)
    at_least[0], at_least[-1] = absolute.size, 0
    for k in reversed(range(len(bounds))):
        if bounds[k] > largest:
            at_least[k + 2] = 0
        elif bounds[k] > 0.0:
            at_least[k + 2] = np.count_nonzero(absolute >= bounds[k])
        if at_least[k + 2] == different:
            break
    counts: npt.NDArray[np.int64] = at_least[:-1] - at_least[1:]
    return counts


def _side_sums(values: Floats) -> SideSums:
    if np.isfinite(np.add.reduce(values)):
        return _finite_sums(values)
    finite = values[np.isfinite(values)]
    sums = _finite_sums(finite) if finite.size else SideSums()
    sums.nan = int(np.count_nonzero(np.isnan(values)))
    sums.positive_infinity = int(np.count_nonzero(values == np.inf))
    sums.negative_infinity = int(np.count_nonzero(values == -np.inf))
    return sums


def _finite_sums(values: Floats) -> SideSums:
    return SideSums(
        maximum=float(np.maximum.reduce(values)),
        minimum=float(np.minimum.reduce(values)),
        total=float(np.add.reduce(values)),
        squares=float(np.vecdot(values, values)),
        zeros=values.size - int(np.count_nonzero(values)),
    )
