"""Read the folder of one module in one token of a msit torch dump.

input_0.pth  output_0.pth  output_1_0.pth  statistics.csv   →   input.0  output.0  output.1.0

Which row of its table belongs to which tensor is not said:

    NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm
    root.lm_head,Linear,Output,0,torch.float32,"(1, 6, 256)",7.9,-5.2,0.05,38.6

Rows stand in the order of writing: per call the inputs, then the outputs. Two things make them
ambiguous: `Index` is only the last number of a file's name, so `output_0` and `output_1_0` are
both Output 0; and a module that runs twice overwrites its files but appends its rows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, shape_of
from firstdrift.dumps.nodes import counted, numbered, of_role
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable, refusals_in
from firstdrift.dumps.storage.table import bad_rows, parse_table
from firstdrift.dumps.storage.tensor_data import records_of_file
from firstdrift.groups import known, seconds
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
    rows = known(table)
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
    return keys, Message.of("dumps.msit.index_twice") if any(seconds(earlier)) else None


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


STATISTICS_FILE = "statistics.csv"
_TENSOR_FILE = re.compile(r"(?P<role>input|output)(?:_(?P<key>[0-9]+(?:_[0-9]+)*))?\.pth", re.ASCII)


class ModuleFolder(Struct, frozen=True):
    """What lies in the folder of a module.

    Attributes:
        tensors: inputs, then outputs, each in the order of writing.
        type_name: class of the module as `statistics.csv` has it; empty without that file.
        notes: what is doubtful or damaged, by file name.
        unknown: names of files and folders that are not part of the format.
    """

    tensors: tuple[TensorRecord, ...]
    type_name: str = ""
    notes: tuple[tuple[str, Message], ...] = ()
    unknown: tuple[str, ...] = ()


def read_module_folder(folder: Path, bounds: Bounds) -> ModuleFolder:
    """Read the headers of all tensors and the statistics of a module folder in bounds.

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    refusals = refusals_in(folder, bounds)
    files = _tensor_files(refusals)
    records = [
        record
        for file in files
        for record in records_of_file(folder / file.name, "pt", file.role, file.key, refusals[file.name])
    ]
    notes = [(file.name, Message.of("dumps.msit.number_twice")) for file in files if "#" in file.key]
    rows, doubts = _statistics(folder / STATISTICS_FILE, refusals)
    if STATISTICS_FILE in refusals:
        records, more = _add_statistics(records, rows)
        doubts += more
    notes += [(STATISTICS_FILE, doubt) for doubt in doubts]
    other = refusals.keys() - {STATISTICS_FILE, *(file.name for file in files)}
    type_name = rows[0].type_name if rows else ""
    return ModuleFolder(tuple(records), type_name, tuple(notes), tuple(map(printable, sorted(other))))


def _statistics(
    file: Path, refusals: Mapping[str, Message | None]
) -> tuple[list[StatisticsRow], list[Message]]:
    """Return the rows of the table of a folder, if it has one, and what is wrong with it."""
    if file.name not in refusals:
        return [], []
    if refusal := refusals[file.name]:
        return [], [refusal]
    rows, damage = read_rows(file)
    return rows, [damage] if damage else []


class _TensorFile(NamedTuple):
    role: Role
    key: str
    name: str


def _tensor_files(names: Iterable[str]) -> list[_TensorFile]:
    """Find the tensor files in the order of writing; "0#1" is the second file numbered 0."""
    found = sorted(
        (Role(match["role"]), tuple(map(int, (match["key"] or "0").split("_"))), name)
        for name in names
        if (match := _TENSOR_FILE.fullmatch(name))
    )
    return [
        _TensorFile(role, numbered(".".join(map(str, numbers)), occurrence), name)
        for (role, numbers, name), occurrence in counted(found, lambda saved: saved[:2])
    ]


def _add_statistics(
    records: Sequence[TensorRecord], rows: Sequence[StatisticsRow]
) -> tuple[list[TensorRecord], list[Message]]:
    """Give each tensor its row, and a record to each row that has no file."""
    if not records:
        return _records_of_rows(rows)
    result: list[TensorRecord] = []
    doubts: list[Message] = []
    for role in (Role.INPUT, Role.OUTPUT):
        own = of_role(records, role)
        fit = _fit(role, own, [row for row in rows if row.role is role])
        result += map(_with_row, own, fit.rows)
        result += _records_of_rows(fit.without_file)[0]
        doubts += fit.doubts
    return result, doubts


class _Fit(NamedTuple):
    """The row of each tensor of a role, the rows that no file is there for, and what is doubtful."""

    rows: Sequence[StatisticsRow | None]
    without_file: Sequence[StatisticsRow]
    doubts: list[Message]


def _fit(role: Role, records: Sequence[TensorRecord], rows: Sequence[StatisticsRow]) -> _Fit:
    in_order = rows_of_files(rows, records)
    if in_order is not None:
        return _Fit(in_order, [], [])
    chosen = [_only_row(rows, record) for record in records]
    doubts = []
    if rows and None in chosen:
        doubts.append(Message.of(f"dumps.msit.doubtful_{role}_rows", rows=len(rows), files=len(records)))
    missing, _ = rows_of_last_call([row for row in rows if not any(map(row.fits, records))])
    if missing:
        doubts.append(Message.of(f"dumps.msit.files_of_{role}_rows_missing", rows=len(missing)))
    return _Fit(chosen, missing, doubts)


def _only_row(rows: Iterable[StatisticsRow], record: TensorRecord) -> StatisticsRow | None:
    """Return the one row that fits a tensor; None if there is none, or more than one."""
    fitting = [row for row in rows if row.fits(record)]
    return fitting[0] if len(fitting) == 1 else None


def _records_of_rows(rows: Sequence[StatisticsRow]) -> tuple[list[TensorRecord], list[Message]]:
    last_call, guess = rows_of_last_call(rows)
    keys, doubt = keys_of_rows(last_call)
    records = [
        TensorRecord(row.role, key, row.dtype, row.shape, row.statistics)
        for row, key in zip(last_call, keys, strict=True)
    ]
    return records, known((guess, doubt))


def _with_row(record: TensorRecord, row: StatisticsRow | None) -> TensorRecord:
    if row is None:
        return record
    shape = row.shape if record.shape is None else record.shape
    return replace(record, dtype=record.dtype or row.dtype, shape=shape, statistics=row.statistics)
