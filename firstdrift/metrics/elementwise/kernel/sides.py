"""One side of a pair, block by block: its elements as float64, its extremes and sums."""

from typing import NamedTuple

import numpy as np

from firstdrift.metrics.elementwise import layout as at
from firstdrift.metrics.elementwise.kernel.pointers import (
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    UINT8,
    UINT16,
    Number,
    Pointer,
    bits_of,
    exact,
    float_of,
    float_of_half,
    float_of_single,
    pointer,
    reassociating,
    shifted,
)

MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_MAGNITUDE_32 = np.int32(0x7FFF_FFFF)
_MAGNITUDE_16 = np.int16(0x7FFF)
_INFINITY_32 = np.int32(0x7F80_0000)
_INFINITY_OF_FLOAT16 = np.int16(0x7C00)
_INFINITY_OF_BFLOAT16 = np.int16(0x7F80)


class Side(NamedTuple):
    """One tensor: its address, how it is decoded, and where its sums, counts and bits are left."""

    raw: Number
    code: Number
    table: Number
    sums: Pointer
    counts: Pointer
    bits: Pointer


# Elements as float64


@exact
def _widen(values: Pointer, count: Number, out: Pointer) -> None:
    for i in range(count):
        out[i] = values[i]


@exact
def _widen_float16(halves: Pointer, count: Number, out: Pointer) -> None:
    for i in range(count):
        out[i] = float_of_half(halves[i])


@exact
def _widen_bfloat16(halves: Pointer, count: Number, out: Pointer) -> None:
    for i in range(count):
        out[i] = float_of_single(np.uint32(halves[i]) << np.uint32(16))


@exact
def _look_up(values: Pointer, table: Pointer, count: Number, out: Pointer) -> None:
    for i in range(count):
        out[i] = table[values[i]]


@exact
def decode(side: Side, start: Number, count: Number, out: Pointer) -> None:
    """Write elements as float64."""
    if side.code == at.FLOAT32:
        _widen(shifted(pointer(side.raw, FLOAT32), start), count, out)
    elif side.code == at.BFLOAT16:
        _widen_bfloat16(shifted(pointer(side.raw, UINT16), start), count, out)
    elif side.code == at.FLOAT16:
        _widen_float16(shifted(pointer(side.raw, UINT16), start), count, out)
    elif side.code == at.FLOAT64:
        _widen(shifted(pointer(side.raw, FLOAT64), start), count, out)
    else:
        values = shifted(pointer(side.raw, UINT8), start)
        _look_up(values, pointer(side.table, FLOAT64), count, out)


# The largest, the smallest, how many are zero and which bits are set


@exact
def _extremes_16(values: Pointer, count: Number) -> tuple[Number, Number, Number]:
    """Return the ends of float16 or bfloat16 as integers of their order, and the number of zeros."""
    highest, lowest, zeros = np.int16(-0x8000), np.int16(0x7FFF), np.int16(0)
    for i in range(count):
        ordered = np.int16(values[i] ^ np.int16(np.int16(values[i] >> np.int16(15)) & _MAGNITUDE_16))
        highest = max(highest, ordered)
        lowest = min(lowest, ordered)
        zeros = np.int16(zeros + np.int16(np.int16(values[i] & _MAGNITUDE_16) == np.int16(0)))
    return highest, lowest, zeros


@exact
def _extremes_32(values: Pointer, count: Number) -> tuple[Number, Number, Number, Number]:
    """Return the ends of float32 as integers of their order, the number of zeros and all bits."""
    highest, lowest, zeros = np.int32(-0x8000_0000), np.int32(0x7FFF_FFFF), np.int32(0)
    bits = np.int32(0)
    for i in range(count):
        ordered = np.int32(values[i] ^ np.int32(np.int32(values[i] >> np.int32(31)) & _MAGNITUDE_32))
        highest = max(highest, ordered)
        lowest = min(lowest, ordered)
        zeros = np.int32(zeros + np.int32(np.int32(values[i] & _MAGNITUDE_32) == np.int32(0)))
        bits = np.int32(bits | values[i])
    return highest, lowest, zeros, bits


@exact
def _extremes_64(x: Pointer, count: Number) -> tuple[Number, Number, Number]:
    """Return the ends of float64 as integers of their order, and the number of zeros."""
    highest, lowest, zeros = -MAGNITUDE - 1, MAGNITUDE, 0
    for i in range(count):
        ordered = bits_of(x[i]) ^ ((bits_of(x[i]) >> 63) & MAGNITUDE)
        highest = max(highest, ordered)
        lowest = min(lowest, ordered)
        zeros += bits_of(x[i]) & MAGNITUDE == 0
    return highest, lowest, zeros


@exact
def _end_16(ordered: Number, code: Number) -> Number:
    """Return the number of 16 bits that has a place in their order."""
    word = np.uint16(ordered ^ ((ordered >> 15) & 0x7FFF))
    return float_of_half(word) if code == at.FLOAT16 else float_of_single(np.uint32(word) << np.uint32(16))


