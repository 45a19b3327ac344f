"""Do the values of golden lie at other places in target: shifted, reversed, reordered, transposed?

Asked of a few thousand places: what target has there is held against what golden has where it would have
come from. So the size of a tensor does not matter, nor how it lies in memory.
"""

from collections.abc import Iterator
from itertools import permutations
from math import inf, prod

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.hint import Hint, HintKind
from firstdrift.metrics.closeup.linear import EXPLAINS
from firstdrift.metrics.closeup.sample import Places
from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array, Floats
from firstdrift.metrics.masks import masks
from firstdrift.wording.message import Message

PLACES = 4096
_FARTHEST = 4
"""Shifts by up to so many indexes are tried."""

_AS_GOOD = 1.5
"""Of moves that leave hardly more than the best one, that is taken which explains most places."""

_MOST_DIMENSIONS = 5
_FEWEST_LEFT = 0.25
"""A shift must leave so many of the places inside the tensor."""

_LONGEST_ORDER = 256
"""Of a dimension with more slices, such as channels, no other order is looked for."""

_SEEN_OF_SLICE = 32
_SHOWN_OF_ORDER = 8

_TWO = 2


class Move(Struct, frozen=True):
    """Where the values of target would have come from.

    Attributes:
        says: the move.
        origin: flat index in golden of each place; -1 where it would lie outside.
    """

    says: Message
    origin: Places


def moved(golden: Array, target: Array, fine: tuple[int, ...] | None = None) -> Hint | None:
    """Say how the values of golden were moved, if that explains the difference; it looks at some places."""
    if golden.size <= _TWO or golden.shape != target.shape:
        return None
    at = _places(golden.size)
    seen = _take(target, at)
    before = _error(seen, _take(golden, at))
    if not before:
        return None
    # Any order is looked for where no plainer move explains: a shift is an order, too.
    plain, other = _moves(at, golden.shape, fine or golden.shape), _reordered(at, golden, target)
    most = EXPLAINS * min(before, 1.0)
    found = _best(plain, seen, golden, most) or _best(other, seen, golden, most)
    return None if found is None else Hint(HintKind.MOVED, found[0].says, before, found[1])


def _best(moves: Iterator[Move], seen: Floats, golden: Array, most: float) -> tuple[Move, float] | None:
    """Return the move that leaves the least, of equals what explains most places; `most` is left at most."""
    errors = [(move, error) for move in moves if (error := _error_of(move, seen, golden)) <= most]
    least = min((error for _, error in errors), default=0.0)
    as_good = (one for one in errors if one[1] <= _AS_GOOD * least)
    return min(as_good, key=lambda one: _outside(one[0]), default=None)


def _error_of(move: Move, seen: Floats, golden: Array) -> float:
    """Return the error that a move leaves; infinite if it leaves too few places inside the tensor."""
    inside = move.origin >= 0
    if inside.sum() < max(_TWO, _FEWEST_LEFT * len(seen)):
        return inf
    after = _error(seen[inside], _take(golden, move.origin[inside]))
    return inf if after is None else after


def _outside(move: Move) -> int:
    """Count the places that a move says nothing of: half of them, of a shift along a dimension of two."""
    return int((move.origin < 0).sum())


def _places(size: int) -> Places:
    if size <= PLACES:
        return np.arange(size)
    # The same places each time: an answer that changes when a page is loaded again is none.
    return np.unique(np.random.default_rng(0).integers(0, size, PLACES))


def _moves(at: Places, shape: tuple[int, ...], fine: tuple[int, ...]) -> Iterator[Move]:
    for axis, size in enumerate(shape):
        if size > 1:
            yield from _along(at, shape, axis)
    bare, fine = (tuple(size for size in each if size != 1) for each in (shape, fine))
    yield from _permutations(at, bare)
    if fine != bare and prod(fine) == prod(bare):
        yield from _permutations(at, fine)
    if shape[-1] % _TWO == 0 and shape[-1] > _TWO:
        yield from _interleaved(at, shape[-1])


