"""Read the `statistic.csv` that msprobe writes into each run of an ATB dump.

    …,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,Max,Min,Mean,Norm,Tensor Path
    …,WordEmbedding/GatherOperation,GatherOperation,0_0,output,0,bf16,nd,6x32,0.5,-0.5,0.03,2.78,

`Op Name` and `Op Id` together are the path of the operation's folder: `0_WordEmbedding/0_GatherOperation`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from firstdrift.dumps.atb.layout import OPERATION_NAME
from firstdrift.dumps.atb.topology import Operation
from firstdrift.dumps.containers.contents import DamagedError, shape_of
from firstdrift.dumps.storage.table import bad_rows, parse_table
from firstdrift.model.tensor import Role, Statistics
from firstdrift.wording.message import Message

_ROLES = {"input": Role.INPUT, "output": Role.OUTPUT}
_DTYPES = {"float": "float32", "double": "float64", "bf16": "bfloat16"}
_LARGEST = 256 * 1024 * 1024
"""Size in bytes up to which a table is read."""

_MOST_ROWS = 1_000_000
"""Rows that are read, of a hundred bytes and more: a run of the largest models has a tenth of them."""

_INDEX = re.compile(r"[0-9]{1,9}", re.ASCII)
_SHAPE = re.compile(r"[0-9]{1,18}(?:x[0-9]{1,18})*", re.ASCII)


class TensorKey(NamedTuple):
    """Which tensor of a run: running numbers of its operation, role and number."""

    orders: tuple[int, ...]
    role: Role
    number: int


class StatisticsRow(Struct, frozen=True):
    """What is known of a tensor; statistics are None where the tool wrote N/A."""

    dtype: str
    shape: tuple[int, ...] | None
    statistics: Statistics | None


class RunStatistics(Struct, frozen=True):
    """What a table says.

    Attributes:
        rows: by tensor; of a tensor that has several rows the last.
        operations: the operations that it names and those around them, by name.
        notes: what in it cannot be used.
    """

    rows: Mapping[TensorKey, StatisticsRow]
    operations: dict[str, Operation]
    notes: tuple[Message, ...] = ()


def read_statistics(file: Path) -> RunStatistics:
    """Read a table, as far as it can be read."""
    rows: dict[TensorKey, StatisticsRow] = {}
    operations: dict[str, Operation] = {}
    bad = count = 0
    try:
        for parsed in parse_table(file, _parsed, largest=_LARGEST, most_rows=_MOST_ROWS):
            count += 1
            if parsed is None:
                bad += 1
                continue
            line, key, row = parsed
            rows[key] = row
            for operation in line:
                operations.setdefault(operation.name, operation)
    except DamagedError as exc:
        return RunStatistics({}, {}, (exc.message,))
    repeated = count - bad - len(rows)
    notes = (
        Message.of("dumps.table.rows_left_out", most=_MOST_ROWS) if count == _MOST_ROWS else None,
        bad_rows(bad, count),
        Message.of("dumps.atb.repeated_rows", rows=repeated) if repeated else None,
    )
    return RunStatistics(rows, operations, tuple(note for note in notes if note))


def _parsed(fields: Mapping[str, str]) -> tuple[list[Operation], TensorKey, StatisticsRow]:
    return _operations(fields), _key(fields), _row(fields)


def _operations(fields: Mapping[str, str]) -> list[Operation]:
    """Return the operations on the way down to that of a row."""
    orders, types = fields["Op Id"].split("_"), fields["Op Name"].split("/")
    if len(orders) != len(types):
        raise ValueError
    labels = [f"{order}_{type_name}" for order, type_name in zip(orders, types, strict=True)]
    if not all(map(OPERATION_NAME.fullmatch, labels)):
        raise ValueError
    numbers = tuple(map(int, orders))
    return [
        Operation("/".join(labels[:depth]), numbers[:depth], types[depth - 1], is_graph=depth < len(labels))
        for depth in range(1, len(labels) + 1)
    ]


def _key(fields: Mapping[str, str]) -> TensorKey:
    if not _INDEX.fullmatch(fields["Index"]):
        raise ValueError
    orders = tuple(map(int, fields["Op Id"].split("_")))
    return TensorKey(orders, _ROLES[fields["Input/Output"]], int(fields["Index"]))


def _row(fields: Mapping[str, str]) -> StatisticsRow:
    values = [_number(fields[name]) for name in ("Max", "Min", "Mean", "Norm")]
    shape = fields["Shape"]
    return StatisticsRow(
        dtype=_DTYPES.get(fields["Dtype"], fields["Dtype"]),
        shape=shape_of([*map(int, shape.split("x"))]) if _SHAPE.fullmatch(shape) else None,
        statistics=None if values == [None] * 4 else Statistics(*values),
    )


def _number(text: str) -> float | None:
    return None if text in {"", "N/A", "None"} else float(text)
