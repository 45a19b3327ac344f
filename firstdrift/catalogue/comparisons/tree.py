"""The tree of a slice pair and the pairs of its tensors, a window at a time.

`slice_pair` is always the id of a `SlicePair`; `index` is the position of a row in pre-order, or of a pair
in the plan. For a window few blocks are read, whatever the size of the tree.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from heapq import nsmallest
from itertools import chain, count
from typing import Any

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import Numbered, Reader, contents, contents_at
from firstdrift.catalogue.comparisons.kept import KeptPair, KeptRow, kinds_of
from firstdrift.catalogue.comparisons.measurements import Measurements
from firstdrift.catalogue.comparisons.overview import overviews_of
from firstdrift.catalogue.dumps.nodes import reader
from firstdrift.catalogue.lookup import required
from firstdrift.catalogue.packing import unpack, unpack_fields
from firstdrift.catalogue.tables import BAD, PairBlockEntry, RowBlockEntry, SlicePairEntry
from firstdrift.matching.plan import NodeMatch, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.node import Node
from firstdrift.verdict.judgement import ORIGINS, PairJudgement, RowJudgement, Verdict
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

_ROWS, _PAIRS = RowBlockEntry.__table__, PairBlockEntry.__table__


class Row(Struct, frozen=True):
    """A row of the tree: where it is, how its nodes were matched, and what is said of it."""

    tree: TreeRow
    match: NodeMatch | None
    judgement: RowJudgement

    @property
    def has_children(self) -> bool:
        """True if there are rows below it."""
        return self.tree.last > self.tree.index


class Pair(Struct, frozen=True):
    """A pair of tensors: what is compared, its numbers, and its verdict.

    Attributes:
        index: position in the plan.
        row: index of the row it belongs to.
    """

    index: int
    row: int
    plan: TensorPair
    measurement: Measurement
    judgement: PairJudgement


def row_fields(session: Session, slice_pair: int, *names: str) -> Iterator[tuple[Any, ...]]:
    """Give some fields of all rows ("judgement.verdict") in the order of the tree."""
    for _, content in contents(session, _ROWS, slice_pair):
        yield from zip(*unpack_fields(KeptRow, content, names), strict=True)


def row_fields_at(
    session: Session, slice_pair: int, indexes: Collection[int], *names: str
) -> Iterator[tuple[Any, ...]]:
    """Give the index and some fields of rows, in the order of the tree."""
    for first, content in contents_at(session, _ROWS, slice_pair, indexes):
        found = zip(count(first), *unpack_fields(KeptRow, content, names), strict=False)
        yield from (row for row in found if row[0] in indexes)


def _reader(session: Session, slice_pair: int) -> Reader[KeptRow]:
    """Give what looks up rows: one for all who ask in a session that sees no changes."""
    if session.get_bind().get_execution_options().get("writes", True):
        return _new_reader(session, slice_pair)
    readers: dict[int, Reader[KeptRow]] = session.info.setdefault(_new_reader, {})
    if slice_pair not in readers:
        readers[slice_pair] = _new_reader(session, slice_pair)
    return readers[slice_pair]


def _new_reader(session: Session, slice_pair: int) -> Reader[KeptRow]:
    return Reader(session, _ROWS, slice_pair, partial(Numbered, KeptRow))


def _row(kept: KeptRow) -> Row:
    return Row(kept.tree, kept.match, kept.judgement)


def get_row(session: Session, slice_pair: int, index: int) -> Row:
    """Look up a row."""
    found = rows_at(session, slice_pair, (index,))
    return required(next(iter(found), None), Message.of("catalogue.no_row", row=index))


def path_to_row(session: Session, slice_pair: int, index: int) -> tuple[Row, ...]:
    """List the rows that contain a row, from the top down, without the row itself."""
    rows = _reader(session, slice_pair)
    above: list[Row] = []
    here = rows.at((index,)).get(index)
    while here is not None and here.tree.parent is not None:
        here = rows.at((here.tree.parent,))[here.tree.parent]
        above.append(_row(here))
    return tuple(reversed(above))


def rows_at(session: Session, slice_pair: int, indexes: Collection[int]) -> tuple[Row, ...]:
    """Look up rows by their indexes, in the order of the tree."""
    found = _reader(session, slice_pair).at(indexes)
    return tuple(_row(found[index]) for index in sorted(found))


def rows_of_nodes(session: Session, slice_pair: int, side: str, names: Collection[str]) -> dict[str, int]:
    """Say in which rows some nodes of a side ("golden", "target") are; those in none are left out."""
    wanted = frozenset(names)
    known = enumerate(chain.from_iterable(row_fields(session, slice_pair, f"tree.{side}")))
    return {name: index for index, named in known for name in named if name in wanted}


def pairs_of_row(session: Session, slice_pair: int, row: int) -> tuple[Pair, ...]:
    """List the pairs of tensors of a row, in the order of the plan."""
    return pairs_of_rows(session, slice_pair, (row,))


def pairs_of_rows(session: Session, slice_pair: int, rows: Collection[int]) -> tuple[Pair, ...]:
    """List the pairs of tensors of rows, in the order of the plan."""
    ends = [(row.first_pair, row.last_pair) for row in _reader(session, slice_pair).at(rows).values()]
    places = {
        place
        for first, last in ends
        if first is not None and last is not None
        for place in range(first, last + 1)
    }
    if not places:
        return ()
    blocks: Reader[KeptPair] = Reader(session, _PAIRS, slice_pair, partial(Numbered, KeptPair))
    found = {index: pair for index, pair in sorted(blocks.at(places).items()) if pair.row in rows}
    return tuple(_Pairs(session, slice_pair).whole(found))


def all_kept_rows(session: Session, slice_pair: int) -> Iterator[KeptRow]:
    """Go through all that is kept of rows in the order of the tree, as it comes."""
    for _, content in contents(session, _ROWS, slice_pair):
        yield from unpack(KeptRow, content)


def all_rows(session: Session, slice_pair: int) -> Iterator[Row]:
    """Go through all rows in the order of the tree, as they come."""
    return map(_row, all_kept_rows(session, slice_pair))


def all_kept_pairs(session: Session, slice_pair: int) -> Iterator[KeptPair]:
    """Go through all that is kept of pairs in the order of the plan, as it comes."""
    for _, content in contents(session, _PAIRS, slice_pair):
        yield from unpack(KeptPair, content)


def all_pairs(session: Session, slice_pair: int) -> Iterator[Pair]:
    """Go through all pairs in the order of the plan, as they come."""
    pairs = _Pairs(session, slice_pair)
    for block in contents(session, _PAIRS, slice_pair):
        yield from pairs.whole(dict(_kept_pairs([block])))


def bad_rows(session: Session, comparison_id: int, limit: int) -> tuple[tuple[int, Row], ...]:
    """List the worst rows of a comparison with a verdict of warning or error, each with its slice pair.

    Those where an error begins come first, in the order of execution, then the others
    by their output error.
    """
    here = (SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete)
    pairs = session.execute(select(SlicePairEntry.id, SlicePairEntry.position).where(*here)).all()
    worst = nsmallest(
        limit, chain.from_iterable(_ranked(session, pair, position) for pair, position in pairs)
    )
    readers = {pair: _reader(session, pair) for pair, _ in pairs}
    return tuple((pair, _row(readers[pair].at((index,))[index])) for *_, index, pair in worst)


def _ranked(session: Session, slice_pair: int, position: int) -> Iterator[tuple[Any, ...]]:
    """Give for each bad row what it is ranked by, last its index and the slice pair."""
    names = ("judgement.verdict", "judgement.node_class", "judgement.output_error", "tree.order")
    for index, (verdict, node_class, error, order) in enumerate(row_fields(session, slice_pair, *names)):
        if verdict in BAD:
            is_origin = node_class in ORIGINS
            place = (position, order) if is_origin else ()
            yield (not is_origin, *place, error is None, -_above_all(error), position, index, slice_pair)


def _above_all(error: float | None) -> float:
    """Let NaN come before all numbers."""
    return 0.0 if error is None else math.inf if math.isnan(error) else error


def count_bad_rows(session: Session, comparison_id: int) -> int:
    """Say how many rows of a comparison have a verdict of warning or error."""
    return sum(overview.bad for overview in overviews_of(session, comparison_id).values())


def incomparable_pairs(session: Session, slice_pair: int, *, limit: int) -> tuple[Pair, ...]:
    """List the first pairs that could not be compared, in the order of the plan."""
    here = (_PAIRS.c.slice_pair_id == slice_pair, _PAIRS.c.incomparable > 0)
    asked = select(_PAIRS.c.first, _PAIRS.c.content).where(*here).order_by(_PAIRS.c.first).limit(limit)
    blocks = session.execute(asked)
    found = {
        index: pair for index, pair in _kept_pairs(blocks) if pair.judgement.verdict is Verdict.INCOMPARABLE
    }
    return tuple(_Pairs(session, slice_pair).whole(dict(list(found.items())[:limit])))


def rows_of_incomparable_pairs(session: Session, slice_pair: int) -> frozenset[int]:
    """Return the indexes of the rows that have a pair of tensors that could not be compared."""
    here = (_PAIRS.c.slice_pair_id == slice_pair, _PAIRS.c.incomparable > 0)
    blocks = session.scalars(select(_PAIRS.c.content).where(*here))
    fields = (unpack_fields(KeptPair, block, ("row", "judgement.verdict")) for block in blocks)
    pairs = chain.from_iterable(zip(*block, strict=True) for block in fields)
    return frozenset(row for row, verdict in pairs if verdict == Verdict.INCOMPARABLE)


def rows_with_kinds(
    session: Session, slice_pair: int, rows: Collection[int], others: Collection[int]
) -> tuple[dict[int, Row], dict[int, frozenset[MeasurementKind]]]:
    """Look up rows, and say what the numbers of them and of others come from, so far as there are any."""
    found = _reader(session, slice_pair).at({*rows, *others})
    kinds = {index: kinds_of(row.kinds) for index, row in found.items() if row.kinds}
    return {index: _row(found[index]) for index in rows}, kinds


def _kept_pairs(blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, KeptPair]]:
    for first, content in blocks:
        yield from enumerate(unpack(KeptPair, content), first)


class _Pairs:
    """Puts pairs of tensors together: their nodes and their measurements are in blocks of their own."""

    def __init__(self, session: Session, slice_pair: int) -> None:
        sides = select(SlicePairEntry.golden_id, SlicePairEntry.target_id)
        golden, target = session.execute(sides.where(SlicePairEntry.id == slice_pair)).one()
        self._golden, self._target = reader(session, golden), reader(session, target)
        self._measurements = Measurements(session)

    def whole(self, kept: Mapping[int, KeptPair]) -> Iterator[Pair]:
        """Give pairs, each with its measurement."""
        golden = self._golden.at({pair.golden_order for pair in kept.values()})
        target = self._target.at({pair.target_order for pair in kept.values()})
        measured = self._measurements.at([(pair.block, pair.place) for pair in kept.values()])
        for (index, pair), measurement in zip(kept.items(), measured, strict=True):
            plan = pair.whole or _plan(pair, golden[pair.golden_order], target[pair.target_order])
            yield Pair(index, pair.row, plan, measurement, pair.judgement)


def _plan(pair: KeptPair, golden: Node, target: Node) -> TensorPair:
    return TensorPair(
        pair.match,
        golden.name,
        target.name,
        golden.tensors[pair.golden_position],
        target.tensors[pair.target_position],
        pair.transform,
        pair.incomparable,
    )
