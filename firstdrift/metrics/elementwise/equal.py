"""The sums of a tensor against itself: only its own have to be formed."""

import numpy as np

from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.elementwise.sums import DECADES, PairSums, SideSums, Sums

_CHUNK = 1 << 14


def equal_sums(side: SideSums, golden: Array) -> Sums:
    """Return the sums of two tensors of the same bits from those of the one."""
    finite = golden.size - side.nonfinite
    pair = PairSums(
        histogram=np.array([finite] + [0] * (len(DECADES) + 1)),
        equal=finite,
        equal_nonfinite=side.nonfinite,
        squared_golden=side.squares,
        squared_target=side.squares,
        product=side.squares,
        relative_count=finite - side.zeros,
        within_1e3=finite,
        within_5e3=finite,
    )
    if finite:
        at = _first_finite(golden) if side.nonfinite else 0
        value = np.empty(1)
        as_float64(golden.reshape(-1)[at : at + 1], value)
        pair.largest, pair.largest_at = 0.0, at
        pair.largest_golden = pair.largest_target = float(value[0])
    return Sums(side, side, pair, np.zeros(1), np.zeros(1), differs_at=-1)


def _first_finite(array: Array) -> int:
    """Return the flat index of the first finite element of a tensor that has one."""
    array = array.reshape(-1)
    for start in range(0, array.size, _CHUNK):
        values = np.empty(min(_CHUNK, array.size - start))
        with np.errstate(invalid="ignore"):  # a signalling NaN
            as_float64(array[start : start + _CHUNK], values)
        is_finite = np.isfinite(values)
        if is_finite.any():
            return start + int(is_finite.argmax())
    raise ValueError("no element is finite")
