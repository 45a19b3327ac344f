"""Read the folder of one module in one token of a msit torch dump.

input_0.pth  output_0.pth  output_1_0.pth  statistics.csv   →   input.0  output.0  output.1.0
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.msit.statistics import (
    StatisticsRow,
    keys_of_rows,
    read_rows,
    rows_of_files,
    rows_of_last_call,
)
from firstdrift.dumps.nodes import counted, numbered, of_role
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable, refusals_in
from firstdrift.dumps.storage.tensor_files import records_of_file
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

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
        OSError: the folder cannot be read.
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
    return records, [note for note in (guess, doubt) if note]


def _with_row(record: TensorRecord, row: StatisticsRow | None) -> TensorRecord:
    if row is None:
        return record
    shape = row.shape if record.shape is None else record.shape
    return replace(record, dtype=record.dtype or row.dtype, shape=shape, statistics=row.statistics)
