"""In what other order what a linear module gives may lie: queries and keys by head, or in turns.

0 1 2 3 | 4 5 6 7        two heads, the halves of each one after the other
0 2 1 3 | 4 6 5 7        the same with the halves taking turns, as a rotation of neighbours wants them
q q k v | q q k v        queries, keys and values in each of two groups, where the other run has qqqqkkvv

An order is taken only if it makes the two the same but for rounding: the same numbers in another place. What
a module gives lies as its weight does: an order that brings its weights no nearer is a fault.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product, starmap
from typing import Final

import numpy as np

from firstdrift.metrics.arrangement import Arrangement, best_arrangement, in_turns, rows_along
from firstdrift.metrics.conversion import finite
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message

_SAME: Final = 1e-2
"""Relative L2 difference up to which two tensors are the same as they lie."""

_NEARER: Final = 0.5
"""Share of the difference as they lie up to which an order has brought two witnesses nearer."""

_MUCH_NEARER: Final = 200
"""Factor by which sorting brings two tensors nearer that are the same but for order and rounding."""

_MOST_HEADS: Final = 16
"""Queries for each key up to which groups are looked for."""

_LEAST: Final = 4
"""Elements of the smallest head."""

Witnesses = Callable[[], Sequence[Array]]
"""Loads what an order has to hold for as well: a golden and a target tensor, and so on."""


def rearranged(
    array: Array, whole: Array | None, witnesses: Witnesses | None = None, *, is_given: bool = False
) -> tuple[Array, Message | None]:
    """Return a tensor with its elements along a dimension in the order in which another one has them.

    It stays as it is where it is the same already, where shapes differ, where no order makes it so, and where
    there are witnesses none of which lie in that order too. Where all witnesses lie in another order, and it
    does not, that is said; not of what a module is given, for a weight has an order of its own for that.
    """
    if whole is None or np.squeeze(array).shape != np.squeeze(whole).shape:
        return array, None
    if _are_same(array, whole):
        lies_alone = witnesses is not None and not is_given and _are_turned(witnesses(), whole)
        return array, Message.of("metrics.unlike_witnesses") if lies_alone else None
    for axis in (-1, 0) if np.squeeze(array).ndim > 1 else (-1,):
        order, how = _order(array, whole, axis)
        if order is not None and (witnesses is None or are_witnessed(order, witnesses())):
            return _moved(array, order, axis), how
    return (array, None) if witnesses is None else _as_the_weight(array, whole, witnesses())


def _as_the_weight(array: Array, whole: Array, witnesses: Sequence[Array]) -> tuple[Array, Message | None]:
    """Return what a module gives, or takes, in the order of its weight, if that brings the two nearer.

    Its values differ by more than rounding, as those of a coarse format do after some layers.
    """
    pairs = zip(witnesses[::2], witnesses[1::2], strict=True)
    for (golden, target), axis in product(pairs, (0, -1)):
        alike = np.squeeze(golden).shape == np.squeeze(target).shape
        order, how = _order(golden, target, axis) if alike else (None, None)
        if order is not None and _brings_nearer(order, array, whole, axis=-1):
            return _moved(array, order, -1), how
    return array, None


def hold_the_same_numbers(golden: Array, target: Array, difference: float) -> bool:
    """Tell whether two tensors, `difference` apart (relative L2), are the same but for order and rounding.

    Sorted, two tensors are no further apart than rounding makes them (the rearrangement inequality); other
    numbers stay apart.
    """
    first, second = np.sort(finite(golden), axis=None), np.sort(finite(target), axis=None)
    if first.size != second.size:
        return False
    apart = float(np.linalg.norm(first - second))
    return apart * _MUCH_NEARER < difference * float(np.linalg.norm(first))


def _order(array: Array, whole: Array, axis: int) -> tuple[Array | None, Message | None]:
    """Return the order along a dimension that makes two tensors the same, and what it is called."""
    if not _have_same_numbers(array, whole, axis):
        return None, None
    order, how = best_arrangement(array, whole, axis, _orders(_size(array, axis)))
    is_found = order is not None and _are_same(_moved(array, order, axis), whole)
    return (order, how) if is_found else (None, None)


def _moved(array: Array, order: Array, axis: int) -> Array:
    moved: Array = np.take(np.squeeze(array), order, axis=axis).reshape(array.shape)
    return moved


def are_witnessed(order: Array, witnesses: Sequence[Array]) -> bool:
    """Tell whether an order brings one golden witness nearer to its target, along whichever dimension."""
    pairs = zip(witnesses[::2], witnesses[1::2], strict=True)
    return any(_brings_nearer(order, *pair, axis=axis) for pair in pairs for axis in (0, -1))


def _are_turned(witnesses: Sequence[Array], whole: Array) -> bool:
    """Tell whether all witnesses, golden and target in turn, are the same in another order of that size."""
    pairs = zip(witnesses[::2], witnesses[1::2], strict=True)
    return bool(witnesses) and all(_is_turned(*pair, whole.shape) for pair in pairs)


def _is_turned(golden: Array, target: Array, sizes: tuple[int, ...]) -> bool:
    if np.squeeze(golden).shape != np.squeeze(target).shape:
        return False
    rows = ((_first_row(golden, axis), _first_row(target, axis)) for axis in (-1, 0))
    if all(starmap(_are_same, rows)):  # enough to see that they lie alike, and read at once
        return False
    axes = (axis for axis in (-1, 0) if _size(golden, axis) in sizes)
    return any(_order(golden, target, axis)[0] is not None for axis in axes)


def _brings_nearer(order: Array, golden: Array, target: Array, *, axis: int) -> bool:
    first, second = np.squeeze(finite(golden)), np.squeeze(finite(target))
    if first.shape != second.shape or not first.ndim or first.shape[axis] != len(order):
        return False
    as_they_lie = np.linalg.norm(first - second)
    in_order = np.linalg.norm(np.take(first, order, axis=axis) - second)
    return bool(in_order <= _NEARER * as_they_lie and as_they_lie)


def _size(array: Array, axis: int) -> int:
    return int((np.squeeze(array).shape or (1,))[axis])


def _are_same(array: Array, whole: Array) -> bool:
    first, second = finite(array).ravel(), finite(whole).ravel()
    return bool(np.linalg.norm(first - second) <= _SAME * np.linalg.norm(first))


def _have_same_numbers(array: Array, whole: Array, axis: int) -> bool:
    """Tell whether the longest row along a dimension has the same numbers in both, in whatever order.

    Of a gradient a row may be nothing but rounding: that of the first query, which attends to one key alone.
    """
    first, second = (finite(rows_along(side, axis)) for side in (array, whole))
    longest = np.linalg.norm(first, axis=1).argmax()
    return _are_same(np.sort(first[longest]), np.sort(second[longest]))


def _first_row(array: Array, axis: int) -> Array:
    row: Array = rows_along(array, axis)[0]
    return row


def _orders(size: int) -> Iterator[Arrangement]:
    """Yield the orders that are known, and what undoes them."""
    for head in range(_LEAST, size + 1, 2):
        if size % head == 0:
            yield from _both_ways(*_halves_in_turns(size, head))
    for queries in range(1, _MOST_HEADS + 1):
        if size % (queries + 2) == 0:
            part = size // (queries + 2)
            for order, how in in_turns([queries * part, part, part]):
                yield from _both_ways(order, how)


def _halves_in_turns(size: int, head: int) -> Arrangement:
    order = np.arange(size).reshape(-1, 2, head // 2).swapaxes(1, 2).ravel()
    return order, Message.of("metrics.halves_in_turns", size=head)


def _both_ways(order: Array, how: Message) -> Iterator[Arrangement]:
    yield order, how
    yield np.argsort(order), how
