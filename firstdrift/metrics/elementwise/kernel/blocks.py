"""A block of both sides: x golden, y target, d = y - x."""

from typing import NamedTuple, TypeAlias

import numpy as np

from firstdrift.metrics.elementwise import layout as at
from firstdrift.metrics.elementwise.kernel.pointers import (
    Number,
    Pointer,
    bits_of,
    exact,
    float_of,
    reassociating,
    shifted,
)
from firstdrift.metrics.elementwise.kernel.sides import (
    MAGNITUDE,
    Side,
    add_bits,
    add_element,
    add_extremes,
    decode,
    largest_64,
)
from firstdrift.metrics.elementwise.sums import FIVE_THOUSANDTHS, ONE_THOUSANDTH

BINS = 13


class Block(NamedTuple):
    """Buffers of one block: golden, target, their differences, the keys of these; and the keys of bins."""

    x: Pointer
    y: Pointer
    d: Pointer
    keys: Pointer
    bounds: Pointer


class Pair(NamedTuple):
    """Two tensors, and where the sums and counts of pairs are left, and those of rows."""

    golden: Side
    target: Side
    sums: Pointer
    counts: Pointer
    columns: Number
    row_differences: Pointer
    row_squares: Pointer


Span: TypeAlias = tuple[Number, Number]
"""Where a block begins, and how many elements it has."""

Totals: TypeAlias = tuple[Number, Number, Number, Number, Number, Number, Number]


@exact
def _subtract(x: Pointer, y: Pointer, count: Number, d: Pointer, keys: Pointer) -> None:
    for i in range(count):
        difference = y[i] - x[i]
        d[i] = difference
        keys[i] = np.int32((bits_of(difference) & MAGNITUDE) >> 32)


@reassociating
def _totals(x: Pointer, y: Pointer, d: Pointer, count: Number) -> Totals:
    """Return the sums of d, |d|, x, y, y squared and x y, and the number of equal pairs."""
    difference, absolute, golden, target, squares, product, equal = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for i in range(count):
        difference += d[i]
        absolute += abs(d[i])
        golden += x[i]
        target += y[i]
        squares += y[i] * y[i]
        product += x[i] * y[i]
        equal += d[i] == 0.0
    return difference, absolute, golden, target, squares, product, equal


@reassociating
def _squares(x: Pointer, d: Pointer, count: Number) -> tuple[Number, Number]:
    golden, difference = 0.0, 0.0
    for i in range(count):
        golden += x[i] * x[i]
        difference += d[i] * d[i]
    return golden, difference


@exact
def _add_rows(pair: Pair, start: Number, count: Number, x: Pointer, d: Pointer) -> tuple[Number, Number]:
    """Add the squares of x and d to those of their rows; return those of the block."""
    row = start // pair.columns
    begin, end = 0, min((row + 1) * pair.columns - start, count)
    total_golden, total_difference = 0.0, 0.0
    while begin < count:
        golden, difference = _squares(shifted(x, begin), shifted(d, begin), end - begin)
        pair.row_squares[row] += golden
        pair.row_differences[row] += difference
        total_golden += golden
        total_difference += difference
        row += 1
        begin, end = end, min(end + pair.columns, count)
    return total_golden, total_difference


@exact
def _exclude_nonfinite(pair: Pair, x: Pointer, y: Pointer, count: Number) -> tuple[Number, Number]:
    """Add up both sides, set pairs that are not finite to zero, return their number and the first other."""
    excluded, first = 0, -1
    for i in range(count):
        add_element(pair.golden, x[i])
        add_element(pair.target, y[i])
        if np.isfinite(x[i]) and np.isfinite(y[i]):
            first = i if first < 0 else first
        else:
            same = x[i] == y[i] or (np.isnan(x[i]) and np.isnan(y[i]))
            pair.counts[at.EQUAL_NONFINITE if same else at.MISMATCHED] += 1
            x[i] = y[i] = 0.0
            excluded += 1
    return excluded, first


@exact
def _largest_key(keys: Pointer, count: Number) -> Number:
    largest = np.int32(0)
    for i in range(count):
        largest = max(largest, keys[i])
    return np.int64(largest)


@exact
def _note_largest(pair: Pair, block: Block, start: Number, count: Number, first: Number) -> None:
    """Note the largest |d| of the block, and its first place, if none before was as large."""
    largest = largest_64(block.d, count)
    if largest > pair.sums[at.LARGEST]:
        place = first
        while abs(block.d[place]) != largest:
            place += 1
        pair.sums[at.LARGEST] = largest
        pair.sums[at.LARGEST_GOLDEN] = block.x[place]
        pair.sums[at.LARGEST_TARGET] = block.y[place]
        pair.counts[at.LARGEST_AT] = start + place
        pair.counts[at.LARGEST_KEY] = bits_of(largest) >> 32


@exact
def _count_at_least(
    keys: Pointer, count: Number, bounds: tuple[Number, Number, Number, Number]
) -> tuple[Number, Number, Number, Number]:
    a, b, c, d = bounds
    of_a, of_b, of_c, of_d = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
    for i in range(count):
        of_a = np.int32(of_a + np.int32(keys[i] >= a))
        of_b = np.int32(of_b + np.int32(keys[i] >= b))
        of_c = np.int32(of_c + np.int32(keys[i] >= c))
        of_d = np.int32(of_d + np.int32(keys[i] >= d))
    return of_a, of_b, of_c, of_d


