"""Which elements of a pair are looked at: all of them, or whole rows at a regular distance.

A tensor is a table here: its last dimension runs along the columns, all others along the rows. If it has more
elements than the budget, every k-th row is taken, with k prime to each dimension, so that all indexes of each
dimension are met; a row that is longer than the budget is thinned out likewise. Rows that are known to be of
interest are taken in any case.
"""

from collections.abc import Collection
from math import ceil, gcd, prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firstdrift.metrics.conversion import fill
from firstdrift.metrics.dtypes import Array, Floats, require_one_shape

Places = npt.NDArray[np.intp]

BUDGET = 2**20
"""Elements looked at of each side."""


class Sample(Struct, frozen=True):
    """The elements of a pair that are looked at, in float64 (complex: moduli).

    Attributes:
        shape: of the tensors, which have the same.
        rows: which rows, ascending.
        columns: which columns, ascending.
        every: the distance of the rows taken; 1 if all were.
        every_column: likewise of the columns.
        golden: their elements, (rows, columns).
        target: likewise.
        difference: target - golden; NaN or infinite where one is not finite.
        distance: |target - golden|; 0 where both are equal, NaN and infinities included, and infinite where
            one of them is not finite and the other not equal to it.
    """

    shape: tuple[int, ...]
    rows: Places
    columns: Places
    every: int
    every_column: int
    golden: Floats
    target: Floats
    difference: Floats
    distance: Floats

    @property
    def is_whole(self) -> bool:
        """True if nothing was left out."""
        return self.every == self.every_column == 1

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        """Where both sides are finite."""
        return np.isfinite(self.golden) & np.isfinite(self.target)

    @property
    def finite_pairs(self) -> tuple[Floats, Floats]:
        """The elements of golden and target where both are finite."""
        finite = self.finite
        return self.golden[finite], self.target[finite]

    def indexes(self, axis: int) -> Places:
        """Return the index that each row (the last dimension: each column) has in a dimension."""
        if axis == len(self.shape) - 1:
            return self.columns
        return np.asarray(np.unravel_index(self.rows, self.shape[:-1])[axis], np.intp)

    def part(self, axis: int, start: int, stop: int) -> "Sample":
        """Return what of the sample has an index from start to before stop in a dimension."""
        chosen = (self.indexes(axis) >= start) & (self.indexes(axis) < stop)
        rows, columns = np.ones(len(self.rows), bool), np.ones(len(self.columns), bool)
        if axis == len(self.shape) - 1:
            columns = chosen
        else:
            rows = chosen
        where = np.ix_(rows, columns)
        cut = (self.golden[where], self.target[where], self.difference[where], self.distance[where])
        return Sample(self.shape, self.rows[rows], self.columns[columns], self.every, self.every_column, *cut)


def take_sample(golden: Array, target: Array, budget: int = BUDGET, always: Collection[int] = ()) -> Sample:
    """Take about `budget` elements of each of two tensors, and the rows of those that are always looked at.

    Raises:
        ValueError: the shapes differ.
    """
    require_one_shape(golden, target)
    shape = golden.shape or (1,)
    golden, target = golden.reshape(shape), target.reshape(shape)
    lead, length = shape[:-1], shape[-1]
    count = prod(lead)
    every_column = max(1, ceil(length / max(1, budget)))
    per_row = max(1, ceil(length / every_column))
    every = coprime(ceil(count * per_row / max(1, budget)), lead)
    columns = np.arange(0, length, every_column)
    rows = np.arange(0, count, every)
    known = np.array([at for at in always if 0 <= at < count * length], np.intp)
    if every > 1:
        rows = np.union1d(rows, known // length)
    if every_column > 1:
        columns = np.union1d(columns, known % length)
    taken = [gather(array, rows, columns, whole=every == every_column == 1) for array in (golden, target)]
    work = np.empty((4, len(rows), len(columns)))
    with np.errstate(all="ignore"):
        fill(taken[0], taken[1], work)
        distance = _distances(work)
    return Sample(shape, rows, columns, every, every_column, work[0], work[1], work[2], distance)


def coprime(step: int, dimensions: Collection[int]) -> int:
    """Return the least step that is as large and shares no factor with the dimensions; 1 for 1."""
    size = prod(dimension for dimension in dimensions if dimension > 1)
    step = max(1, step)
    while step > 1 and gcd(step, size) > 1:
        step += 1
    return step


def gather(array: Array, rows: Places, columns: Places, *, whole: bool) -> Array:
    """Copy rows and columns of a tensor that is seen as a table, and read nothing else of it."""
    if whole:
        return array.reshape(len(rows), len(columns))
    lead = np.unravel_index(rows, array.shape[:-1]) if array.ndim > 1 else ()
    if len(columns) == array.shape[-1]:
        taken: Array = array[lead]
    else:
        taken = array[(*(index[:, None] for index in lead), columns[None, :])]
    return taken.reshape(len(rows), len(columns))


def distances(golden: Array, target: Array) -> Floats:
    """Return |target - golden| of arrays of one shape, as `Sample.distance` has it."""
    work = np.empty((4, *golden.shape))
    with np.errstate(all="ignore"):
        fill(golden, target, work)
        return _distances(work)


def _distances(work: Floats) -> Floats:
    golden, target, distance = work[0], work[1], work[3]
    if not np.isfinite(distance).all():
        same = (golden == target) | (np.isnan(golden) & np.isnan(target))
        distance = np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))
    return np.asarray(distance, np.float64)
