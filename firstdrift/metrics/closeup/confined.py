"""Does the difference lie in one row, one head, one channel, or in a range of them, alone?

An index of a dimension is bad if its own relative error is near the largest of all. Where the bad ones are
neighbours, the others far better, and nearly all of the error is theirs, the difference is said to lie there.
Healthy rounding has the same relative error everywhere, channels of large values included.
"""

from math import prod
from operator import attrgetter

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.profiles import Along, along, fold
from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Floats
from firstdrift.wording.message import Message

_FAR_BETTER = 0.1
_NEARLY_ALL = 0.95
_MOST_OF_ALL = 0.75
_FEWEST = 3
"""Dimensions of fewer indexes cannot tell."""


class Range(Struct, frozen=True):
    """Indexes of one dimension, from start to before stop, in which the difference lies.

    `share` is that of the indexes of the dimension that are in it.
    """

    axis: int
    start: int
    stop: int
    share: float


def confined(sample: Sample, roundoff: float) -> Range | None:
    """Find the smallest range of one dimension in which the difference lies; None if it is all over.

    Less than a few roundings of the coarser of the two formats is no fault.
    """
    axes = (axis for axis, size in enumerate(sample.shape) if size >= _FEWEST)
    found = filter(None, (_range(axis, along(sample, axis), roundoff) for axis in axes))
    return min(found, key=attrgetter("share"), default=None)


def _range(axis: int, sums: Along, roundoff: float) -> Range | None:
    seen = np.flatnonzero(sums.count)
    errors = relative_errors(sums)[seen]
    if len(seen) < _FEWEST or not errors.max() > 8 * roundoff:
        return None
    bad = errors > _FAR_BETTER * errors.max()
    places = np.flatnonzero(bad)
    first, last = int(places[0]), int(places[-1])
    squares = sums.squares[seen]
    if not bad[first : last + 1].all() or len(places) > _MOST_OF_ALL * len(seen):
        return None
    if squares[bad].sum() < _NEARLY_ALL * squares.sum():
        return None
    # Between rows that were looked at lie some that were not: the range ends before the next one that was.
    stop = int(seen[last]) + 1
    return Range(axis, int(seen[first]), stop, (last - first + 1) / len(seen))


def relative_errors(sums: Along) -> Floats:
    """Return the error of each index, relative to golden there, or to its mean where that is larger."""
    mean = sums.golden_squares.sum() / max(1, np.count_nonzero(sums.count))
    scale = np.maximum(sums.golden_squares, mean)
    with np.errstate(all="ignore"):
        return np.sqrt(np.where(sums.squares > 0, sums.squares / scale, 0.0))


def say_where(sample: Sample, found: Range, heads: int | None) -> Hint:
    """Say where the difference lies."""
    size = sample.shape[found.axis]
    length = found.stop - found.start
    place = {"axis": found.axis, "size": size}
    if length == 1:
        said = Message.of("hint.in_index", index=found.start, **place)
    else:
        said = Message.of("hint.in_indexes", first=found.start, last=found.stop - 1, **place)
    detail = None
    if found.axis == len(sample.shape) - 1:
        detail = _as_block(found, size, heads)
    elif found.stop == size and found.start > 0 and length > 1:
        detail = Message.of("hint.from_there_on")
    if detail is not None:
        said = Message.of("hint.with_detail", where=said, detail=detail)
    inside = sample.part(found.axis, found.start, found.stop)
    return Hint(HintKind.CONFINED, said, _error(inside), _error_without(sample, found))


def _as_block(found: Range, size: int, heads: int | None) -> Message | None:
    """Say which head, or block of that size, a range of channels is; None if it is none."""
    length = found.stop - found.start
    if length == 1 or size % length or found.start % length or heads not in (None, size // length):
        return None
    number, count = found.start // length, size // length
    return Message.of("hint.head" if heads else "hint.block", number=number, count=count)


def _error(sample: Sample) -> float | None:
    return _relative(fold(along(sample, len(sample.shape) - 1), max(1, prod(sample.shape[-1:]))))


def _error_without(sample: Sample, found: Range) -> float | None:
    sums = along(sample, found.axis)
    out = np.ones(len(sums.count), bool)
    out[found.start : found.stop] = False
    return _relative(Along(sums.count[out], sums.maximum[out], sums.squares[out], sums.golden_squares[out]))


def _relative(sums: Along) -> float | None:
    golden = float(sums.golden_squares.sum())
    return float(np.sqrt(sums.squares.sum() / golden)) if golden else None
