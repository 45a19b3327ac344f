"""The pairs of a comparison as columns of the table, block by block: no record is made of a pair."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from operator import add
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import contents
from firstdrift.catalogue.comparisons.export_rows import left_over_lines
from firstdrift.catalogue.comparisons.kept import KeptPair
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_rows, row_fields
from firstdrift.catalogue.packing import unpack_fields, unpack_inner
from firstdrift.catalogue.tables import MeasurementBlockEntry, NodeBlockEntry, PairBlockEntry
from firstdrift.comparison.table import Cell, shape_of
from firstdrift.comparison.table_columns import (
    PARTS,
    Columns,
    columns_of_lines,
    flags,
    in_order,
    labels,
    texts,
)
from firstdrift.matching.plan import TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.node import Node
from firstdrift.model.tensor import TensorRecord

Value = TypeVar("Value")

_TOGETHER = 4
"""So many blocks of pairs at a time: a column of many is written faster."""

_PAIRS, _NODES = PairBlockEntry.__table__, NodeBlockEntry.__table__
_MEASUREMENTS = MeasurementBlockEntry.__table__.c

_OF_PAIRS = (
    *("row", "golden_order", "golden_position", "target_order", "target_position"),
    *("whole", "transform", "block", "place"),
    *("judgement.verdict", "judgement.error", "judgement.reasons"),
)
_OF_TENSORS = ("role", "key", "dtype", "shape")
_NUMBERS = {column: f"{part}.{name}" for part, names in PARTS.items() for column, name in names.items()}
_OF_MEASUREMENTS = ("kind", "equal", *_NUMBERS.values())


def stored_columns(session: Session, comparison_id: int) -> Iterator[Columns]:
    """Give the columns of the table of a comparison, some hundreds of rows at a time, slice by slice."""
    get_comparison(session, comparison_id)
    for pair in slice_pairs_of(session, comparison_id):
        yield from _columns(session, pair)


def _columns(session: Session, pair: SlicePair) -> Iterator[Columns]:
    said_of = _said_of_rows(session, pair.id)
    blocks = _Blocks(session, pair)
    packed = contents(session, _PAIRS, pair.id)
    while some := list(islice(packed, _TOGETHER)):
        kept = _Kept(*_joined(unpack_fields(KeptPair, content, _OF_PAIRS) for _, content in some))
        yield in_order(pair.target, len(kept.rows), _known(kept, said_of, blocks))
    is_left_over = pair.unmatched_golden or pair.unmatched_target or "" in said_of["origin"]
    if is_left_over and (left := list(left_over_lines(pair, list(all_rows(session, pair.id))))):
        yield columns_of_lines(left)


def _joined(several: Iterable[Sequence[list[Any]]]) -> Iterator[list[Any]]:
    """Put columns of several blocks together."""
    return (list(chain.from_iterable(columns)) for columns in zip(*several, strict=True))


def _said_of_rows(session: Session, slice_pair: int) -> dict[str, list[Cell]]:
    """Give the columns that the pairs of a row have in common, with a cell for each row."""
    found: dict[str, list[Cell]] = {"order": [], "module": [], "origin": [], "class": []}
    names = ("tree.order", "tree.path", "origin", "judgement.node_class")
    for order, path, origin, node_class in row_fields(session, slice_pair, *names):
        origins = "" if origin is None else origin._value_
        for column, cell in zip(found.values(), (order, path, origins, node_class._value_), strict=True):
            column.append(cell)
    return found


class _Kept(Struct, frozen=True):
    """Fields of the pairs of a block, in the order of `_OF_PAIRS`."""

    rows: list[int]
    golden_orders: list[int]
    golden_positions: list[int]
    target_orders: list[int]
    target_positions: list[int]
    wholes: list[TensorPair | None]
    transforms: list[Any]
    blocks: list[int]
    places: list[int]
    verdicts: list[Any]
    errors: list[float | None]
    reasons: list[Any]


def _known(kept: _Kept, said_of: Mapping[str, list[Cell]], blocks: "_Blocks") -> Mapping[str, Sequence[Cell]]:
    tensors = {
        **_of_side("golden", blocks.golden.at(kept.golden_orders, kept.golden_positions)),
        **_of_side("target", blocks.target.at(kept.target_orders, kept.target_positions)),
    }
    for at, whole in enumerate(kept.wholes):
        if whole is not None:  # it is more than two tensors of these nodes
            golden = _own(whole.golden_node, whole.golden)
            target = _own(whole.target_node, whole.target)
            for name, value in {**_of_side("golden", golden), **_of_side("target", target)}.items():
                tensors[name][at] = value
    return {
        **{name: list(map(cells.__getitem__, kept.rows)) for name, cells in said_of.items()},
        **tensors,
        "transform": texts(kept.transforms),
        "verdict": [verdict._value_ for verdict in kept.verdicts],
        "error": kept.errors,
        "reasons": texts(kept.reasons),
        **blocks.measured.at(kept.blocks, kept.places),
    }


class _Blocks:
    """What the pairs of a slice pair refer to."""

    def __init__(self, session: Session, pair: SlicePair) -> None:
        self.golden = _Tensors(session, pair.golden_slice_id)
        self.target = _Tensors(session, pair.target_slice_id)
        self.measured = _Measured(session)


def _of_side(side: str, values: Sequence[Value]) -> dict[str, Value]:
    return dict(zip((f"{side}_{name}" for name in _OF_SIDE), values, strict=True))


_OF_SIDE = ("node", "tensor", "dtype", "shape")


def _own(node: str, record: TensorRecord) -> tuple[str, str, str, str]:
    return node, record.label, record.dtype, shape_of(record.shape)


class _Tensors:
    """Looks up tensors of a slice by their places."""

    def __init__(self, session: Session, slice_id: int) -> None:
        self._names: dict[int, str] = {}
        self._starts: dict[int, int] = {}
        self._known: tuple[list[str], list[str], list[str]] = ([], [], [])
        for _, content in contents(session, _NODES, slice_id):
            orders, names = unpack_fields(Node, content, ("order", "name"))
            lengths, (roles, keys, dtypes, shapes) = unpack_inner(Node, content, "tensors", _OF_TENSORS)
            self._names |= zip(orders, names, strict=True)
            starts = accumulate(lengths, initial=len(self._known[0]))
            self._starts |= zip(orders, starts, strict=False)
            new = labels((role._value_ for role in roles), keys), dtypes, map(shape_of, shapes)
            for known, more in zip(self._known, new, strict=True):
                known.extend(more)

    def at(self, orders: Sequence[int], positions: Sequence[int]) -> list[list[str]]:
        """Give columns of tensors: the names of their nodes, labels, dtypes, shapes."""
        places = list(map(add, map(self._starts.__getitem__, orders), positions))
        of_tensors = [list(map(known.__getitem__, places)) for known in self._known]
        return [list(map(self._names.__getitem__, orders)), *of_tensors]


class _Measured:
    """Looks up what was measured, and remembers the blocks that were read last."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[int, list[list[Any]]] = {}

    def at(self, blocks: Sequence[int], places: Sequence[int]) -> Mapping[str, Sequence[Cell]]:
        """Give the columns of measurements."""
        self._read(set(blocks))
        runs = list(_runs(blocks, places))
        kinds, equal, *numbers = [
            list(chain.from_iterable(self._known[block][field][start:stop] for block, start, stop in runs))
            for field in range(len(_OF_MEASUREMENTS))
        ]
        known = {"measured_from": [kind._value_ for kind in kinds], "equal": flags(equal)}
        return known | dict(zip(_NUMBERS, numbers, strict=True))

    def _read(self, blocks: set[int]) -> None:
        self._known = {block: known for block, known in self._known.items() if block in blocks}
        missing = blocks - self._known.keys()
        found = select(_MEASUREMENTS.id, _MEASUREMENTS.content).where(_MEASUREMENTS.id.in_(missing))
        for block, content in self._session.execute(found) if missing else ():
            self._known[block] = unpack_fields(Measurement, content, _OF_MEASUREMENTS)


def _runs(blocks: Sequence[int], places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Put together places that follow each other in a block: the block, the first place, and that after."""
    start = stop = 0
    here: int | None = None
    for block, place in zip(blocks, places, strict=True):
        if block != here or place != stop:
            if here is not None:
                yield here, start, stop
            here, start = block, place
        stop = place + 1
    if here is not None:
        yield here, start, stop
