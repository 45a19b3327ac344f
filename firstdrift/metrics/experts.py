"""The rows of experts that ran one by one, laid as they lie where the experts ran together.

    expert 0  [3, 64]       rows 0..2
    expert 2  [5, 64]       rows 3..7      of [8, 64]; beside them what else each computed of its input

In which order an expert's rows lie is up to whoever sorted them: by token, or by the place at which a token
chose it. It is seen from the values, as is the order of what lies side by side. A row that no other is
nearest to stays where it is, so that rows of an expert that is off are held against each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, TypeAlias

import numpy as np

from firstdrift.metrics.dtypes import Array

Arrangements: TypeAlias = Callable[[list[int]], Iterable[tuple[Array, str]]]
"""Yields the orders in which columns of given widths may lie, each with what is said of it."""

_COLUMNS_LOOKED_AT: Final = 64
_ROWS_AT_ONCE: Final = 512
_MOST_ROWS: Final = 4096
"""Rows up to which each is held against all others, wherever they lie."""

_CLEARLY_BETTER: Final = 0.5
"""Another arrangement is taken only if it halves the difference: rounding makes none look better."""

_FEW: Final = 8
"""Shapes that are named."""

_LIKE: Final = 0.5
"""Difference, relative to the values, of rows that are those of the other side."""


class DoNotStackError(Exception):
    """The rows cannot be those of the whole; the text says why."""


def stack_experts(
    arrays: Sequence[Array], whole: Array | None, arrangements: Arrangements
) -> tuple[Array, str]:
    """Lay the rows of experts one after another; return them as they lie in the whole, and say how that is.

    Args:
        arrays: of one width; of all experts those of the first column, then those of the second.
        whole: what they are compared with; None if it is not known.
        arrangements: yields the orders in which columns may lie.

    Raises:
        DoNotStackError: they have not as many rows and columns as the whole.
    """
    width = arrays[0].shape[-1] if arrays[0].ndim else 0
    if not width or any(array.ndim == 0 or array.shape[-1] != width for array in arrays):
        raise DoNotStackError(f"their shapes are {_shapes(arrays)}")
    wide = np.complex128 if any(np.iscomplexobj(array) for array in arrays) else np.float64
    same = len({array.dtype for array in arrays}) == 1
    blocks = [(array if same else array.astype(wide)).reshape(-1, width) for array in arrays]
    if whole is None:
        return np.concatenate(blocks), ""
    count = max(1, whole.shape[-1] // width if whole.ndim else 0)
    experts = len(blocks) // count
    columns = [blocks[at * experts : (at + 1) * experts] for at in range(count)]
    rows = [len(block) for block in columns[0]]
    if (
        len(blocks) != count * experts
        or any([len(block) for block in column] != rows for column in columns)
        or whole.shape[-1:] != (count * width,)
        or whole.size != sum(rows) * count * width
    ):
        shapes = f"{_shapes(arrays)}, that of the whole is {list(whole.shape)}"
        raise DoNotStackError(f"their shapes are {shapes}")
    joined = np.concatenate([np.concatenate(column) for column in columns], axis=1)
    with np.errstate(all="ignore"):
        return _arranged(joined, whole.reshape(joined.shape), rows, [width] * count, arrangements)


def _shapes(arrays: Sequence[Array]) -> str:
    shown = " and ".join(str(list(array.shape)) for array in arrays[:_FEW])
    return f"{shown} and more" if len(arrays) > _FEW else shown


def _arranged(
    joined: Array, whole: Array, rows: list[int], widths: list[int], arrangements: Arrangements
) -> tuple[Array, str]:
    """Return rows, and columns, in the order that fits the values best."""
    looked_at = np.linspace(0, joined.shape[1] - 1, min(_COLUMNS_LOOKED_AT, joined.shape[1])).astype(int)
    wanted = _finite(whole[:, looked_at])
    enough = _LIKE * np.linalg.norm(wanted)
    least, order_of_rows, order_of_columns, said = inf, np.arange(len(wanted)), None, ""
    for columns, description in _ways(widths, arrangements):
        sample = _finite(joined[:, looked_at if columns is None else columns[looked_at]])
        order = _order(sample, wanted, rows)
        difference = float(np.linalg.norm(sample[order] - wanted))
        if difference < least * (1 if columns is None else _CLEARLY_BETTER):
            least, order_of_rows, order_of_columns, said = difference, order, columns, description
        if least <= enough:
            break
    moved = bool(np.any(order_of_rows != np.arange(len(order_of_rows))))
    joined = np.take(joined, order_of_rows, axis=0) if moved else joined
    joined = joined if order_of_columns is None else np.take(joined, order_of_columns, axis=1)
    how = "by row" if moved else "one expert after another"
    return joined, f"arranged {how}{said}, which fits the values best"


def _ways(widths: list[int], arrangements: Arrangements) -> Iterator[tuple[Array | None, str]]:
    yield None, ""
    if len(widths) > 1:
        yield from ((order, f", {said}") for order, said in arrangements(widths))


def _order(rows: Array, wanted: Array, blocks: Sequence[int]) -> Array:
    """Return which row lies where: in each block as it is or by what is nearest; else anywhere."""
    order = np.arange(len(rows))
    ends = np.cumsum(blocks)
    for start, end in zip(ends - blocks, ends, strict=True):
        order[start:end] = start + _if_better(rows[start:end], wanted[start:end])
    if len(blocks) < 2 or len(rows) > _MOST_ROWS:  # noqa: PLR2004
        return order
    # A row that was given to another expert has moved all rows behind it.
    return order[_if_better(rows[order], wanted)]


def _if_better(rows: Array, wanted: Array) -> Array:
    """Return the order of the nearest rows if it is clearly better than the one that they have."""
    order = _nearest(rows, wanted)
    as_is, nearest = np.linalg.norm(rows - wanted), np.linalg.norm(rows[order] - wanted)
    return order if nearest < _CLEARLY_BETTER * as_is else np.arange(len(rows))


def _nearest(rows: Array, wanted: Array) -> Array:
    size = len(rows)
    if size < 2:  # noqa: PLR2004
        return np.arange(size)
    lengths = np.sum(np.abs(rows) ** 2, axis=1)
    of_wanted = np.empty(size, dtype=int)
    of_rows, distances = np.zeros(size, dtype=int), np.full(size, np.inf)
    for start in range(0, size, _ROWS_AT_ONCE):
        some = wanted[start : start + _ROWS_AT_ONCE]
        apart = lengths - 2 * (some.conj() @ rows.T).real + np.sum(np.abs(some) ** 2, axis=1)[:, None]
        of_wanted[start : start + len(some)] = apart.argmin(axis=1)
        nearest = apart.argmin(axis=0)
        closer = apart[nearest, np.arange(size)] < distances
        of_rows[closer] = start + nearest[closer]
        distances[closer] = apart[nearest, np.arange(size)][closer]
    mutual = of_rows[of_wanted] == np.arange(size)
    order = np.empty(size, dtype=int)
    order[mutual] = of_wanted[mutual]
    order[~mutual] = np.setdiff1d(np.arange(size), of_wanted[mutual])
    return order


def _finite(values: Array) -> Array:
    wide = values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)
    return np.where(np.isfinite(wide), wide, 0)
