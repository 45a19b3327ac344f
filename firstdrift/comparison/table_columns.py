"""The table of pairs column by column: no line is made of a pair where a column of many will do.

    result ─▶ columns ─▶ columns ─▶ ...        some hundreds of pairs each, then what has no partner

The catalogue gives the same columns. The cells are those of `firstdrift.comparison.table`, in its order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, TypeAlias

from firstdrift.comparison.report import SliceResult
from firstdrift.comparison.table import (
    COLUMNS,
    COORDINATES,
    SIDES,
    Cell,
    Line,
    cells_of,
    left_over_of_slice,
    said,
    shape_of,
)
from firstdrift.metrics.measurement import DIFFERENCE_METRICS, ERROR_METRICS, LOGITS_METRICS, Measurement
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import TensorRecord
from firstdrift.verdict.tree import rows_by_match

Columns: TypeAlias = Sequence[Sequence[Cell]]
"""Columns of some rows, equally long, and in the order of a table."""

Known: TypeAlias = Mapping[str, Sequence[Cell]]
"""Columns by their names; those that are not there are empty."""

_LENGTH = 2048
"""So many pairs at a time: a column of many is written faster."""

_OF_PAIR = ("match", "golden_node", "target_node", "golden", "target", "transform")

PARTS: Mapping[str, Mapping[str, str]] = {
    "errors": {name: name for name in ERROR_METRICS},
    "logits": {name: name for name in LOGITS_METRICS},
    "differences": {name: name for name in DIFFERENCE_METRICS},
    "golden": {f"golden_{side}": side for side in SIDES},
    "target": {f"target_{side}": side for side in SIDES},
}
"""Columns that a part of a measurement has the numbers of: by the part, its fields by column."""


def all_of(records: Iterable[Any], *names: str) -> list[list[Any]]:
    """Give attributes of records: a list for each, in a third of the time of rows that are turned."""
    known = list(records)
    return [list(map(attrgetter(name), known)) for name in names]


def in_order(at: Coordinates, count: int, known: Known) -> Columns:
    """Put columns of `count` rows of a slice in the order of the table."""
    empty = [None] * count
    place = {name: [value] * count for name in COORDINATES if (value := getattr(at, name)) is not None}
    return [place.get(name) or known.get(name, empty) for name in COLUMNS]


def columns_of_lines(lines: Iterable[Line]) -> Columns:
    """Lay lines out, and turn them into columns."""
    return list(zip(*map(cells_of, lines), strict=True))


def columns_of_slice(result: SliceResult) -> Iterator[Columns]:
    """Give the columns of one slice, some hundreds of rows at a time."""
    plan, judged = result.plan, result.judgement
    rows = rows_by_match(result.rows)
    said_of: dict[str, dict[int, Cell]] = {
        "order": {match: row.order for match, row in rows.items()},
        "module": {match: row.path for match, row in rows.items()},
        "origin": {match: plan.matches[match].origin._value_ for match in rows},
        "class": {match: judged.rows[row.index].node_class._value_ for match, row in rows.items()},
    }
    for start in range(0, len(plan.pairs), _LENGTH):
        here = slice(start, start + _LENGTH)
        matches, *columns = all_of(plan.pairs[here], *_OF_PAIR)
        golden_nodes, target_nodes, golden, target, transforms = columns
        verdicts, errors, reasons = all_of(judged.pairs[here], "verdict._value_", "error", "reasons")
        known = {
            **{name: list(map(cells.__getitem__, matches)) for name, cells in said_of.items()},
            "golden_node": golden_nodes,
            "target_node": target_nodes,
            **_of_records("golden", golden),
            **_of_records("target", target),
            "transform": texts(transforms),
            "verdict": verdicts,
            "error": errors,
            "reasons": texts(reasons),
            **_of_measured(result.measurements[here]),
        }
        yield in_order(judged.coordinates, len(matches), known)
    if left := list(left_over_of_slice(result)):
        yield columns_of_lines(left)


def _of_records(side: str, records: Sequence[TensorRecord]) -> Known:
    roles, keys, dtypes, shapes = all_of(records, "role._value_", "key", "dtype", "shape")
    return {
        f"{side}_tensor": labels(roles, keys),
        f"{side}_dtype": dtypes,
        f"{side}_shape": list(map(shape_of, shapes)),
    }


def labels(roles: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Call tensors as records do: "output.0"."""
    return [f"{role}.{key}" for role, key in zip(roles, keys, strict=True)]


def texts(several: Sequence[Any]) -> list[str]:
    """Put messages into words, those of each row; what is the same for many is so once."""
    known = {id(messages): messages for messages in several}
    words = {number: said(messages) for number, messages in known.items()}
    return list(map(words.__getitem__, map(id, several)))


def _of_measured(measured: Sequence[Measurement]) -> Known:
    kinds, equal, *parts = all_of(measured, "kind._value_", "equal", *PARTS)
    found: dict[str, Sequence[Cell]] = {"measured_from": kinds, "equal": flags(equal)}
    for names, records in zip(PARTS.values(), parts, strict=True):
        found |= _of_part(names, records)
    return found


def flags(values: Sequence[bool | None]) -> list[Cell]:
    """Write flags as numbers."""
    return list(map(_FLAGS.__getitem__, values))


_FLAGS: Mapping[bool | None, Cell] = {None: None, False: 0, True: 1}


def _of_part(names: Mapping[str, str], records: Sequence[Any]) -> Known:
    if None not in records:
        return dict(zip(names, all_of(records, *names.values()), strict=True))
    there = [record is not None for record in records]
    columns = all_of(compress(records, there), *names.values())
    rest = map(iter, columns)
    return {
        name: [next(values) if is_there else None for is_there in there]
        for name, values in zip(names, rest, strict=True)
        if any(there)
    }
