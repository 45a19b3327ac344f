"""The element-by-element pass, compiled: the kernel finds all that is asked of a pair while it reads it once.

python -m firstdrift.metrics.elementwise.compiled     compile it, for later runs that may not write
"""

import ctypes
from typing import Any, Final, NamedTuple, Self

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
    left, right = _Side.of(golden), _Side.of(target)
    sums, counts = _run(left, right, columns, golden.itemsize if is_alike else 0, row_sums)
    differs_at = counts[layout.DIFFERS_AT] if is_alike else None
    side = _side_sums(sums, counts, 0)
    if differs_at == NOWHERE:
        return equal_sums(side, golden)
    roundoffs = (
        roundoff_of_bits(golden, counts[layout.GOLDEN_BITS]),
        roundoff_of_bits(target, counts[layout.TARGET_BITS]),
    )
    return Sums(
        side,
        _side_sums(sums, counts, layout.TARGET_SIDE),
        _pair_sums(sums, counts),
        row_sums[0],
        row_sums[1],
        differs_at=differs_at,
        roundoff=max(roundoffs),
    )


def summarise(array: Array) -> SideSums:
    """Add up everything about one non-empty tensor whose dtype is supported."""
    sums, counts = _run(_Side.of(array), _NO_SIDE, array.size, array.itemsize, _NO_ROWS)
    return _side_sums(sums, counts, 0)


class _Side(NamedTuple):
    """A tensor as it lies in one piece, its address, its code and the address of its table."""

    array: Array
    address: int
    code: int
    table: int

    @classmethod
    def of(cls, array: Array) -> Self:
        """Lay out a tensor for the kernel."""
        if not (array.flags.c_contiguous and array.flags.aligned):
            array = np.require(array, requirements=("C", "A"))
        code = layout.CODES.get(array.dtype, layout.TABLE)
        return cls(array, _address(array), code, 0 if code else _address(_table(array.dtype)))


_NO_ROWS: Final = np.empty(0)
_NO_SIDE: Final = _Side(_NO_ROWS, 0, 0, 0)


def _run(
    golden: _Side, target: _Side, columns: int, itemsize: int, rows: Floats
) -> tuple[list[float], list[int]]:
    """Call the kernel; return its sums and its counts."""
    if _Process.kernel is None:
        raise RuntimeError("the kernel is not loaded")
    sums, counts = _NOTHING_YET.copy(), np.zeros(layout.COUNTS_LENGTH, np.int64)
    counts[layout.LARGEST_KEY] = -1
    work = np.empty(layout.WORK_BYTES, np.uint8)
    start = _address(work)
    arguments = _Arguments(
        *golden[1:],
        *target[1:],
        golden.array.size,
        columns,
        itemsize,
        number_kind(golden.array.dtype) is NumberKind.INTEGER,
        start + -start % _ALIGNMENT,
        *map(_address, (sums, counts, rows, DECADES)),
    )
    _Process.kernel(_RESULT, _RESULT, arguments)
    return sums.tolist(), counts.tolist()


_Arguments: Final = ctypes.c_int64 * layout.ARGUMENTS
_RESULT: Final = (ctypes.c_int64 * 2)()
"""Where numba's functions leave what they return, and what they raise: this one does neither."""

_NOTHING_YET: Final = np.zeros(layout.SUMS_LENGTH)
_NOTHING_YET[[layout.MAXIMUM, layout.MAXIMUM + layout.TARGET_SIDE]] = -np.inf
_NOTHING_YET[[layout.MINIMUM, layout.MINIMUM + layout.TARGET_SIDE]] = np.inf
_NOTHING_YET[layout.LARGEST] = -1.0


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_tables: dict[np.dtype[Any], Floats] = {}


def _table(dtype: np.dtype[Any]) -> Floats:
    """Return the values of all 256 bytes."""
    if dtype not in _tables:
        table = np.empty(256)
        with np.errstate(invalid="ignore"):
            as_float64(np.arange(256, dtype=np.uint8).view(dtype), table)
        _tables[dtype] = table
    return _tables[dtype]


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
    load(compile_it=True)