@exact
def _end_32(ordered: Number) -> Number:
    return float_of_single(np.uint32(ordered ^ ((ordered >> 31) & 0x7FFF_FFFF)))


@exact
def _end_64(ordered: Number) -> Number:
    return float_of(ordered ^ ((ordered >> 63) & MAGNITUDE))


@exact
def _add_ends(side: Side, highest: Number, lowest: Number, zeros: Number) -> None:
    side.sums[at.MAXIMUM] = max(side.sums[at.MAXIMUM], highest)
    side.sums[at.MINIMUM] = min(side.sums[at.MINIMUM], lowest)
    side.counts[at.ZEROS] += zeros


@exact
def add_extremes(side: Side, start: Number, x: Pointer, count: Number) -> Number:
    """Take in the ends and zeros of a block without NaN and infinities; return the number of zeros."""
    if side.code == at.FLOAT32:
        high, low, none, bits = _extremes_32(shifted(pointer(side.raw, INT32), start), count)
        side.bits[0] |= np.int64(bits) & 0xFFFF_FFFF
        _add_ends(side, _end_32(high), _end_32(low), none)
        return np.int64(none)
    if side.code == at.FLOAT16 or side.code == at.BFLOAT16:  # noqa: PLR1714 (numba compiles a search)
        first, last, zero = _extremes_16(shifted(pointer(side.raw, INT16), start), count)
        _add_ends(side, _end_16(first, side.code), _end_16(last, side.code), zero)
        return np.int64(zero)
    highest, lowest, zeros = _extremes_64(x, count)
    _add_ends(side, _end_64(highest), _end_64(lowest), zeros)
    return zeros


@exact
def add_bits(side: Side, start: Number, count: Number) -> None:
    """Take in the bits of a block of float32, whatever its numbers are."""
    if side.code == at.FLOAT32:
        bits = _extremes_32(shifted(pointer(side.raw, INT32), start), count)[3]
        side.bits[0] |= np.int64(bits) & 0xFFFF_FFFF


@exact
def add_element(side: Side, value: Number) -> None:
    """Add up one element, whatever it is."""
    if np.isnan(value):
        side.counts[at.NAN] += 1
    elif np.isinf(value):
        side.counts[at.POSITIVE_INFINITY if value > 0 else at.NEGATIVE_INFINITY] += 1
    else:
        side.sums[at.TOTAL] += value
        side.sums[at.SQUARES] += value * value
        _add_ends(side, value, value, np.int64(value == 0.0))


# One side


@reassociating
def _totals_of_side(x: Pointer, count: Number) -> tuple[Number, Number]:
    total, squares = 0.0, 0.0
    for i in range(count):
        total += x[i]
        squares += x[i] * x[i]
    return total, squares


@exact
def largest_64(x: Pointer, count: Number) -> Number:
    """Return the largest absolute value; NaN is larger than infinity."""
    largest = np.int64(0)
    for i in range(count):
        largest = max(largest, bits_of(x[i]) & MAGNITUDE)
    return float_of(largest)


@exact
def _largest_32(values: Pointer, count: Number) -> Number:
    largest = np.int32(0)
    for i in range(count):
        largest = max(largest, np.int32(values[i] & _MAGNITUDE_32))
    return largest


@exact
def _largest_16(values: Pointer, count: Number) -> Number:
    largest = np.int16(0)
    for i in range(count):
        largest = max(largest, np.int16(values[i] & _MAGNITUDE_16))
    return largest


@exact
def _largest_finite(x: Pointer, count: Number) -> Number:
    largest = 0.0
    for i in range(count):
        if np.isfinite(x[i]):
            largest = max(largest, abs(x[i]))
    return largest


@exact
def magnitude(side: Side, start: Number, count: Number, x: Pointer) -> Number:
    """Return the largest finite absolute value of a block, without decoding it where that can be."""
    if side.code == at.FLOAT32:
        single = _largest_32(shifted(pointer(side.raw, INT32), start), count)
        if single < _INFINITY_32:
            return float_of_single(np.uint32(single))
    elif side.code == at.FLOAT16 or side.code == at.BFLOAT16:  # noqa: PLR1714
        half = _largest_16(shifted(pointer(side.raw, INT16), start), count)
        if half < (_INFINITY_OF_FLOAT16 if side.code == at.FLOAT16 else _INFINITY_OF_BFLOAT16):
            return _end_16(np.int64(half), side.code)
    decode(side, start, count, x)
    return _largest_finite(x, count)


@exact
def add_side(side: Side, start: Number, x: Pointer, count: Number) -> None:
    """Add up a block of one side."""
    total, squares = _totals_of_side(x, count)
    if np.isfinite(total) or largest_64(x, count) < np.inf:
        side.sums[at.TOTAL] += total
        side.sums[at.SQUARES] += squares
        add_extremes(side, start, x, count)
    else:
        for i in range(count):
            add_element(side, x[i])
