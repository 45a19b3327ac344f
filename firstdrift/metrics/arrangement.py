"""In what order parts that were laid side by side lie in a whole: the values tell."""

from collections.abc import Callable, Iterable, Iterator
from math import gcd
from typing import Final, TypeAlias

import numpy as np

from firstdrift.metrics.conversion import finite
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message

Arrangement: TypeAlias = tuple[Array, Message]
"""An order of indexes, and what is said of it."""

Arrangements: TypeAlias = Callable[[list[int]], Iterable[Arrangement]]
"""Yields the orders in which parts of given sizes may lie."""

CLEARLY_BETTER: Final = 0.5
"""Another arrangement is taken only if it halves the difference: rounding makes none look better."""

_ROWS_LOOKED_AT: Final = 64


def best_arrangement(
    joined: Array, whole: Array, axis: int, arrangements: Iterable[Arrangement]
) -> tuple[Array | None, Message | None]:
    """Return in which order what was joined, along the first (0) or last (-1) dimension, lies in the whole.

    The order is None if the parts lie as they are; nothing is said where the values do not tell.
    """
    first, second = finite(rows_along(joined, axis)), finite(rows_along(whole, axis))
    if first.shape != second.shape:
        return None, None
    least, chosen, how = (
        CLEARLY_BETTER * np.linalg.norm(first - second),
        None,
        Message.of("metrics.in_sequence"),
    )
    for order, description in arrangements:
        difference = np.linalg.norm(first[:, order] - second)
        if difference < least:
            least, chosen, how = difference, order, description
    return chosen, Message.of("metrics.arranged", how=how)


def rows_along(array: Array, axis: int) -> Array:
    """View a tensor as rows that run along a dimension, the first ones of them."""
    bare = np.squeeze(array)
    if bare.ndim < 2:  # noqa: PLR2004
        return bare.reshape(1, -1)
    if axis == 0:
        return bare.reshape(bare.shape[0], -1)[:, :_ROWS_LOOKED_AT].T
    return bare.reshape(-1, bare.shape[-1])[:_ROWS_LOOKED_AT]


def in_turns(sizes: list[int]) -> Iterator[Arrangement]:
    """Yield the ways in which parts are known to be laid out: in turn in each group, and in reverse order.

    Keys and values may take turns behind all queries.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    parts = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    for groups in _divisors(gcd(*sizes)):
        each = Message.of("metrics.in_groups", groups=groups)
        if groups > 1:
            yield _grouped(parts, groups), each
        last_first = (
            Message.of("metrics.reversed", how=each) if groups > 1 else Message.of("metrics.last_first")
        )
        yield _grouped(parts[::-1], groups), last_first
    if len(sizes) > 2:  # noqa: PLR2004 (of two, one is left, which takes no turns)
        for groups in _divisors(gcd(*sizes[1:]))[1:]:
            how = Message.of("metrics.first_then_groups", groups=groups)
            yield np.concatenate([parts[0], _grouped(parts[1:], groups)]), how


def _grouped(parts: list[Array], groups: int) -> Array:
    return np.concatenate([part.reshape(groups, -1) for part in parts], axis=1).ravel()


def _divisors(number: int) -> list[int]:
    return [count for count in range(1, number + 1) if number % count == 0]


def fused_parts(sizes: list[int]) -> Iterator[Arrangement]:
    """Yield the orders in which parts that were fused before they were sharded lie in the whole."""
    size = sizes[0]
    if len(set(sizes)) != 1:
        return
    for parts in _fused(size):
        starts = np.cumsum([0, *parts[:-1]])
        order = [
            np.arange(start, start + part) + rank * size
            for start, part in zip(starts, parts, strict=True)
            for rank in range(len(sizes))
        ]
        yield np.concatenate(order), Message.of("metrics.by_fused_parts", sizes=parts)


def _fused(size: int) -> Iterator[tuple[int, ...]]:
    """Yield how a shard of a fused tensor may be made up: gate and up, or q, k and v for groups of heads."""
    if size % 2 == 0:
        yield size // 2, size // 2
    for queries in range(1, size - 1):
        if size % (queries + 2) == 0:
            part = size // (queries + 2)
            yield queries * part, part, part