def _along(at: Places, shape: tuple[int, ...], axis: int) -> Iterator[Move]:
    """Yield the shifts along a dimension, and its reversal."""
    index, size = np.unravel_index(at, shape), shape[axis]

    def flat(origin: Places) -> Places:
        return np.ravel_multi_index((*index[:axis], origin, *index[axis + 1 :]), shape)

    for far in range(1, min(_FARTHEST, size - 1) + 1):
        for step, shifted in ((far, "hint.shifted_later"), (-far, "hint.shifted_earlier")):
            origin = index[axis] - step
            inside = np.where((origin >= 0) & (origin < size), flat(origin % size), -1)
            yield Move(Message(shifted, {"far": far, "axis": axis}), inside)
    yield Move(Message.of("hint.reversed", axis=axis), flat(size - 1 - index[axis]))


def _reordered(at: Places, golden: Array, target: Array) -> Iterator[Move]:
    """Yield for each dimension in which other order target holds the slices of golden, if it does."""
    for axis, size in enumerate(golden.shape):
        if not _TWO < size <= _LONGEST_ORDER or golden.size == size:
            continue
        order = _order_of_slices(golden, target, axis)
        if sorted(order) == list(range(size)) != order:
            index = list(np.unravel_index(at, golden.shape))
            index[axis] = np.array(order)[index[axis]]
            listed = (*order[:_SHOWN_OF_ORDER], *("…",) * (size > _SHOWN_OF_ORDER))
            says = Message.of("hint.reordered", axis=axis, order=tuple(map(str, listed)))
            yield Move(says, np.ravel_multi_index(index, golden.shape))


def _order_of_slices(golden: Array, target: Array, axis: int) -> list[int]:
    """Say of each slice of target along a dimension which slice of golden is nearest to it."""
    size, others = golden.shape[axis], [*golden.shape[:axis], *golden.shape[axis + 1 :]]
    seen = np.unique(np.random.default_rng(0).integers(0, prod(others), _SEEN_OF_SLICE))
    place = [np.tile(one, size) for one in np.unravel_index(seen, others)]
    place.insert(axis, np.repeat(np.arange(size), len(seen)))
    flat = np.ravel_multi_index(place, golden.shape)
    ours, theirs = (np.nan_to_num(_take(array, flat)).reshape(size, -1) for array in (golden, target))
    distances = (ours**2).sum(axis=1) - 2.0 * theirs @ ours.T
    return [int(nearest) for nearest in distances.argmin(axis=1)]


def _interleaved(at: Places, size: int) -> Iterator[Move]:
    """Yield how the halves of the last dimension may take turns, and the opposite."""
    lead, column = np.divmod(at, size)
    half = size // _TWO
    yield Move(Message.of("hint.interleaved"), lead * size + column // _TWO + column % _TWO * half)
    yield Move(Message.of("hint.taken_apart"), lead * size + column % half * _TWO + column // half)


def _permutations(at: Places, shape: tuple[int, ...]) -> Iterator[Move]:
    """Golden may have been written with its dimensions in another order, and read as if they were not."""
    if not 1 < len(shape) <= _MOST_DIMENSIONS:
        return
    for order in permutations(range(len(shape))):
        if order == tuple(range(len(shape))):
            continue
        index = np.unravel_index(at, [shape[axis] for axis in order])
        origin = [index[order.index(axis)] for axis in range(len(shape))]
        said = (
            Message.of("hint.transposed")
            if len(shape) == _TWO
            else Message.of("hint.permuted", shape=shape, order=order)
        )
        yield Move(said, np.ravel_multi_index(origin, shape))


def _take(array: Array, at: Places) -> Floats:
    taken = array[np.unravel_index(at, array.shape)] if array.ndim else array.reshape(1)
    found = np.empty(len(at))
    as_float64(taken, found)
    return _with_low_masks(found)


def _with_low_masks(values: Floats) -> Floats:
    """Let what masks be as low as others are large: the lowest number of a dtype outweighs all of them."""
    masked = masks(values)
    if not masked.any():
        return values
    others = np.abs(values[~masked & np.isfinite(values)])
    return np.where(masked, -max(float(others.max(initial=0.0)), 1.0), values)


def _error(target: Floats, golden: Floats) -> float | None:
    """Return the relative L2 error over finite pairs; None if there are none, or golden is zero."""
    finite = np.isfinite(golden) & np.isfinite(target)
    norm = float(np.linalg.norm(golden[finite]))
    return float(np.linalg.norm(target[finite] - golden[finite])) / norm if norm else None
