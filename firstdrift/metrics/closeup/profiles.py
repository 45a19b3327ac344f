"""The difference along each dimension: by token, by channel, by head."""

from math import ceil, prod

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.sample import Places, Sample
from firstdrift.metrics.dtypes import Floats

MOST_POINTS = 512


class Profile(Struct, frozen=True):
    """The difference by the index in one dimension, over all other dimensions.

    Attributes:
        axis: which dimension.
        heads: into how many heads the dimension was cut, of which each is one point; None if it was not.
        size: number of indexes (heads) there are.
        width: how many indexes each point stands for; the last may stand for fewer.
        maximum: largest |target - golden| of each point, infinite where one side is not finite; None where
            nothing was looked at.
        norm: L2 norm of the finite differences of each point, likewise.
        golden_norm: L2 norm of golden there, likewise.
    """

    axis: int
    heads: int | None
    size: int
    width: int
    maximum: tuple[float | None, ...]
    norm: tuple[float | None, ...]
    golden_norm: tuple[float | None, ...]


class Along(Struct, frozen=True):
    """Sums by the index in one dimension; `count` 0 where nothing was looked at."""

    count: Places
    maximum: Floats
    squares: Floats
    golden_squares: Floats


def along(sample: Sample, axis: int) -> Along:
    """Gather the difference by the index in a dimension."""
    is_last = axis == len(sample.shape) - 1
    over = 0 if is_last else 1
    at, size = sample.indexes(axis), sample.shape[axis]
    finite = sample.finite
    squared = np.square(np.where(finite, sample.difference, 0.0)).sum(axis=over)
    golden = np.square(np.where(finite, sample.golden, 0.0)).sum(axis=over)
    maximum = np.zeros(size)
    if sample.distance.size:
        np.maximum.at(maximum, at, sample.distance.max(axis=over))
    each = sample.distance.shape[over]
    return Along(
        np.bincount(at, minlength=size) * each,
        maximum,
        _summed(at, squared, size),
        _summed(at, golden, size),
    )


def _summed(at: Places, values: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(at, values, minlength=size), np.float64)


def fold(sums: Along, width: int) -> Along:
    """Put neighbouring indexes together, so many at a time."""
    starts = np.arange(0, len(sums.count), width)
    if not len(starts):
        return sums
    return Along(
        np.add.reduceat(sums.count, starts),
        np.maximum.reduceat(sums.maximum, starts),
        np.add.reduceat(sums.squares, starts),
        np.add.reduceat(sums.golden_squares, starts),
    )


def profiles(sample: Sample, heads: int | None = None, most: int = MOST_POINTS) -> tuple[Profile, ...]:
    """Profile each dimension of more than one index, and the heads that lie side by side in the last."""
    found = [
        _profile(axis, None, size, max(1, ceil(size / most)), along(sample, axis))
        for axis, size in enumerate(sample.shape)
        if size > 1
    ]
    last = sample.shape[-1]
    if heads is not None and 1 < heads < last and last % heads == 0:
        axis = len(sample.shape) - 1
        sums = fold(along(sample, axis), last // heads)
        found.append(_profile(axis, heads, heads, max(1, ceil(heads / most)), sums))
    return tuple(found)


def _profile(axis: int, heads: int | None, size: int, width: int, sums: Along) -> Profile:
    sums = fold(sums, width) if width > 1 else sums
    seen = sums.count > 0
    columns = (sums.maximum, np.sqrt(sums.squares), np.sqrt(sums.golden_squares))
    known = (
        tuple(value if is_seen else None for value, is_seen in zip(each.tolist(), seen.tolist(), strict=True))
        for each in columns
    )
    return Profile(axis, heads, size, width, *known)


def guess_heads(shape: tuple[int, ...], *others: tuple[int, ...] | None) -> int | None:
    """Guess how many heads lie in the last dimension, [5, 896], which another shape cuts, [5, 14, 64]."""
    for other in filter(None, others):
        *outer, depth = (1, *(size for size in other if size != 1))
        if shape and prod(other) == prod(shape) and 1 < depth < shape[-1]:
            heads, left = divmod(shape[-1], depth)
            if not left and heads in outer:
                return heads
    return None
