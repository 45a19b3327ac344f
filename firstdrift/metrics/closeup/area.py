"""Two dimensions of a pair, the others held at an index: a map of |target - golden|, and the numbers."""

from itertools import chain
from math import ceil

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.sample import BUDGET, distances
from firstdrift.metrics.conversion import fill
from firstdrift.metrics.dtypes import Array

MOST_CELLS = 256
"""Along each side of a map."""

HEIGHT, WIDTH = 9, 6
"""Numbers around a place."""


class Area(Struct, frozen=True):
    """A map; each cell shows the largest |target - golden| of a block of elements.

    Attributes:
        axes: dimension that runs down, dimension that runs across; the first is None for a single row.
        at: the index in every dimension at which the others are held.
        size: number of indexes down and across.
        block: number of indexes that a cell covers down and across; those at the far edges may cover fewer.
        every: of each block, every how many-th index was looked at, down and across.
        cells: row by row; infinite where NaN or an infinity meets something else.
        largest: of the cells; 0 if there are none.
    """

    axes: tuple[int | None, int]
    at: tuple[int, ...]
    size: tuple[int, int]
    block: tuple[int, int]
    every: tuple[int, int]
    cells: tuple[tuple[float, ...], ...]
    largest: float


def plane(array: Array, axes: tuple[int | None, int], at: tuple[int, ...]) -> Array:
    """View a tensor as the table of two of its dimensions, the others held at an index; copies nothing."""
    down, across = axes
    if array.ndim == 0:
        return array.reshape(1, 1)
    where = tuple(slice(None) if axis in axes else index for axis, index in enumerate(at))
    table = array[where]
    if down is None:
        return table.reshape(1, -1)
    return table if down < across else table.T


def difference_map(
    golden: Array,
    target: Array,
    axes: tuple[int | None, int],
    at: tuple[int, ...],
    *,
    most: int = MOST_CELLS,
    budget: int = BUDGET,
) -> Area:
    """Draw the map of two tensors of one shape over the dimensions that run down (if any) and across.

    It has at most `most` cells along a side. About `budget` elements are looked at; no cell is left without.
    """
    tables = [plane(array, axes, at) for array in (golden, target)]
    height, width = tables[0].shape
    block = max(1, ceil(height / most)), max(1, ceil(width / most))
    wanted = ceil(height * width / budget)
    every_row = min(block[0], max(1, wanted))
    every_column = min(block[1], max(1, ceil(wanted / every_row)))
    begins = np.arange(0, width, block[1])
    columns = np.flatnonzero(np.arange(width) % block[1] % every_column == 0)
    starts = np.searchsorted(columns, begins)
    chosen: Array | slice = columns if every_column > 1 else slice(None)
    rows = []
    for start in range(0, height, block[0]):
        part = slice(start, min(start + block[0], height), every_row)
        far = distances(tables[0][part][:, chosen], tables[1][part][:, chosen]).max(axis=0)
        rows.append(np.maximum.reduceat(far, starts) if len(starts) else far)
    cells = tuple(tuple(row.tolist()) for row in rows)
    largest = max(chain.from_iterable(cells), default=0.0)
    return Area(axes, at, (height, width), block, (every_row, every_column), cells, largest)


class Window(Struct, frozen=True):
    """The numbers around a place: a piece of the table of two dimensions.

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
    said = [tuple(map(tuple, each.tolist())) for each in work[:3]]
    return Window(axes, at, rows, columns, *said)


def _around(middle: int, extent: int, size: int) -> tuple[int, int]:
    start = max(0, min(middle - extent // 2, size - extent))
    return start, min(size, start + extent)
