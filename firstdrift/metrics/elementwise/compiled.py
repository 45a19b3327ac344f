"""The element-by-element pass, compiled: the kernel finds all that is asked of a pair while it reads it once.

python -m firstdrift.metrics.elementwise.compiled     compile it, for later runs that may not write
"""

import ctypes
import sys
import threading
from functools import cache
from typing import Any, Final

import numpy as np

from firstdrift.metrics.bits import NOWHERE
from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array, Floats, NumberKind, number_kind
from firstdrift.metrics.elementwise import layout, machine_code
from firstdrift.metrics.elementwise.equal import equal_sums
from firstdrift.metrics.elementwise.sums import DECADES, PairSums, SideSums, Sums, rows_and_columns
from firstdrift.metrics.stored_format import roundoff_of_bits

_ALIGNMENT: Final = 64


class _Process:
    """The kernel of this process, once it is loaded."""

    kernel: machine_code.Function | None = None


def load(*, compile_it: bool = False) -> bool:
    """Load the kernel that an earlier run has left, or else compile it if asked to; tell if it is there."""
    if _Process.kernel is None:
        _Process.kernel = machine_code.load()
    if _Process.kernel is None and compile_it:
        _Process.kernel = machine_code.compile_and_keep()
    return _Process.kernel is not None


def supports(array: Array) -> bool:
    """Tell whether the kernel decodes the dtype of an array."""
    return array.itemsize == 1 or array.dtype in layout.CODES


def measure(golden: Array, target: Array) -> Sums:
    """Add up everything about two non-empty tensors of one shape whose dtypes are supported."""
    rows, columns = rows_and_columns(golden.shape)
    is_alike = golden.dtype == target.dtype
    row_sums = np.zeros((2, rows))
    sums, counts = _run(golden, target, columns, golden.itemsize if is_alike else 0, row_sums)
    differs_at = counts[layout.DIFFERS_AT] if is_alike else None
    side = _side_sums(sums, counts, 0)
    if differs_at == NOWHERE:
        return equal_sums(side, golden)
    return Sums(
        side,
        _side_sums(sums, counts, layout.TARGET_SIDE),
        _pair_sums(sums, counts),
        row_sums[0],
        row_sums[1],
        differs_at=differs_at,
        roundoff=max(
            roundoff_of_bits(golden, counts[layout.GOLDEN_BITS]),
            roundoff_of_bits(target, counts[layout.TARGET_BITS]),
        ),
    )


def summarise(array: Array) -> SideSums:
    """Add up everything about one non-empty tensor whose dtype is supported."""
    sums, counts = _run(array, None, array.size, array.itemsize, _NO_ROWS)
    return _side_sums(sums, counts, 0)


_NO_ROWS: Final = np.empty(0)
_RESULT: Final = (ctypes.c_int64 * 2)()
"""Where numba's functions leave what they return, and what they raise: this one does neither."""

_NOTHING_YET: Final = np.zeros(layout.SUMS_LENGTH)
_NOTHING_YET[[layout.MAXIMUM, layout.MAXIMUM + layout.TARGET_SIDE]] = -np.inf
_NOTHING_YET[[layout.MINIMUM, layout.MINIMUM + layout.TARGET_SIDE]] = np.inf
_NOTHING_YET[layout.LARGEST] = -1.0
_NONE_YET: Final = np.zeros(layout.COUNTS_LENGTH, np.int64)
_NONE_YET[layout.LARGEST_KEY] = -1


class _Room(threading.local):
    """What the kernel writes to, in each thread that calls it."""

    def __init__(self) -> None:
        self.sums, self.counts = np.empty_like(_NOTHING_YET), np.empty_like(_NONE_YET)
        self.work = np.empty(layout.WORK_BYTES, np.uint8)
        start = _address(self.work)
        self.arguments = (ctypes.c_int64 * layout.ARGUMENTS)()
        self.arguments[layout.WORK] = start + -start % _ALIGNMENT
        self.arguments[layout.SUMS : layout.COUNTS + 1] = [*map(_address, (self.sums, self.counts))]
        self.arguments[layout.DECADES] = _address(DECADES)


def _run(
    golden: Array, target: Array | None, columns: int, itemsize: int, rows: Floats
) -> tuple[list[float], list[int]]:
    """Call the kernel; return its sums and its counts."""
    if _Process.kernel is None:
        raise RuntimeError("the kernel is not loaded")
    left, right = _in_one_piece(golden), _NO_ROWS if target is None else _in_one_piece(target)
    code, table, is_integer = _decoding(golden.dtype)
    target_side = (0, 0, 0) if target is None else (_address(right), *_decoding(target.dtype)[:2])
    _room.sums[:], _room.counts[:] = _NOTHING_YET, _NONE_YET
    _room.arguments[: layout.WORK] = [
        *(_address(left), code, table, *target_side),
        *(golden.size, columns, itemsize, is_integer),
    ]
    _room.arguments[layout.ROWS] = _address(rows)
    _Process.kernel(_RESULT, _RESULT, _room.arguments)
    return _room.sums.tolist(), _room.counts.tolist()


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_room: Final = _Room()


def _in_one_piece(array: Array) -> Array:
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, requirements=("C", "A"))


@cache
def _decoding(dtype: np.dtype[Any]) -> tuple[int, int, bool]:
    """Return how a dtype is decoded, where the values of all 256 bytes lie, and whether it is of integers."""
    code = layout.CODES.get(dtype, layout.TABLE)
    return code, 0 if code else _address(_table(dtype)), number_kind(dtype) is NumberKind.INTEGER


@cache
def _table(dtype: np.dtype[Any]) -> Floats:
    """Return the values of all 256 bytes."""
    table = np.empty(256)
    with np.errstate(invalid="ignore"):
        as_float64(np.arange(256, dtype=np.uint8).view(dtype), table)
    return table


def _side_sums(sums: list[float], counts: list[int], place: int) -> SideSums:
    maximum, minimum, total, squares = sums[place : place + layout.TARGET_SIDE]
    return SideSums(maximum, minimum, total, squares, *counts[place : place + layout.TARGET_SIDE])


def _pair_sums(sums: list[float], counts: list[int]) -> PairSums:
    return PairSums(
        histogram=np.array(counts[layout.HISTOGRAM :]),
        equal=counts[layout.EQUAL],
        equal_nonfinite=counts[layout.EQUAL_NONFINITE],
        mismatched_nonfinite=counts[layout.MISMATCHED],
        difference=sums[layout.DIFFERENCE],
        absolute=sums[layout.ABSOLUTE],
        squared_difference=sums[layout.SQUARED_DIFFERENCE],
        squared_golden=sums[layout.SQUARED_GOLDEN],
        squared_target=sums[layout.SQUARED_TARGET],
        product=sums[layout.PRODUCT],
        largest=sums[layout.LARGEST],
        largest_at=counts[layout.LARGEST_AT],
        largest_golden=sums[layout.LARGEST_GOLDEN],
        largest_target=sums[layout.LARGEST_TARGET],
        relative_count=counts[layout.RELATIVE_COUNT],
        relative_total=sums[layout.RELATIVE_TOTAL],
        relative_maximum=sums[layout.RELATIVE_MAXIMUM],
        within_1e3=counts[layout.WITHIN_1E3],
        within_5e3=counts[layout.WITHIN_5E3],
    )


if __name__ == "__main__":
    try:
        load(compile_it=True)
    except Exception as error:  # noqa: BLE001 - a compiler may be missing, or fail in its own ways
        print(f"firstdrift: no machine code can be made here, so numpy measures: {error}", file=sys.stderr)  # noqa: T201
