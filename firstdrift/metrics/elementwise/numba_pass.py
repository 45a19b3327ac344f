"""The element-by-element pass, compiled: one kernel for every mix of real dtypes.

    golden bytes ─ decode ─▶ x ┐                      ┌ one short loop per question over float64
                               ├─▶ d = y - x, a = |d| ┤ buffers of 2048 elements, which stay in
    target bytes ─ decode ─▶ y ┘                      └ the fast caches

`load` compiles the kernel, or loads it from numba's cache on disk.

Sums may be reassociated, or they would not be vectorised; d is stored before it is summed, so that a
sum of differences never becomes a difference of sums. No flag lets the compiler ignore NaN: maxima
are taken of the integers that floats consist of, which order alike and are vectorised as they are.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from firstdrift.metrics.dtypes import Array, Floats
from firstdrift.metrics.elementwise.numba_decode import (
    Encoded,
    Integers,
    Words,
    decode,
    encode,
    exact,
    reassociating,
    supports,
)
from firstdrift.metrics.elementwise.sums import (
    DECADES,
    FIVE_THOUSANDTHS,
    ONE_THOUSANDTH,
    PairSums,
    SideSums,
    Sums,
    rows_and_columns,
)

__all__ = ["is_cached", "load", "measure", "summarise", "supports"]

BLOCK = 2048

_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_INFINITY = np.int64(0x7FF0_0000_0000_0000)


class _Block(NamedTuple):
    """Buffers of one block: golden, target, d = target - golden and |d|."""

    x: Floats
    y: Floats
    d: Floats
    a: Floats


class _Side(NamedTuple):
    """Sums of one tensor; names of the places are below."""

    sums: Floats
    counts: Integers


class _Totals(NamedTuple):
    """All that is added up: of both sides, and of the pairs."""

    golden: _Side
    target: _Side
    sums: Floats
    counts: Integers
    histogram: Integers
    rows: Floats


_MAXIMUM, _MINIMUM, _TOTAL, _SQUARES = range(4)
_ZEROS, _NAN, _POSITIVE_INFINITY, _NEGATIVE_INFINITY = range(4)
_DIFFERENCE, _ABSOLUTE, _SQUARED_DIFFERENCE, _SQUARED_GOLDEN, _SQUARED_TARGET = range(5)
_LARGEST, _LARGEST_GOLDEN, _LARGEST_TARGET, _RELATIVE_TOTAL, _RELATIVE_MAXIMUM, _PRODUCT = range(5, 11)
_SUMS = (
    *("difference", "absolute", "squared_difference", "squared_golden", "squared_target", "largest"),
    *("largest_golden", "largest_target", "relative_total", "relative_maximum", "product"),
)
_EQUAL, _EQUAL_NONFINITE, _MISMATCHED, _LARGEST_AT, _RELATIVE_COUNT, _WITHIN_1E3, _WITHIN_5E3 = range(7)
_COUNTS = (
    *("equal", "equal_nonfinite", "mismatched_nonfinite", "largest_at"),
    *("relative_count", "within_1e3", "within_5e3"),
)


def is_cached() -> bool:
    """Tell whether an earlier process has left the compiled kernel on disk."""
    folder = _measure.stats.cache_path  # type: ignore[attr-defined]
    return folder is not None and any(Path(folder).glob(f"{Path(__file__).stem}._measure-*.nbi"))


def load() -> None:
    """Compile the kernel (about 7 s), or load it from the cache on disk (about 0.2 s)."""
    measure(np.zeros(1), np.ones(1))
    summarise(np.zeros(1))


def measure(golden: Array, target: Array) -> Sums:
    """Add up everything about two non-empty tensors of one shape whose dtypes are supported."""
    rows, columns = rows_and_columns(golden.shape)
    totals = _Totals(
        golden=_new_side(),
        target=_new_side(),
        sums=np.zeros(11),
        counts=np.zeros(7, np.int64),
        histogram=np.zeros(len(DECADES) + 2, np.int64),
        rows=np.zeros((2, rows)),
    )
    totals.sums[_LARGEST] = -1.0
    _measure(encode(golden), encode(target), columns, DECADES, totals)
    return Sums(
        SideSums(*totals.golden.sums.tolist(), *totals.golden.counts.tolist()),
        SideSums(*totals.target.sums.tolist(), *totals.target.counts.tolist()),
        _pair_sums(totals),
        *totals.rows,
    )


def summarise(array: Array) -> SideSums:
    """Add up everything about one non-empty tensor whose dtype is supported."""
    side = _new_side()
    _summarise(encode(array), side)
    return SideSums(*side.sums.tolist(), *side.counts.tolist())


def _new_side() -> _Side:
    return _Side(np.array((-np.inf, np.inf, 0.0, 0.0)), np.zeros(4, np.int64))


def _pair_sums(totals: _Totals) -> PairSums:
    sums = zip(_SUMS, totals.sums.tolist(), strict=True)
    counts = zip(_COUNTS, totals.counts.tolist(), strict=True)
    return PairSums(totals.histogram, **dict(sums), **dict(counts))


# Loops over one block: x golden, y target, d = y - x, a = |d|, r = a / |x|


@exact
def _subtract(x: Floats, y: Floats, d: Floats, a: Floats) -> None:
    for i in range(len(x)):
        difference = y[i] - x[i]
        d[i] = difference
        a[i] = abs(difference)


@reassociating
def _total_differences(d: Floats, a: Floats) -> tuple[float, float, float]:
    """Return the sums of d, of |d| and of d squared."""
    signed, absolute, squared = 0.0, 0.0, 0.0
    for i in range(len(d)):
        signed += d[i]
        absolute += a[i]
        squared += a[i] * a[i]
    return signed, absolute, squared


@reassociating
def _total_products(left: Floats, right: Floats) -> float:
    total = 0.0
    for i in range(len(left)):
        total += left[i] * right[i]
    return total


@exact
def _as_float(bits: np.int64) -> float:
    return np.int64(bits).view(np.float64)


@exact
def _largest_magnitude(values: Floats) -> np.int64:
    """Return the bits of the largest absolute value; NaN is larger than infinity."""
    bits = values.view(np.int64)
    largest = np.int64(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & _MAGNITUDE)
    return largest


@reassociating
def _add_side(x: Floats, side: _Side) -> float:
    """Add up a block without NaN and infinities; return the sum of its squares."""
    bits = x.view(np.int64)
    highest = lowest = bits[0] ^ ((bits[0] >> 63) & _MAGNITUDE)
    total, squares, zeros = 0.0, 0.0, 0
    for i in range(len(x)):
        total += x[i]
        squares += x[i] * x[i]
        zeros += x[i] == 0.0
        ordered = bits[i] ^ ((bits[i] >> 63) & _MAGNITUDE)
        highest = max(highest, ordered)
        lowest = min(lowest, ordered)
    side.sums[_MAXIMUM] = max(side.sums[_MAXIMUM], _as_float(highest ^ ((highest >> 63) & _MAGNITUDE)))
    side.sums[_MINIMUM] = min(side.sums[_MINIMUM], _as_float(lowest ^ ((lowest >> 63) & _MAGNITUDE)))
    side.sums[_TOTAL] += total
    side.sums[_SQUARES] += squares
    side.counts[_ZEROS] += zeros
    return squares


@exact
def _add_element(value: float, side: _Side) -> None:
    if np.isnan(value):
        side.counts[_NAN] += 1
    elif np.isinf(value):
        side.counts[_POSITIVE_INFINITY if value > 0 else _NEGATIVE_INFINITY] += 1
    else:
        side.sums[_MAXIMUM] = max(side.sums[_MAXIMUM], value)
        side.sums[_MINIMUM] = min(side.sums[_MINIMUM], value)
        side.sums[_TOTAL] += value
        side.sums[_SQUARES] += value * value
        side.counts[_ZEROS] += value == 0.0


@exact
def _exclude_nonfinite(x: Floats, y: Floats, totals: _Totals) -> tuple[int, int]:
    """Add up both sides, set pairs that are not finite to zero, return their number and the first other."""
    excluded, first = 0, -1
    for i in range(len(x)):
        _add_element(x[i], totals.golden)
        _add_element(y[i], totals.target)
        if np.isfinite(x[i]) and np.isfinite(y[i]):
            first = i if first < 0 else first
        else:
            same = x[i] == y[i] or (np.isnan(x[i]) and np.isnan(y[i]))
            totals.counts[_EQUAL_NONFINITE if same else _MISMATCHED] += 1
            x[i] = y[i] = 0.0
            excluded += 1
    return excluded, first


@exact
def _add_largest(x: Floats, y: Floats, a: Floats, start: int, first: int, totals: _Totals) -> float:
    """Return the largest |d| of the block; note its first place if none before was as large."""
    largest = _as_float(_largest_magnitude(a))
    if largest > totals.sums[_LARGEST]:
        at = first
        while a[at] != largest:
            at += 1
        totals.sums[_LARGEST] = largest
        totals.sums[_LARGEST_GOLDEN] = x[at]
        totals.sums[_LARGEST_TARGET] = y[at]
        totals.counts[_LARGEST_AT] = start + at
    return largest


@exact
def _count_zeros(a: Floats) -> tuple[int, float]:
    """Return the number of zeros, and the smallest of the other values (NaN if there is none)."""
    bits = a.view(np.int64)
    zeros = 0
    smallest_less_one = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
    for i in range(len(bits)):
        zeros += bits[i] == 0
        smallest_less_one = min(smallest_less_one, np.uint64(bits[i]) - np.uint64(1))
    return zeros, _as_float(np.int64(smallest_less_one) + 1)


@exact
def _count_at_least(a: Floats, bound: float) -> int:
    count = 0
    for i in range(len(a)):
        count += a[i] >= bound
    return count


@exact
def _add_histogram(a: Floats, largest: float, bounds: Floats, excluded: int, totals: _Totals) -> None:
    zeros, smallest = _count_zeros(a)
    totals.counts[_EQUAL] += zeros - excluded
    totals.histogram[0] += zeros - excluded
    above = len(a) - zeros
    for k in range(len(bounds)):
        if above == 0:
            return
        if bounds[k] > smallest:
            at_least = _count_at_least(a, bounds[k]) if bounds[k] <= largest else 0
            totals.histogram[k + 1] += above - at_least
            above = at_least
    totals.histogram[len(bounds) + 1] += above


@reassociating
def _add_relative(x: Floats, a: Floats, r: Floats, excluded: int, totals: _Totals) -> None:
    total, zeros, within_1e3, within_5e3 = 0.0, 0, 0, 0
    for i in range(len(x)):
        quotient = a[i] / abs(x[i])
        relative = quotient if x[i] != 0.0 else 0.0
        r[i] = relative
        total += relative
        zeros += x[i] == 0.0
        within_1e3 += relative < ONE_THOUSANDTH
        within_5e3 += relative < FIVE_THOUSANDTHS
    not_within = excluded
    if zeros > excluded:
        for i in range(len(x)):
            not_within += (x[i] == 0.0) & (a[i] != 0.0)
    totals.sums[_RELATIVE_TOTAL] += total
    totals.sums[_RELATIVE_MAXIMUM] = max(totals.sums[_RELATIVE_MAXIMUM], _as_float(_largest_magnitude(r)))
    totals.counts[_RELATIVE_COUNT] += len(x) - zeros
    totals.counts[_WITHIN_1E3] += within_1e3 - not_within
    totals.counts[_WITHIN_5E3] += within_5e3 - not_within


@exact
def _add_whole_rows(x: Floats, a: Floats, row: int, columns: int, rows: Floats) -> None:
    for begin in range(0, len(x), columns):
        x_row, a_row = x[begin : begin + columns], a[begin : begin + columns]
        rows[0, row] = _total_products(a_row, a_row)
        rows[1, row] = _total_products(x_row, x_row)
        row += 1


# The tensor


@exact
def _find_magnitude(tensor: Encoded, size: int, words: Words, x: Floats) -> float:
    """Return the largest finite absolute value."""
    largest = np.int64(0)
    for start in range(0, size, BLOCK):
        values = x[: min(BLOCK, size - start)]
        decode(tensor, start, words, values)
        if _largest_magnitude(values) >= _INFINITY:
            for i in range(len(values)):
                values[i] = values[i] if np.isfinite(values[i]) else 0.0
        largest = max(largest, _largest_magnitude(values))
    return _as_float(largest)


@exact
def _block_end(start: int, columns: int, size: int) -> int:
    """Return where the block ends that begins at `start`: it holds whole rows, or a part of one."""
    if columns <= BLOCK:
        return min(start + BLOCK // columns * columns, size)
    return min(start + BLOCK, (start // columns + 1) * columns)


@exact
def _measure_block(block: _Block, start: int, columns: int, bounds: Floats, totals: _Totals) -> None:
    x, y, d, a = block
    _subtract(x, y, d, a)
    signed, absolute, squared = _total_differences(d, a)
    excluded, first = 0, 0
    if np.isfinite(absolute):
        squared_golden, squared_target = _add_side(x, totals.golden), _add_side(y, totals.target)
    else:
        excluded, first = _exclude_nonfinite(x, y, totals)
        _subtract(x, y, d, a)
        signed, absolute, squared = _total_differences(d, a)
        squared_golden, squared_target = _total_products(x, x), _total_products(y, y)
    if excluded == len(x):
        return
    totals.sums[_DIFFERENCE] += signed
    totals.sums[_ABSOLUTE] += absolute
    totals.sums[_SQUARED_DIFFERENCE] += squared
    totals.sums[_SQUARED_GOLDEN] += squared_golden
    totals.sums[_SQUARED_TARGET] += squared_target
    totals.sums[_PRODUCT] += _total_products(x, y)
    largest = _add_largest(x, y, a, start, first, totals)
    _add_histogram(a, largest, bounds, excluded, totals)
    if len(x) <= columns:
        totals.rows[0, start // columns] += squared
        totals.rows[1, start // columns] += squared_golden
    else:
        _add_whole_rows(x, a, start // columns, columns, totals.rows)
    _add_relative(x, a, d, excluded, totals)


@exact
def _measure(golden: Encoded, target: Encoded, columns: int, decades: Floats, totals: _Totals) -> None:
    buffers = np.empty((4, BLOCK))
    words = np.empty(BLOCK, np.uint32)
    size = len(golden.raw) // golden.itemsize
    bounds = decades * _find_magnitude(golden, size, words, buffers[0])
    start = 0
    while start < size:
        stop = _block_end(start, columns, size)
        length = stop - start
        block = _Block(buffers[0, :length], buffers[1, :length], buffers[2, :length], buffers[3, :length])
        decode(golden, start, words, block.x)
        decode(target, start, words, block.y)
        _measure_block(block, start, columns, bounds, totals)
        start = stop


@exact
def _summarise(tensor: Encoded, side: _Side) -> None:
    buffer = np.empty(BLOCK)
    words = np.empty(BLOCK, np.uint32)
    size = len(tensor.raw) // tensor.itemsize
    for start in range(0, size, BLOCK):
        values = buffer[: min(BLOCK, size - start)]
        decode(tensor, start, words, values)
        if _largest_magnitude(values) < _INFINITY:
            _add_side(values, side)
        else:
            for i in range(len(values)):
                _add_element(values[i], side)
