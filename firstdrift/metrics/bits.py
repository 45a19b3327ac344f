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

NOWHERE: Final = -1
"""Where two tensors of the same bits differ."""

_CHUNK: Final = 1 << 15


def comparison_of(
    golden: Array, target: Array, differs_at: int | None, shape: tuple[int, ...]
) -> BitComparison | None:
    """Say what `first_difference` found; the index is one of a tensor of the shape that is given."""
    if differs_at is None:
        return None
    if differs_at == NOWHERE:
        return BitComparison()
    index = np.unravel_index(differs_at, shape)
    sides = (array.reshape(-1)[differs_at : differs_at + 1] for array in (golden, target))
    return BitComparison(tuple(map(int, index)), *map(_written, sides))


def first_difference(golden: Array, target: Array) -> int | None:
    """Return the index of the first element, in rows, whose bits differ; `NOWHERE`; None if dtypes differ.

    Raises:
        ValueError: the shapes differ.
    """
    require_one_shape(golden, target)
    if golden.dtype != target.dtype:
        return None
    golden, target = golden.reshape(-1), target.reshape(-1)
    for start in range(0, golden.size, _CHUNK):
        left, right = golden[start : start + _CHUNK], target[start : start + _CHUNK]
        if left.tobytes() == right.tobytes():
            continue
        differs = _differs(left, right)
        if differs.any():
            return start + int(differs.argmax())
    return NOWHERE


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
    with np.errstate(invalid="ignore"):  # a signalling NaN
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