@exact
def _add_histogram(
    block: Block, count: Number, different: Number, largest: Number, histogram: Pointer
) -> None:
    """Count the differences between bounds, from the largest bound down until all are counted."""
    bounds, top, above = block.bounds, BINS - 1, 0
    while top >= 0 and bounds[top] > largest:
        top -= 1
    while top >= 0 and above < different:
        four = (bounds[top], bounds[max(top - 1, 0)], bounds[max(top - 2, 0)], bounds[max(top - 3, 0)])
        for counted in _count_at_least(block.keys, count, four):
            at_least = min(np.int64(counted), different)
            histogram[max(top, 0) + 2] += at_least - above
            above = at_least
            top -= 1
    histogram[1] += different - above


@reassociating
def _relative(x: Pointer, d: Pointer, count: Number) -> tuple[Number, Number, Number, Number]:
    """Return the sum and the largest of |d / x| where x is not 0, and how many are small (0 where it is)."""
    total, within_1e3, within_5e3, largest = 0.0, 0, 0, np.int64(0)
    for i in range(count):
        quotient = abs(d[i]) / abs(x[i])
        relative = quotient if x[i] != 0.0 else 0.0
        total += relative
        within_1e3 += relative < ONE_THOUSANDTH
        within_5e3 += relative < FIVE_THOUSANDTHS
        largest = max(largest, bits_of(relative))
    return total, float_of(largest), within_1e3, within_5e3


@exact
def _count_zeros(x: Pointer, count: Number) -> Number:
    zeros = 0
    for i in range(count):
        zeros += x[i] == 0.0
    return zeros


@exact
def _count_only_golden_zero(x: Pointer, d: Pointer, count: Number) -> Number:
    zeros = 0
    for i in range(count):
        zeros += (x[i] == 0.0) & (d[i] != 0.0)
    return zeros


@exact
def _add_relative(pair: Pair, block: Block, count: Number, zeros: Number, excluded: Number) -> None:
    total, largest, within_1e3, within_5e3 = _relative(block.x, block.d, count)
    not_within = excluded + (_count_only_golden_zero(block.x, block.d, count) if zeros > excluded else 0)
    pair.sums[at.RELATIVE_TOTAL] += total
    pair.sums[at.RELATIVE_MAXIMUM] = max(pair.sums[at.RELATIVE_MAXIMUM], largest)
    pair.counts[at.RELATIVE_COUNT] += count - zeros
    pair.counts[at.WITHIN_1E3] += within_1e3 - not_within
    pair.counts[at.WITHIN_5E3] += within_5e3 - not_within


@exact
def _add_differences(
    pair: Pair, block: Block, span: Span, totals: Totals, excluded: tuple[Number, Number], zeros: Number
) -> Number:
    """Add up all of a block that is not of one side; return the sum of the golden squares."""
    start, count = span
    difference, absolute, _, _, squared_target, product, equal = totals
    squared_golden, squared_difference = _add_rows(pair, start, count, block.x, block.d)
    pair.sums[at.DIFFERENCE] += difference
    pair.sums[at.ABSOLUTE] += absolute
    pair.sums[at.SQUARED_DIFFERENCE] += squared_difference
    pair.sums[at.SQUARED_GOLDEN] += squared_golden
    pair.sums[at.SQUARED_TARGET] += squared_target
    pair.sums[at.PRODUCT] += product
    pair.counts[at.EQUAL] += equal - excluded[0]
    pair.counts[at.HISTOGRAM] += equal - excluded[0]
    largest = _largest_key(block.keys, count)
    noted = pair.counts[at.LARGEST_KEY]
    if largest > noted or (largest == noted and equal < count):
        _note_largest(pair, block, start, count, excluded[1])
    _add_histogram(block, count, count - equal, largest, shifted(pair.counts, at.HISTOGRAM))
    _add_relative(pair, block, count, zeros, excluded[0])
    return squared_golden


@exact
def add_block(pair: Pair, block: Block, start: Number, count: Number) -> None:
    """Add up everything about a block of both sides."""
    x, y, d, keys, _ = block
    decode(pair.golden, start, count, x)
    decode(pair.target, start, count, y)
    _subtract(x, y, count, d, keys)
    totals = _totals(x, y, d, count)
    if np.isfinite(totals[1]):
        zeros = add_extremes(pair.golden, start, x, count)
        add_extremes(pair.target, start, y, count)
        squares = _add_differences(pair, block, (start, count), totals, (0, 0), zeros)
        pair.golden.sums[at.TOTAL] += totals[2]
        pair.golden.sums[at.SQUARES] += squares
        pair.target.sums[at.TOTAL] += totals[3]
        pair.target.sums[at.SQUARES] += totals[4]
        return
    add_bits(pair.golden, start, count)
    add_bits(pair.target, start, count)
    excluded = _exclude_nonfinite(pair, x, y, count)
    if excluded[0] < count:
        _subtract(x, y, count, d, keys)
        totals = _totals(x, y, d, count)
        _add_differences(pair, block, (start, count), totals, excluded, _count_zeros(x, count))
