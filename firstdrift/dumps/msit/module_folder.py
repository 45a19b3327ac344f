"""Read the folder of one module in one token of a msit torch dump.

input_0.pth  output_0.pth  output_1_0.pth  statistics.csv   →   input.0  output.0  output.1.0
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
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
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import problem_of_file
from firstdrift.dumps.storage.tensor_data import read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.files import scan_folder
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
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
    with scan_folder(folder) as entries:
        refusals = dict(sorted((entry.name, bounds.refusal(entry)) for entry in entries))
    names = list(refusals)
    files = _tensor_files(names)
    records = [
        record
        for file in files
        for record in read_tensor_file(folder / file.name, file.role, file.key, refusals[file.name])
    ]
    known = {STATISTICS_FILE, *(file.name for file in files)}
    notes = [(file.name, Message.of("dumps.msit.number_twice")) for file in files if "#" in file.key]
    type_name = ""
    if refusal := refusals.get(STATISTICS_FILE):
        notes.append((STATISTICS_FILE, refusal))
    elif STATISTICS_FILE in names:
        rows, damage = read_rows(folder / STATISTICS_FILE)
        type_name = rows[0].type_name if rows else ""
        records, doubts = _add_statistics(records, rows)
        notes += [(STATISTICS_FILE, note) for note in (damage, *doubts) if note]
    unknown = tuple(printable(name) for name in names if name not in known)
    return ModuleFolder(tuple(records), type_name, tuple(notes), unknown)


def read_tensor_file(file: Path, role: Role, key: str, refusal: Message | None) -> list[TensorRecord]:
    """Describe the tensors of a file, of which there is one unless somebody saved a container.

    With a `refusal`, the reason why the file must not be read, there is one that cannot be compared.
    """
    if refusal:
        return [replace(_unreadable(file, role, key, refusal), location=None)]
    try:
        headers = read_headers(file, "pt")
    except TensorUnreadableError as exc:
        return [_unreadable(file, role, key, exc.message)]
    if not headers:
        return [_unreadable(file, role, key, Message.of("dumps.file.no_tensor"))]
    return [
        TensorRecord(
            role=role,
            key=f"{key}.{header.entry}" if header.entry else key,
            dtype=header.dtype,
            shape=header.shape,
            digest=header.digest,
            location=DataLocation(file, "pt", header.entry),
            problem=header.problem and problem_of_file(printable(file.name), header.problem),
        )
        for header in headers
    ]


def _unreadable(file: Path, role: Role, key: str, reason: Message) -> TensorRecord:
    problem = problem_of_file(printable(file.name), reason)
    return TensorRecord(role, key, "", None, location=DataLocation(file, "pt"), problem=problem)


class _TensorFile(NamedTuple):
    role: Role
    key: str
    name: str


def _tensor_files(names: Iterable[str]) -> list[_TensorFile]:
    """Find the tensor files in the order of writing; "0#1" is the second file numbered 0."""
    found = [
        (Role(match["role"]), tuple(map(int, (match["key"] or "0").split("_"))), name)
        for name in names
        if (match := _TENSOR_FILE.fullmatch(name))
    ]
    files: list[_TensorFile] = []
    seen: Counter[tuple[Role, tuple[int, ...]]] = Counter()
    for role, numbers, name in sorted(found):
        count = seen[role, numbers]
        seen[role, numbers] += 1
        files.append(_TensorFile(role, ".".join(map(str, numbers)) + (f"#{count}" if count else ""), name))
    return files


def _add_statistics(
    records: Sequence[TensorRecord], rows: Sequence[StatisticsRow]
) -> tuple[list[TensorRecord], list[Message]]:
    """Give each tensor its row, and a record to each row that has no file."""
    if not records:
        return _records_of_rows(rows)
    result: list[TensorRecord] = []
    doubts: list[Message] = []
    for role in (Role.INPUT, Role.OUTPUT):
        own = [record for record in records if record.role is role]
        own_rows = [row for row in rows if row.role is role]
        in_order = rows_of_files(own_rows, [(record.key, record.shape) for record in own])
        if in_order is not None:
            result += [_with_row(record, row) for record, row in zip(own, in_order, strict=True)]
            continue
        fitting = [[row for row in own_rows if row.fits(record.key, record.shape)] for record in own]
        result += [
            _with_row(record, matches[0]) if len(matches) == 1 else record
            for record, matches in zip(own, fitting, strict=True)
        ]
        if own_rows and any(len(matches) != 1 for matches in fitting):
            doubts.append(Message.of(f"dumps.msit.doubtful_{role}_rows", rows=len(own_rows), files=len(own)))
        taken = {id(row) for matches in fitting for row in matches}
        missing, _ = rows_of_last_call([row for row in own_rows if id(row) not in taken])
        if missing:
            doubts.append(Message.of(f"dumps.msit.files_of_{role}_rows_missing", rows=len(missing)))
            result += _records_of_rows(missing)[0]
    return result, doubts


def _records_of_rows(rows: Sequence[StatisticsRow]) -> tuple[list[TensorRecord], list[Message]]:
    last_call, guess = rows_of_last_call(rows)
    keys, doubt = keys_of_rows(last_call)
    records = [
        TensorRecord(row.role, key, row.dtype, row.shape, row.statistics)
        for row, key in zip(last_call, keys, strict=True)
    ]
    return records, [note for note in (guess, doubt) if note]


def _with_row(record: TensorRecord, row: StatisticsRow) -> TensorRecord:
    return replace(
        record,
        dtype=record.dtype or row.dtype,
        shape=row.shape if record.shape is None else record.shape,
        statistics=row.statistics,
    )
