"""The rows of experts that ran one by one, laid as they lie where the experts ran together.

    expert 0  [3, 64]       rows 0..2
    expert 2  [5, 64]       rows 3..7      of [8, 64]; beside them what else each computed of its input

In which order an expert's rows lie is up to whoever sorted them: by token, or by the place at which a token
chose it. It is seen from the values, as is the order of what lies side by side: each row is held against the
one that it is nearest to, of equal rows each against one of its own. An order is taken only if it is clearly
better, so that rows of an expert that is off are held against each other.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from firstdrift.metrics.arrangement import CLEARLY_BETTER, Arrangement, Arrangements
from firstdrift.metrics.comparability import DoNotFitError, shapes_against, shapes_of
from firstdrift.metrics.conversion import alike, finite
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message
from firstdrift.wording.message import joined as joined_clauses

_COLUMNS_LOOKED_AT: Final = 64
_ROWS_LOOKED_AT: Final = 64
_ROWS_AT_ONCE: Final = 512
_MOST_ROWS: Final = 8192
"""Rows up to which each that is astray is held against the others, of its expert and of all."""

_MOST_PAIRS: Final = 2**26
"""Pairs of rows that are looked at before what is left stays where it is."""

_AT_ITS_PLACE: Final = 0.03
"""Difference, relative to its values, up to which one of many rows is not looked for elsewhere."""

_LIKE: Final = 0.5
"""Difference, relative to the values, of rows that are those of the other side."""


def stack_experts(
    arrays: Sequence[Array], whole: Array | None, arrangements: Arrangements
) -> tuple[Array, Message | None, Array | None]:
    """Lay the rows of experts as they lie in the whole; say how that is, and which are whose.

    The arrays are of one width: of all experts those of the first column, then those of the second.

    Raises:
        DoNotFitError: they have not as many rows and columns as the whole.
    """
    width = arrays[0].shape[-1] if arrays[0].ndim else 0
    if not width or any(array.shape[-1:] != (width,) for array in arrays):
        raise DoNotFitError(Message.of("metrics.shapes_are", shapes=shapes_of(arrays)))
    blocks = [array.reshape(-1, width) for array in alike(arrays)]
    if whole is None:
        return np.concatenate(blocks), None, None
    columns = _in_columns(blocks, whole, width)
    if columns is None:
        raise DoNotFitError(shapes_against(arrays, whole.shape))
    joined = np.concatenate(list(map(np.concatenate, columns)), axis=1)
    rows, widths = list(map(len, columns[0])), [width] * len(columns)
    experts = np.repeat(np.arange(len(rows)), rows)[:, None]
    labels = experts + len(rows) * np.repeat(np.arange(len(widths)), widths if len(widths) > 1 else 1)
    with np.errstate(all="ignore"):
        *orders, how = _arrangement(joined, whole.reshape(joined.shape), rows, widths, arrangements)
    return _laid(joined, *orders), how, _laid(labels, *orders)


def _laid(array: Array, rows: Array | None, columns: Array | None) -> Array:
    """Return an array with its rows and columns in another order, where there is one."""
    array = array if rows is None else np.take(array, rows, axis=0)
    return array if columns is None else np.take(array, columns, axis=1)


def _in_columns(blocks: list[Array], whole: Array, width: int) -> list[list[Array]] | None:
    """Return the rows of all experts for each column of the whole; None if they do not make it up."""
    count = max(1, whole.shape[-1] // width if whole.ndim else 0)
    experts = len(blocks) // count
    columns = [blocks[at * experts : (at + 1) * experts] for at in range(count)]
    rows = list(map(len, columns[0]))
    made_up = (count * experts, (count * width,), sum(rows) * count * width)
    are_alike = all(list(map(len, column)) == rows for column in columns)
    fits = are_alike and made_up == (len(blocks), whole.shape[-1:], whole.size)
    return columns if fits else None


def _arrangement(
    joined: Array, whole: Array, rows: list[int], widths: list[int], arrangements: Arrangements
) -> tuple[Array | None, Array | None, Message]:
    """Return the order of rows, and of columns, that fits the values best; None if they lie as they are."""
    looked_at = np.linspace(0, joined.shape[1] - 1, min(_COLUMNS_LOOKED_AT, joined.shape[1])).astype(int)
    wanted = finite(whole[:, looked_at])
    order_of_rows, all_seen, least = _order(finite(joined[:, looked_at]), wanted, rows)
    order_of_columns, said = None, None
    if len(widths) > 1 and least > _LIKE * np.linalg.norm(wanted):
        columns, description = _columns(joined, wanted, rows, looked_at, arrangements(widths))
        if columns is not None:
            order, seen, difference = _order(finite(joined[:, columns[looked_at]]), wanted, rows)
            if difference < CLEARLY_BETTER * least:
                order_of_rows, all_seen, order_of_columns, said = order, seen, columns, description
    moved = bool(np.any(order_of_rows != np.arange(len(order_of_rows))))
    how = Message.of("metrics.by_row") if moved else Message.of("metrics.by_expert")
    arranged = Message.of("metrics.arranged", how=(how, said) if said is not None else how)
    said_all = arranged if all_seen else joined_clauses(arranged, Message.of("metrics.rows_left"))
    return order_of_rows if moved else None, order_of_columns, said_all


def _columns(
    joined: Array,
    wanted: Array,
    blocks: list[int],
    looked_at: Array,
    arrangements: Iterable[Arrangement],
) -> tuple[Array | None, Message | None]:
    """Return the order of columns in which some rows have the nearest partners; None if as they are."""
    some = np.linspace(0, len(wanted) - 1, min(_ROWS_LOOKED_AT, len(wanted))).astype(int)
    ends = np.cumsum(blocks)
    of_blocks = np.searchsorted(ends, some, side="right")
    spans = [
        (ends[at] - blocks[at], ends[at], wanted[some[of_blocks == at]])
        for at in np.unique(of_blocks).tolist()
    ]

    def difference(columns: Array) -> float:
        rows = finite(joined[:, columns])
        nearest = [_apart(rows[start:end], of_block).min(axis=1).sum() for start, end, of_block in spans]
        return float(np.sqrt(max(0.0, sum(nearest))))

    enough = _LIKE * np.linalg.norm(wanted[some])
    least, chosen, said = difference(looked_at), None, None
    for columns, description in arrangements:
        left = difference(columns[looked_at])
        if left < CLEARLY_BETTER * least:
            least, chosen, said = left, columns, description
        if least <= enough:
            break
    return chosen, said


def _order(rows: Array, wanted: Array, blocks: Sequence[int]) -> tuple[Array, bool, float]:
    """Return which row lies where: in each block as it is or by what is nearest; else anywhere.

    With it goes whether each row that is astray was looked for, and how large the difference is that is left.
    """
    order = np.arange(len(rows))
    all_seen = True
    ends = np.cumsum(blocks)
    for start, end in zip(ends - blocks, ends, strict=True):
        own, seen = _if_better(rows[start:end], wanted[start:end])
        order[start:end] = start + own
        all_seen &= seen
    if len(blocks) > 1:
        # A row that was given to another expert has moved all rows behind it.
        own, seen = _if_better(rows[order], wanted)
        order = order[own]
        all_seen &= seen
    return order, all_seen, float(np.linalg.norm(rows[order] - wanted))


def _if_better(rows: Array, wanted: Array) -> tuple[Array, bool]:
    """Return the order of the nearest rows if it is clearly better than the one that they have.

    With it goes whether it was looked for: not if too many rows are astray.
    """
    as_is = np.arange(len(rows))
    astray = as_is
    if len(rows) > _ROWS_AT_ONCE:
        apart = np.linalg.norm(rows - wanted, axis=1)
        astray = np.flatnonzero(apart > _AT_ITS_PLACE * np.linalg.norm(wanted, axis=1))
    if len(astray) > _MOST_ROWS:
        return as_is, False
    order = as_is.copy()
    order[astray] = astray[_nearest(rows[astray], wanted[astray])]
    before, after = (np.linalg.norm(some - wanted, axis=1) for some in (rows, rows[order]))
    # A row that has no like, as that of a token which went elsewhere, tells nothing of the order of others.
    has_like = after <= _LIKE * np.linalg.norm(wanted, axis=1)
    is_better = np.linalg.norm(after[has_like]) < CLEARLY_BETTER * np.linalg.norm(before[has_like])
    return (order if is_better else as_is), True


def _nearest(rows: Array, wanted: Array) -> Array:
    """Return which row is held against each of those wanted: again and again those nearest to each other.

    Rows that are equal (of a repeated prompt, of padding) share their partners: each is held against one.
    """
    order = np.full(len(rows), -1)
    if len(rows) > 1:
        own, others = _Distinct(rows), _Distinct(wanted)
        pairs_left = _MOST_PAIRS
        while len(own.free) and (pairs_left := pairs_left - len(own.free) * len(others.free)) >= 0:
            mutual = _mutual(own.values[own.free], others.values[others.free])
            if not mutual:
                break
            for one, other in mutual:
                here, there = own.members[own.free[one]], others.members[others.free[other]]
                count = min(len(here), len(there))
                order[there[:count]] = here[:count]
                del here[:count], there[:count]
            own.drop_empty()
            others.drop_empty()
    return _filled(order)


class _Distinct:
    """Rows without repetition.

    Attributes:
        values: the distinct rows.
        members: of each of these, which rows are equal to it and have no partner yet.
        free: indices of those of which some are left.
    """

    def __init__(self, rows: Array) -> None:
        self.values, of_rows = np.unique(rows, axis=0, return_inverse=True)
        self.members: list[list[int]] = [[] for _ in self.values]
        for row, value in enumerate(of_rows.reshape(-1).tolist()):
            self.members[value].append(row)
        self.free = np.arange(len(self.values))

    def drop_empty(self) -> None:
        self.free = np.array([at for at in self.free.tolist() if self.members[at]], dtype=int)


def _mutual(rows: Array, wanted: Array) -> list[tuple[int, int]]:
    """Return the pairs of a row and a wanted one that are nearest to each other."""
    of_wanted = np.empty(len(wanted), dtype=int)
    of_rows, distances = np.zeros(len(rows), dtype=int), np.full(len(rows), np.inf)
    for start in range(0, len(wanted), _ROWS_AT_ONCE):
        apart = _apart(rows, wanted[start : start + _ROWS_AT_ONCE])
        of_wanted[start : start + len(apart)] = apart.argmin(axis=1)
        nearest = apart.argmin(axis=0)
        least = apart[nearest, np.arange(len(rows))]
        closer = least < distances
        of_rows[closer] = start + nearest[closer]
        distances[closer] = least[closer]
    mutual = np.flatnonzero(of_rows[of_wanted] == np.arange(len(wanted)))
    return list(zip(of_wanted[mutual].tolist(), mutual.tolist(), strict=True))


def _apart(rows: Array, wanted: Array) -> Array:
    """Return the squared distances of rows from those wanted: [wanted, rows]."""
    lengths = [np.sum(np.abs(some) ** 2, axis=1) for some in (rows, wanted)]
    apart: Array = lengths[0] - 2 * (wanted.conj() @ rows.T).real + lengths[1][:, None]
    return apart


def _filled(order: Array) -> Array:
    """Return an order in which what has no partner stays where it is, or goes where room is left."""
    places = np.arange(len(order))
    stays = (order < 0) & ~np.isin(places, order)
    order = np.where(stays, places, order)
    order[order < 0] = np.setdiff1d(places, order)
    return order
