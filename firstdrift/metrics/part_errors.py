"""How far each part is off of a tensor that was joined from parts.

    joined   q q q q k k v v        labels  0 0 0 0 1 1 2 2        errors  1e-7  0.31  2e-7

Labels say of which part an element is, along the dimensions along which that differs.
"""

import math
from typing import Final

import numpy as np

from firstdrift.metrics.conversion import widened
from firstdrift.metrics.dtypes import Array

_AT_ONCE: Final = 2**22
"""Elements that are widened at once."""


def errors_of_parts(golden: Array, target: Array, labels: Array, parts: int) -> tuple[float, ...]:
    """Return the relative L2 error of each part, in the order of their labels, which are 0, 1 and so on.

    Args:
        golden: the golden tensor.
        target: the target tensor, of the same shape.
        labels: of as many dimensions; a dimension of size 1 stands for one of any size.
        parts: how many parts there are.
    """
    differences, norms = np.zeros(parts), np.zeros(parts)
    rows = max(1, _AT_ONCE // max(1, math.prod(golden.shape[1:])))
    for start in range(0, len(golden), rows):
        of_rows = labels if len(labels) == 1 else labels[start : start + rows]
        squares = _squares(golden[start : start + rows], target[start : start + rows])
        differences += _by_label(squares[0], of_rows, parts)
        norms += _by_label(squares[1], of_rows, parts)
    return tuple(map(_relative, differences.tolist(), norms.tolist()))


def _by_label(squares: Array, labels: Array, parts: int) -> Array:
    alike = tuple(axis for axis, size in enumerate(labels.shape) if size == 1)
    return np.bincount(labels.ravel(), squares.sum(axis=alike, keepdims=True).ravel(), parts)


def _squares(golden: Array, target: Array) -> tuple[Array, Array]:
    """Return the squares of the differences and of the golden elements; what is equal differs by 0."""
    first, second = widened(golden), widened(target)
    with np.errstate(all="ignore"):
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        difference = np.abs(np.where(same, 0, second - first))
        return difference**2, np.abs(np.where(same & ~np.isfinite(first), 0, first)) ** 2


def _relative(difference: float, golden: float) -> float:
    if difference == 0:
        return 0.0
    error = math.sqrt(difference / golden) if golden and math.isfinite(golden) else math.inf
    return math.inf if math.isnan(error) else error
