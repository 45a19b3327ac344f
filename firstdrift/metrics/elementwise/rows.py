"""What rows tell beside the worst of them: how many are off, and which columns each of them would choose.

A token that another expert was chosen for is off in its own row, and says nothing of the other rows. So the
errors of the worst row, the second, the fourth, the eighth, ... are kept: leaving out the rows of n such
tokens, the rest is off by no more than the first of these behind the n worst.
"""

from typing import Final

import numpy as np

from firstdrift.metrics.conversion import finite
from firstdrift.metrics.dtypes import Array, Floats
from firstdrift.metrics.measurement import PairErrors, RowProfile

_LEAST: Final = 0.01
_STANDS_OUT: Final = 1.1
_ROWS_AT_ONCE: Final = 1 << 12
_MOST_COLUMNS: Final = 1024
_MOST_CHOSEN: Final = 64


def stands_out(errors: PairErrors) -> bool:
    """Tell whether some rows are worse than the whole, by more than rounding."""
    worst = errors.worst_row_relative_l2
    return _LEAST < worst < np.inf and worst > _STANDS_OUT * errors.relative_l2


def row_profile(golden: Array, target: Array) -> RowProfile | None:
    """Return how bad the worst rows of two tensors of one shape are; None if there is but one row."""
    if golden.ndim < 2 or golden.size == golden.shape[-1]:  # noqa: PLR2004
        return None
    rows = golden.reshape(-1, golden.shape[-1]), target.reshape(-1, golden.shape[-1])
    apart, sizes = np.empty(len(rows[0])), np.empty(len(rows[0]))
    with np.errstate(all="ignore"):
        for start in range(0, len(apart), _ROWS_AT_ONCE):
            some = [finite(side[start : start + _ROWS_AT_ONCE]) for side in rows]
            apart[start : start + _ROWS_AT_ONCE] = _squares(some[1] - some[0])
            sizes[start : start + _ROWS_AT_ONCE] = _squares(some[0])
    return profile_of(apart, sizes)


def profile_of(squared_differences: Floats, squares: Floats) -> RowProfile | None:
    """Return the same from the squared norms of rows: of their differences, and of the golden side."""
    if len(squares) < 2:  # noqa: PLR2004
        return None
    with np.errstate(all="ignore"):
        relative = np.sort(np.sqrt(squared_differences / np.maximum(squares, squares.sum() / len(squares))))[
            ::-1
        ]
    return RowProfile(len(relative), tuple(relative[RowProfile.places(len(relative))].tolist()))


def _squares(rows: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", rows, rows.conj()).real)


def swapped_choices(golden: Array, target: Array) -> tuple[int, ...] | None:
    """Count for k = 1, 2, ... in how many places the two may choose other columns, each row its k largest.

    Of columns that are equal on a side either may be chosen. None of too few or too many columns.
    """
    columns = golden.shape[-1] if golden.ndim else 0
    if not 1 < columns <= _MOST_COLUMNS or not golden.size:
        return None
    counts = np.zeros(min(columns - 1, _MOST_CHOSEN), dtype=np.int64)
    rows = golden.reshape(-1, columns), target.reshape(-1, columns)
    for start in range(0, len(rows[0]), _ROWS_AT_ONCE):
        ranks = [_ranks(finite(side[start : start + _ROWS_AT_ONCE])) for side in rows]
        first = np.minimum(ranks[0][0], ranks[1][0])
        last = np.maximum(ranks[0][1], ranks[1][1])
        in_row, column = np.nonzero(first < last)
        changes = np.zeros((len(first), columns + 1), dtype=np.int64)
        np.add.at(changes, (in_row, first[in_row, column] + 1), 1)
        np.add.at(changes, (in_row, last[in_row, column] + 1), -1)
        open_to_choice = changes.cumsum(axis=1)[:, 1 : len(counts) + 1]
        counts += np.minimum((open_to_choice + 1) // 2, np.arange(1, len(counts) + 1)).sum(axis=0)
    return tuple(counts.tolist())


def _ranks(scores: Array) -> tuple[Array, Array]:
    """Return the first and the last place that each score may have among those of its row, from 0."""
    ordered = np.sort(-scores, axis=1)
    places = [np.empty(scores.shape, dtype=np.int64) for _ in range(2)]
    for row, (score, order) in enumerate(zip(-scores, ordered, strict=True)):
        places[0][row] = np.searchsorted(order, score, side="left")
        places[1][row] = np.searchsorted(order, score, side="right") - 1
    return places[0], places[1]
