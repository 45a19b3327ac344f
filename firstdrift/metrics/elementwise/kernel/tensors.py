"""All that is asked of a pair, in one pass over blocks that stay in the fastest cache; numba compiles it.

    golden bytes ─ decode ─▶ x ┐
                               ├─▶ d = y - x, and its key: the upper half of |d|
    target bytes ─ decode ─▶ y ┘
         └─ extremes, zeros, bits: by integers of the dtype's own width

One short loop per question, stores apart from sums, or it is not vectorised. Sums may be reassociated; d is
stored before it is summed, so that a sum of differences never becomes a difference of sums. No flag lets the
compiler ignore NaN: floats are ordered by the integers that they consist of.

Nothing here allocates, raises or knows Python: these are plain pointers, so that the machine code stands
alone and runs without numba (`machine_code`). This module is imported to compile it, and never else.
"""

import numpy as np

from firstdrift.metrics.elementwise import layout as at
from firstdrift.metrics.elementwise.kernel.blocks import BINS, Block, Pair, add_block
from firstdrift.metrics.elementwise.kernel.pointers import (
    FLOAT64,
    INT32,
    INT64,
    UINT8,
    UINT64,
    Number,
    Pointer,
    bits_of,
    compiled_alone,
    exact,
    pointer,
    shifted,
)
from firstdrift.metrics.elementwise.kernel.sides import Side, add_side, decode, magnitude


@exact
def _differ(golden: Pointer, target: Pointer, count: Number) -> Number:
    differing = golden[0] ^ golden[0]
    for i in range(count):
        differing |= golden[i] ^ target[i]
    return differing != 0


@exact
def _bytes_differ(golden: Number, target: Number, size: Number) -> Number:
    words = size // 8
    if _differ(pointer(golden, UINT64), pointer(target, UINT64), words):
        return True
    rest = 8 * words
    return _differ(pointer(golden + rest, UINT8), pointer(target + rest, UINT8), size - rest)


@exact
def _first_difference(args: Pointer, pair: Pair, start: Number, count: Number, block: Block) -> Number:
    """Return the first element of a block whose bits differ, of integers whose value does; -1 if none."""
    itemsize = args[at.ITEMSIZE]
    golden, target = pair.golden.raw + start * itemsize, pair.target.raw + start * itemsize
    if not _bytes_differ(golden, target, count * itemsize):
        return -1
    x, y = block.x, block.y
    decode(pair.golden, start, count, x)
    decode(pair.target, start, count, y)
    for i in range(count):
        if _bytes_differ(golden + i * itemsize, target + i * itemsize, itemsize):
            tells_nothing = x[i] == y[i] if args[at.IS_INTEGER] else np.isnan(x[i]) and np.isnan(y[i])
            if not tells_nothing:
                return start + i
    return -1


@exact
def _add_up_while_equal(args: Pointer, pair: Pair, block: Block) -> Number:
    """Add up the golden side as long as the target is the same; return the first element that is not."""
    size = args[at.SIZE]
    for start in range(0, size, at.BLOCK):
        count = min(at.BLOCK, size - start)
        if pair.target.raw:
            differs = _first_difference(args, pair, start, count, block)
            if differs >= 0:
                return differs
        decode(pair.golden, start, count, block.x)
        add_side(pair.golden, start, block.x, count)
    return -1


@exact
def _clear(side: Side) -> None:
    side.sums[at.MAXIMUM], side.sums[at.MINIMUM] = -np.inf, np.inf
    side.sums[at.TOTAL], side.sums[at.SQUARES], side.bits[0] = 0.0, 0.0, 0
    for place in range(at.TARGET_SIDE):
        side.counts[place] = 0


@exact
def _add_pair(pair: Pair, block: Block, size: Number, decades: Pointer) -> None:
    largest = 0.0
    for start in range(0, size, at.BLOCK):
        largest = max(largest, magnitude(pair.golden, start, min(at.BLOCK, size - start), block.x))
    for k in range(BINS):
        block.bounds[k] = np.int32(bits_of(decades[k] * largest) >> 32)
    for start in range(0, size, at.BLOCK):
        add_block(pair, block, start, min(at.BLOCK, size - start))


@exact
def _block(work: Number) -> Block:
    x, keys = pointer(work, FLOAT64), pointer(work + 24 * at.BLOCK, INT32)
    return Block(x, shifted(x, at.BLOCK), shifted(x, 2 * at.BLOCK), keys, shifted(keys, at.BLOCK))


@exact
def _pair(args: Pointer) -> Pair:
    sums, counts = pointer(args[at.SUMS], FLOAT64), pointer(args[at.COUNTS], INT64)
    rows = pointer(args[at.ROWS], FLOAT64)
    return Pair(
        Side(
            args[at.GOLDEN],
            args[at.GOLDEN_CODE],
            args[at.GOLDEN_TABLE],
            sums,
            counts,
            shifted(counts, at.GOLDEN_BITS),
        ),
        Side(
            args[at.TARGET],
            args[at.TARGET_CODE],
            args[at.TARGET_TABLE],
            shifted(sums, at.TARGET_SIDE),
            shifted(counts, at.TARGET_SIDE),
            shifted(counts, at.TARGET_BITS),
        ),
        sums,
        counts,
        args[at.COLUMNS],
        rows,
        shifted(rows, args[at.SIZE] // args[at.COLUMNS]),
    )


def measure(args: Pointer) -> None:
    """Add up everything about a pair, or about one tensor; `layout` says where it is found and left."""
    pair, block = _pair(args), _block(args[at.WORK])
    if args[at.ITEMSIZE]:
        pair.counts[at.DIFFERS_AT] = _add_up_while_equal(args, pair, block)
        if pair.counts[at.DIFFERS_AT] < 0:
            return
        _clear(pair.golden)
    _add_pair(pair, block, args[at.SIZE], pointer(args[at.DECADES], FLOAT64))


def compiled() -> tuple[str, str]:
    """Compile the kernel; return its name, and its code as LLVM has it."""
    return compiled_alone(measure)
