"""The first element of two tensors of which the bits differ.

| golden | target       | counts as                                                   |
| ------ | ------------ | ----------------------------------------------------------- |
| 0.1    | 0.10000001   | different, by however little                                |
| 0.0    | -0.0         | different                                                   |
| NaN    | any NaN      | equal: which of its many bit patterns a NaN has tells nothing |
| +inf   | +inf         | equal                                                       |
| empty  | empty        | equal                                                       |
| any    | other dtype  | nothing is said of single elements                          |

The parts of a complex number count one by one. Whole numbers and booleans count by their values.
"""

from typing import Final

import numpy as np

from firstdrift.metrics.dtypes import Array, NumberKind, number_kind, require_one_shape
from firstdrift.metrics.measurement import BitComparison

_CHUNK: Final = 1 << 15


def compare_bits(golden: Array, target: Array, shape: tuple[int, ...] | None = None) -> BitComparison | None:
    """Find the first element, in the order of the target's memory layout as rows, whose bits differ.

    None if the dtypes differ. The index is one of a tensor of the target's shape, or of the one given.

    Raises:
        ValueError: the shapes differ.
    """
    require_one_shape(golden, target)
    if golden.dtype != target.dtype:
        return None
    at = _first_difference(golden.reshape(-1), target.reshape(-1))
    if at is None:
        return BitComparison()
    index = np.unravel_index(at, target.shape if shape is None else shape)
    sides = (array.reshape(-1)[at : at + 1] for array in (golden, target))
    return BitComparison(tuple(map(int, index)), *map(_written, sides))


def _first_difference(golden: Array, target: Array) -> int | None:
    for start in range(0, golden.size, _CHUNK):
        left, right = golden[start : start + _CHUNK], target[start : start + _CHUNK]
        if left.tobytes() == right.tobytes():
            continue
        differs = _differs(left, right)
        if differs.any():
            return start + int(differs.argmax())
    return None


def _differs(left: Array, right: Array) -> Array:
    """Say of each element whether its bits differ."""
    kind = number_kind(left.dtype)
    if kind is NumberKind.COMPLEX:
        part = np.dtype(f"f{left.itemsize // 2}")
        parts = _differs(_parts(left, part), _parts(right, part))
        return np.asarray(parts.reshape(-1, 2).any(axis=1))
    if kind is not NumberKind.FLOATING:
        return np.asarray(left != right)
    different = _words(left) != _words(right)
    return np.asarray(different & ~(np.isnan(left) & np.isnan(right)))


def _parts(array: Array, part: np.dtype[np.generic]) -> Array:
    return np.ascontiguousarray(array).view(part)


def _words(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _written(element: Array) -> str:
    """Write an element so that it can be told from its neighbours, fractions with their bits."""
    value = element[0]
    if number_kind(element.dtype) is not NumberKind.FLOATING:
        return str(value)
    digits = 2 * element.itemsize
    return f"{_shortest(value)} (0x{int(_words(element)[0]):0{digits}x})"


def _shortest(value: np.generic) -> str:
    # Dtypes that numpy does not know are fractions of float32: the shortest text that gives the same bits.
    return str(np.float32(value) if value.dtype.type.__module__ == "ml_dtypes" else value)
