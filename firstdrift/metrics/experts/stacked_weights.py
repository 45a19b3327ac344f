"""Weights of single experts, laid as they lie in one tensor that stacks those of all.

    experts.0.gate_proj [24, 16]  experts.0.up_proj [24, 16]  experts.1.gate_proj ...    four experts
    experts.gate_up_proj [4, 48, 16], or [4, 16, 48] where it is transposed; the rows of gate and up one
    after another, or in turn

How they lie there is seen from the values, where shapes leave it open.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.fitting import DoNotFitError
from firstdrift.wording.message import Message

Arrangements: TypeAlias = Callable[[list[int]], Iterable[tuple[Array, Message]]]
"""Yields the orders in which columns of given widths may lie, each with what is said of it."""

_SAMPLE: Final = 12
"""Indices of each dimension but that of arrangement that are looked at."""

_CLEARLY_BETTER: Final = 0.5
"""Another way is taken only if it halves the difference: rounding makes none look better."""


def stack_weights(
    arrays: Sequence[Array], whole: Array | None, arrangements: Arrangements
) -> tuple[Array, Message | None]:
    """Stack weights of experts as the whole has them; return them, and say how they lie there.

    Args:
        arrays: those of all experts, [out, in] or [out]; then those that lie beside them, in the same order.
            Or stacks of all experts, [experts, out, in], in the order in which they lie side by side.
        whole: what they are compared with; None if it is not known.
        arrangements: yields the orders in which what lies side by side may lie.

    Raises:
        DoNotFitError: their shapes do not make up that of the whole.
    """
    if whole is None:
        return np.stack(list(arrays)), None
    columns = _columns(arrays, whole)
    wide = len({column.dtype for column in columns}) > 1
    columns = [column.astype(np.float64) for column in columns] if wide else columns
    best: tuple[float, Array, int, Array | None, bool, Message | None] | None = None
    for axis in range(1, whole.ndim):
        if len({(*column.shape[:axis], *column.shape[axis + 1 :]) for column in columns}) > 1:
            continue
        joined = np.concatenate(columns, axis=axis)
        for turned in (False, True)[: whole.ndim - 1]:
            if (joined.swapaxes(1, 2) if turned else joined).shape != whole.shape:
                continue
            view = whole.swapaxes(1, 2) if turned else whole
            sizes = [column.shape[axis] for column in columns]
            for order, said in _orders(sizes, arrangements, stacked=arrays[0].ndim == whole.ndim):
                apart = _apart(joined, view, axis, order)
                if best is None or apart < _CLEARLY_BETTER * best[0]:
                    best = apart, joined, axis, order, turned, said
        if len(columns) == 1 and arrays[0].ndim < whole.ndim:
            break
    if best is None:
        why = Message.of("metrics.first_and_whole", first=arrays[0].shape, whole=whole.shape)
        raise DoNotFitError(why)
    _, joined, axis, order, turned, said = best
    joined = joined if order is None else np.take(joined, order, axis=axis)
    if not turned:
        return joined, None if said is None else Message.of("metrics.in_order", how=said)
    transposed = Message.of("metrics.transposed")
    in_order = transposed if said is None else Message.of("metrics.transposed_in_order", how=said)
    return joined.swapaxes(1, 2), in_order


def _columns(arrays: Sequence[Array], whole: Array) -> list[Array]:
    """Return the stacks of all experts, one for each weight that they have."""
    shapes = {array.shape for array in arrays}
    ranks = {len(shape) for shape in shapes}
    experts = whole.shape[0] if whole.ndim > 1 else 0
    if len(ranks) == 1 and ranks == {whole.ndim}:
        return list(arrays)
    if not experts or ranks != {whole.ndim - 1} or len(arrays) % experts:
        raise DoNotFitError(Message.of("metrics.count_and_whole", count=len(arrays), whole=whole.shape))
    groups = [arrays[at : at + experts] for at in range(0, len(arrays), experts)]
    if any(len({array.shape for array in group}) > 1 for group in groups):
        raise DoNotFitError(Message.of("metrics.expert_shapes"))
    return [np.stack(list(group)) for group in groups]


def _orders(
    sizes: list[int], arrangements: Arrangements, *, stacked: bool
) -> Iterable[tuple[Array | None, Message | None]]:
    """Yield the orders that are possible; what is stacked on both sides may have halves that take turns."""
    if len(sizes) > 1:
        return [(None, Message.of("metrics.in_sequence")), *arrangements(sizes)]
    halves = [sizes[0] // 2] * 2
    found: list[tuple[Array | None, Message | None]] = [(None, None)]
    for order, said in arrangements(halves) if stacked and sum(halves) == sizes[0] else ():
        found += [(order, said), (np.argsort(order), Message.of("metrics.undone", how=said))]
    return found


def _apart(joined: Array, whole: Array, axis: int, order: Array | None) -> float:
    """Return how far some of the values are apart."""
    places = [
        np.arange(size) if at == axis else np.linspace(0, size - 1, min(size, _SAMPLE)).astype(int)
        for at, size in enumerate(whole.shape)
    ]
    there = np.ix_(*places)
    if order is not None:
        places[axis] = order
    some, wanted = (_finite(array[at]) for array, at in ((joined, np.ix_(*places)), (whole, there)))
    return float(np.linalg.norm(some - wanted))


def _finite(values: Array) -> Array:
    wide = values.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0)
