"""The numbers around a place, both sides and their difference."""

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.area import plane
from firstdrift.metrics.conversion import fill
from firstdrift.metrics.dtypes import Array

HEIGHT, WIDTH = 9, 6


class Window(Struct, frozen=True):
    """A piece of the table of two dimensions.

    Attributes:
        axes: dimension that runs down, dimension that runs across; the first is None for a single row.
        at: the index in every dimension around which it lies.
        rows: indexes down, from first to before last; likewise columns.
        golden: the values, row by row (complex: moduli); likewise target and difference, target - golden.
    """

    axes: tuple[int | None, int]
    at: tuple[int, ...]
    rows: tuple[int, int]
    columns: tuple[int, int]
    golden: tuple[tuple[float, ...], ...]
    target: tuple[tuple[float, ...], ...]
    difference: tuple[tuple[float, ...], ...]


def values_around(
    golden: Array,
    target: Array,
    axes: tuple[int | None, int],
    at: tuple[int, ...],
    extent: tuple[int, int] = (HEIGHT, WIDTH),
) -> Window:
    """Cut the window around a place out of two tensors of one shape; it never reaches beyond them."""
    down, across = axes
    tables = [plane(array, axes, at) for array in (golden, target)]
    size = tables[0].shape
    middle = (at[down] if down is not None else 0, at[across] if at else 0)
    rows, columns = (_around(*each) for each in zip(middle, extent, size, strict=True))
    pieces = [table[slice(*rows), slice(*columns)] for table in tables]
    work = np.empty((4, *pieces[0].shape))
    with np.errstate(all="ignore"):
        fill(pieces[0], pieces[1], work)
    said = [tuple(tuple(row) for row in each.tolist()) for each in work[:3]]
    return Window(axes, at, rows, columns, *said)


def _around(middle: int, extent: int, size: int) -> tuple[int, int]:
    start = max(0, min(middle - extent // 2, size - extent))
    return start, min(size, start + extent)
