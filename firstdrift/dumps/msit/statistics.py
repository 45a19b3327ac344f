"""Read the `statistics.csv` of a msit module folder and say which row belongs to which tensor.

    NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm
    root.lm_head,Linear,Output,0,torch.float32,"(1, 6, 256)",7.9,-5.2,0.05,38.6

Rows stand in the order of writing: per call the inputs, then the outputs. Two things make them
ambiguous: `Index` is only the last number of a file's name, so `output_0` and `output_1_0` are
both Output 0; and a module that runs twice overwrites its files but appends its rows.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.containers.contents import DamagedError, shape_of
from firstdrift.dumps.nodes import counted, numbered
from firstdrift.dumps.storage.table import bad_rows, parse_table
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

_ROLES = {"Input": Role.INPUT, "Output": Role.OUTPUT}
_LARGEST = 64 * 1024 * 1024
"""Size in bytes up to which the table of one module is read: a hundred bytes are a row."""

_MOST_ROWS = 200_000
"""Rows of such a table: a module has a dozen tensors, and appends them with each call."""

_NUMBER = re.compile(r"[0-9]+")


class StatisticsRow(Struct, frozen=True):
    """One row: which kind of tensor, the last number of its name, and what is known of it."""

    role: Role
    index: str
    type_name: str
    dtype: str
    shape: tuple[int, ...]
    statistics: Statistics

    def fits(self, tensor: TensorRecord) -> bool:
        """Tell whether the row can be about a tensor: same last number, same shape if that is known."""
        number = tensor.key.partition("#")[0].rpartition(".")[2]
        return self.index == number and tensor.shape in (None, self.shape)


def read_rows(file: Path) -> tuple[list[StatisticsRow], Message | None]:
    """Read the rows of a table, and say what in it cannot be read (else None)."""
    try:
        table = list(parse_table(file, _row, largest=_LARGEST, most_rows=_MOST_ROWS + 1))
    except DamagedError as exc:
        return [], exc.message
    if len(table) > _MOST_ROWS:
        return [], Message.of("dumps.msit.too_many_rows", most=_MOST_ROWS)
    rows = [row for row in table if row]
    return rows, bad_rows(len(table) - len(rows), len(table))


def rows_of_files(
    rows: Sequence[StatisticsRow], tensors: Sequence[TensorRecord]
) -> list[StatisticsRow] | None:
    """Return the row of each tensor of one role, given in the order of writing.

    None where rows and tensors do not fit together beyond doubt.
    """
    if not rows or not tensors or len(rows) % len(tensors):
        return None
    last_call = rows[-len(tensors) :]
    return list(last_call) if all(map(StatisticsRow.fits, last_call, tensors)) else None


def rows_of_last_call(rows: Sequence[StatisticsRow]) -> tuple[list[StatisticsRow], Message | None]:
    """Return the rows of the last call, and a note where that is a guess (else None)."""
    roles = pairwise(row.role for row in rows)
    starts = [at for at, pair in enumerate(roles, start=1) if pair == (Role.OUTPUT, Role.INPUT)]
    last_call = list(rows[max(starts, default=0) :])
    if len({row.role for row in last_call}) == 1 and (period := _period(last_call)) < len(last_call):
        repeats = len(last_call) // period
        return last_call[-period:], Message.of("dumps.msit.repeated_rows", calls=repeats)
    return last_call, None


def keys_of_rows(rows: Sequence[StatisticsRow]) -> tuple[list[str], Message | None]:
    """Name the tensors of rows without files: their index, "0#1" for the next of the same index."""
    earlier = list(counted(rows, lambda row: (row.role, row.index)))
    keys = [numbered(row.index, occurrence) for row, occurrence in earlier]
    return keys, Message.of("dumps.msit.index_twice") if any(again for _, again in earlier) else None


def _period(rows: Sequence[StatisticsRow]) -> int:
    """Return the length of the block without repeated indices that the rows consist of."""
    signatures = [(row.index, row.dtype, row.shape) for row in rows]
    length = next((at for at in range(1, len(rows)) if rows[at].index == rows[0].index), len(rows))
    return length if signatures[:length] * (len(rows) // length) == signatures else len(rows)


def _row(fields: dict[str, str]) -> StatisticsRow:
    return StatisticsRow(
        role=_ROLES[fields["InputOutput"]],
        index=fields["Index"],
        type_name=fields["NodeType"],
        dtype=fields["DataType"].removeprefix("torch."),
        shape=shape_of([*map(int, _NUMBER.findall(fields["Shape"]))]),
        statistics=Statistics(*(_number(fields[name]) for name in ("Max", "Min", "Mean", "L2Norm"))),
    )


def _number(text: str) -> float | None:
    return None if text in {"None", "N/A"} else float(text)
