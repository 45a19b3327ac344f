"""Which tokens a slice was given, sequence by sequence, as token ids, masks and positions tell.

ids [[5, 7, 9], [0, 0, 4]]   mask [[1, 1, 1], [0, 0, 1]]     rows 0 to 2: 5 7 9    row 5: 4
ids [5, 7, 9, 4]             positions [0, 1, 2, 0]          rows 0 to 2: 5 7 9    row 3: 4
ids [5, 7, 9, 4]             cu_seqlens [0, 3, 4]            likewise
ids [9, 4]                   positions [2, 0]                row 0: 9, at place 2  row 1: 4
ids [5, 7, 9, 4]             nothing                         rows 0 to 3, of one sequence or of several

A mask tells padding where it leaves out one token alone; token types, or a mask of what is learnt, leave out
words. Where none does, a number that sequences begin or end with may be it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.groups import firsts, known
from firstdrift.matching.tokens.thresholds import (
    FEWEST_POSITIONS,
    IN_STEP,
    MOST_PADDINGS,
    MOST_RECORDS,
    MOST_TOKENS,
)
from firstdrift.model.node import Node
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.shards_of_tensors import first_values
from firstdrift.parallel.token_ids import token_ids, whole_numbers

Numbers: TypeAlias = tuple[float, ...]

_TWO_PLACES: Final[Numbers] = (0.0, 1.0)
"""The places of two tokens, which may be taken for a mask."""


class Run(Struct, frozen=True):
    """Rows that follow each other and hold tokens of one sequence that do so too.

    Attributes:
        row: the first of the rows.
        ids: the tokens.
        start: the place of the first in its sequence, from 0; None if nothing tells.
        slot: the place of the sequence in its batch; None where rows are flat.
        part: the pass, of slices that were laid one after the other.
    """

    row: int
    ids: Numbers
    start: int | None
    slot: int | None
    part: int = 0


class Given(Struct, frozen=True):
    """What one run was given.

    Attributes:
        shape: that of the token ids, with padding.
        runs: the tokens, in the order of their rows, without padding.
    """

    shape: tuple[int, ...]
    runs: tuple[Run, ...]


class Recorded(Struct, frozen=True):
    """The whole numbers of one pass that tell which token a row is of.

    Attributes:
        shape: that of the token ids.
        ids: the token ids, row by row.
        masks: what may say which of them are no padding: as many zeros and ones.
        positions: the place of each in its sequence; None if nothing tells.
        starts: the rows that begin a sequence, as cumulative lengths say.
        row: how many rows the passes before have.
        part: which pass it is.
    """

    shape: tuple[int, ...]
    ids: Numbers
    masks: tuple[Numbers, ...] = ()
    positions: Numbers | None = None
    starts: frozenset[int] = frozenset()
    row: int = 0
    part: int = 0


def token_values(nodes: Iterable[Node]) -> Numbers | None:
    """Return the token ids of nodes, row by row; None if none were saved."""
    return _values(token_ids(nodes))


def read_recorded(nodes: Sequence[Node], rows: Sequence[tuple[int, ...]] = ()) -> tuple[Recorded, ...]:
    """Return what tells which token a row is of, pass by pass; nothing if no token ids were saved.

    Args:
        nodes: those of a slice.
        rows: as `SliceListing.rows`.
    """
    ids = token_ids(nodes)
    values = _values(ids)
    shapes = rows or ((ids and ids.shape) or (),)
    if ids is None or not values or sum(map(prod, shapes)) != len(values):
        return ()
    return tuple(_cut(shapes, values, [*_others(nodes, ids)]))


def _values(record: TensorRecord | None) -> Numbers | None:
    if record is None or record.location is None:
        return None
    read = first_values([record], MOST_TOKENS)
    return tuple(read[0].tolist()) if read and read[0].dtype.kind != "c" else None


def _others(nodes: Iterable[Node], ids: TensorRecord) -> Iterator[tuple[str, Numbers]]:
    """Yield the whole numbers besides the token ids by their keys: first those that name positions."""
    places = {record.location: record for node in nodes for record in whole_numbers(node)}
    places.pop(ids.location, None)
    most = prod(ids.shape or ())
    fitting = [each for each in places.values() if prod(each.shape or ()) <= most + 1]
    fitting.sort(key=lambda record: not _names_positions(record.key))
    for record in islice(fitting, MOST_RECORDS):
        values = _values(record)
        if values is not None:
            yield record.key, values


def _cut(
    shapes: Iterable[tuple[int, ...]], ids: Numbers, others: Sequence[tuple[str, Numbers]]
) -> Iterator[Recorded]:
    """Cut what passes that lie one after the other have into that of each."""
    row = 0
    for part, shape in enumerate(shapes):
        rows = slice(row, row + prod(shape))
        of_rows = [(key, values[rows]) for key, values in others if len(values) == len(ids)]
        whole = [each for each in others if row == 0 and rows.stop == len(ids) and len(each[1]) != len(ids)]
        masks = tuple(
            values for key, values in of_rows if not _names_positions(key) and _is_mask(values, shape[-1])
        )
        places = known(_positions(key, values, shape) for key, values in (*of_rows, *whole))
        starts = known(_starts(values, rows.stop - row) for _, values in whole)
        yield Recorded(
            shape, ids[rows], masks, next(iter(places), None), next(iter(starts), frozenset()), row, part
        )
        row = rows.stop


def _names_positions(key: str) -> bool:
    return "position" in key


def _is_mask(values: Numbers, length: int) -> bool:
    """Tell whether numbers say what of each sequence is no padding: one piece of it."""
    if set(values) != {0.0, 1.0}:
        return False
    rows = (values[at : at + length] for at in range(0, len(values), length))
    return all(1.0 in row and _steps((0.0, *row, 0.0)).count(1.0) == 1 for row in rows)


def _steps(values: Numbers) -> list[float]:
    return [after - before for before, after in pairwise(values)]


def _positions(key: str, values: Numbers, shape: tuple[int, ...]) -> Numbers | None:
    """Return the place of each token if a tensor holds that: by its name, or as its numbers go up by one."""
    if len(values) != prod(shape) and (len(shape) == 1 or len(values) != shape[-1]):
        return None
    if min(values) < 0 or not (_names_positions(key) or _go_up(values)):
        return None
    return values * (prod(shape) // len(values))


def _go_up(values: Numbers) -> bool:
    steps = _steps(values)
    ones = sum(step == 1 for step in steps)
    is_in_step = all(step == 1 or step <= 0 for step in steps) and ones >= IN_STEP * len(steps)
    return len(values) >= FEWEST_POSITIONS and is_in_step and not set(values) <= {0.0, 1.0}


def _starts(values: Numbers, rows: int) -> frozenset[int] | None:
    """Return the rows that begin a sequence, if numbers are the cumulative lengths of sequences."""
    are_cumulative = len(values) > 1 and values[0] == 0 and values[-1] == rows
    if not are_cumulative or any(one > other for one, other in pairwise(values)):
        return None
    return frozenset(map(int, values))


def surest(recorded: Iterable[Recorded]) -> Given | None:
    """Return what a run was given, a mask telling what is padding; None if no token ids were saved."""
    return next(readings(recorded), None)


def readings(recorded: Iterable[Recorded]) -> Iterator[Given]:
    """Yield what a run may have been given, as its masks tell padding: those that do, none of them, any."""
    passes = list(recorded)
    told = tuple(next(filter(partial(_leaves_out_padding, each), each.masks), None) for each in passes)
    any_mask = tuple(next(iter(each.masks), None) for each in passes)
    for kept in dict.fromkeys((told, (None,) * len(passes), any_mask)) if passes else ():
        yield _in_a_row([_given(each, mask) for each, mask in zip(passes, kept, strict=True)])


def _leaves_out_padding(one: Recorded, mask: Numbers) -> bool:
    """Tell whether a mask leaves out one token, as padding is, and may not hold the places of two tokens."""
    left_out = {token for token, is_kept in zip(one.ids, mask, strict=True) if not is_kept}
    is_of_two = one.shape[-1] == len(_TWO_PLACES)
    return len(left_out) == 1 and not (is_of_two and mask == _TWO_PLACES * (len(mask) // len(_TWO_PLACES)))


def _in_a_row(found: Sequence[Given]) -> Given:
    if len(found) == 1:
        return found[0]
    return Given((sum(prod(each.shape) for each in found),), tuple(run for one in found for run in one.runs))


def ways(recorded: Iterable[Recorded]) -> Iterator[Given]:
    """Yield what a run may have been given, the surest first: any mask, or number, may tell padding."""
    passes = list(recorded)
    yield from readings(passes)
    if len(passes) != 1:
        return
    (one,) = passes
    yield from (_given(one, mask) for mask in one.masks[1:])
    if len(one.shape) > 1:
        length = one.shape[1]
        ends = Counter((*one.ids[::length], *one.ids[length - 1 :: length]))
        for padding in sorted(firsts(ends.most_common(MOST_PADDINGS))):
            yield _given(one, tuple(float(token != padding) for token in one.ids))


def _given(one: Recorded, kept: Numbers | None) -> Given:
    """Split rows where one that is left out, another sequence, or another place comes."""
    length = one.shape[1] if len(one.shape) > 1 else len(one.ids)
    runs: list[Run] = []
    at = padded = 0
    while at < len(one.ids):
        end = at + 1
        if kept is not None and kept[at] != 1.0:
            padded = end
        else:
            while end % length and not _begins_anew(one, end, kept):
                end += 1
            runs.append(_run(one, at, end, length, is_padded=padded > at - at % length))
        at = end
    return Given(one.shape, tuple(runs))


def _begins_anew(one: Recorded, at: int, kept: Numbers | None) -> bool:
    """Tell whether a token goes on from none: it is left out, of another sequence, or in another place."""
    if at >= len(one.ids) or (kept is not None and kept[at] != 1.0) or at in one.starts:
        return True
    places = one.positions
    return places is not None and places[at] != places[at - 1] + 1


def _run(one: Recorded, at: int, end: int, length: int, *, is_padded: bool) -> Run:
    is_batch = len(one.shape) > 1 and one.shape[0] > 1
    start: int | None = int(one.positions[at]) if one.positions else None
    if is_padded or (start is None and (one.starts or (is_batch and length > 1))):
        start = 0
    return Run(one.row + at, one.ids[at:end], start, at // length if is_batch else None, one.part)
