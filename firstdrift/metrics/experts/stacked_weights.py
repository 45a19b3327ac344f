"""Weights of single experts, laid as they lie in one tensor that stacks those of all.

    experts.0.gate_proj [24, 16]  experts.0.up_proj [24, 16]  experts.1.gate_proj ...    four experts
    experts.gate_up_proj [4, 48, 16], or [4, 16, 48] where it is transposed; the rows of gate and up one
    after another, or in turn

How they lie there is seen from the values, where shapes leave it open.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

import numpy as np

from firstdrift.metrics.arrangement import CLEARLY_BETTER, Arrangements
from firstdrift.metrics.comparability import DoNotFitError
from firstdrift.metrics.conversion import alike, finite
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message

_SAMPLE: Final = 12
"""Indices of each dimension but that of arrangement that are looked at."""


class _Way(NamedTuple):
    """A way in which columns may lie in the whole: side by side in an order, and perhaps transposed.

    Of the elements of `joined`, `labels` says which of the arrays they are of.
    """

    joined: Array
    labels: Array
    axis: int
    order: Array | None
    is_transposed: bool
    how: Message | None

    def laid(self, array: Array) -> Array:
        """Return the columns, or their labels, as they lie in the whole."""
        laid = array if self.order is None else np.take(array, self.order, axis=self.axis)
        return laid.swapaxes(1, 2) if self.is_transposed else laid

    def described(self) -> Message | None:
        """Say how they lie there."""
        if not self.is_transposed:
            return None if self.how is None else Message.of("metrics.in_order", how=self.how)
        if self.how is None:
            return Message.of("metrics.transposed")
        return Message.of("metrics.transposed_in_order", how=self.how)

    def difference(self, whole: Array) -> float:
        """Return how far some of the values are apart from those of the whole."""
        view = whole.swapaxes(1, 2) if self.is_transposed else whole
        places = [
            np.arange(size) if axis == self.axis else _some(size) for axis, size in enumerate(view.shape)
        ]
        wanted = finite(view[np.ix_(*places)])
        if self.order is not None:
            places[self.axis] = self.order
        return float(np.linalg.norm(finite(self.joined[np.ix_(*places)]) - wanted))


def _some(size: int) -> Array:
    return np.linspace(0, size - 1, min(size, _SAMPLE)).astype(int)


def stack_weights(
    arrays: Sequence[Array], whole: Array | None, arrangements: Arrangements
) -> tuple[Array, Message | None, Array | None]:
    """Stack weights of experts as the whole has them; say how they lie there, and which is whose.

    The arrays are those of all experts, [out, in] or [out], then those that lie beside them, likewise; or
    stacks of all experts, [experts, out, in], in the order in which they lie side by side.

    Raises:
        DoNotFitError: their shapes do not make up that of the whole.
    """
    if whole is None:
        return np.stack(list(arrays)), None, None
    best, least = None, inf
    is_stacked = arrays[0].ndim == whole.ndim
    for way in _ways(alike(_columns(arrays, whole)), whole.shape, arrangements, is_stacked=is_stacked):
        difference = way.difference(whole)
        if best is None or difference < CLEARLY_BETTER * least:
            best, least = way, difference
    if best is None:
        why = Message.of("metrics.first_and_whole", first=arrays[0].shape, whole=whole.shape)
        raise DoNotFitError(why)
    return best.laid(best.joined), best.described(), best.laid(best.labels)


def _ways(
    columns: list[Array], whole: tuple[int, ...], arrangements: Arrangements, *, is_stacked: bool
) -> Iterator[_Way]:
    """Yield the ways in which columns make up the shape of the whole."""
    # A single column, stacked here, lies the same along any dimension.
    last = len(whole) if len(columns) > 1 or is_stacked else min(2, len(whole))
    for axis in range(1, last):
        if len({(*column.shape[:axis], *column.shape[axis + 1 :]) for column in columns}) > 1:
            continue
        joined = np.concatenate(columns, axis=axis)
        sizes = [column.shape[axis] for column in columns]
        labels = _labels(joined, axis, sizes, is_stacked=is_stacked)
        for is_transposed in (False, True)[: len(whole) - 1]:
            if _Way(joined, labels, axis, None, is_transposed, None).laid(joined).shape == whole:
                for order, how in _orders(sizes, arrangements, is_stacked=is_stacked):
                    yield _Way(joined, labels, axis, order, is_transposed, how)


def _labels(joined: Array, axis: int, sizes: Sequence[int], *, is_stacked: bool) -> Array:
    """Return which array elements are of: column by column, in each of them expert by expert."""
    experts = 1 if is_stacked else len(joined)
    along, across = [1] * joined.ndim, [1] * joined.ndim
    along[axis], across[0] = joined.shape[axis], experts
    columns = np.repeat(np.arange(len(sizes)), sizes) * experts
    labels: Array = columns.reshape(along) + np.arange(experts).reshape(across)
    return labels


def _columns(arrays: Sequence[Array], whole: Array) -> list[Array]:
    """Return the stacks of all experts, one for each weight that they have."""
    ranks = {array.ndim for array in arrays}
    if ranks == {whole.ndim}:
        return list(arrays)
    experts = whole.shape[0] if whole.ndim > 1 else 0
    if not experts or ranks != {whole.ndim - 1} or len(arrays) % experts:
        raise DoNotFitError(Message.of("metrics.count_and_whole", count=len(arrays), whole=whole.shape))
    groups = [arrays[at : at + experts] for at in range(0, len(arrays), experts)]
    try:
        return list(map(np.stack, groups))
    except ValueError as error:
        raise DoNotFitError(Message.of("metrics.expert_shapes")) from error


def _orders(
    sizes: list[int], arrangements: Arrangements, *, is_stacked: bool
) -> Iterable[tuple[Array | None, Message | None]]:
    """Yield the orders that are possible; what is stacked on both sides may have halves that take turns."""
    if len(sizes) > 1:
        return [(None, Message.of("metrics.in_sequence")), *arrangements(sizes)]
    halves = [sizes[0] // 2] * 2
    found: list[tuple[Array | None, Message | None]] = [(None, None)]
    for order, how in arrangements(halves) if is_stacked and sum(halves) == sizes[0] else ():
        found += [(order, how), (np.argsort(order), Message.of("metrics.undone", how=how))]
    return found
