"""Read what lies in one numbered folder of an ATB dump.

20_Decoder_layer/0_Attention/
├── before/intensor0.bin       input.0
├── after/outtensor0.bin       output.0
├── after/intensor0.bin        input.0.after: the same input, as the operation left it
└── op_param.json              what the operation was told

A link is followed if it leads to a file of the dump; links to folders are not.

Beside them lies the table of statistics that msprobe writes (`statistic.csv`):

    …,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,Max,Min,Mean,Norm,Tensor Path
    …,WordEmbedding/GatherOperation,GatherOperation,0_0,output,0,bf16,nd,6x32,0.5,-0.5,0.03,2.78,

`Op Name` and `Op Id` together are the path of the operation's folder: `0_WordEmbedding/0_GatherOperation`.

A file without values may name another of the same run that holds them (`data=10_0_1_outtensor0.bin`:
output 0 of the operation with the running numbers 10, 0, 1).
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.atb.process import OPERATION_NAME, STATISTICS_FILE, Operation
from firstdrift.dumps.containers.atb_bin import Description, describe
from firstdrift.dumps.containers.contents import DamagedError, file_contents, quoted, shape_of
from firstdrift.dumps.nodes import counted, inputs_first, numbered
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import entries_of, printable, problem_of_file
from firstdrift.dumps.storage.json_file import items_of, read_json
from firstdrift.dumps.storage.table import bad_rows, parse_table
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import Entry, list_folder
from firstdrift.groups import known
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

PARAMETERS_FILE = "op_param.json"
_TENSOR_FILE = re.compile(r"(?P<role>in|out)tensor(?P<index>0|[1-9][0-9]{0,8})(?:_.*)?\.bin", re.ASCII)
_TILING_FILE = re.compile(r"tiling.*\.bin", re.ASCII | re.IGNORECASE)
_ROLES = {"in": Role.INPUT, "out": Role.OUTPUT, "input": Role.INPUT, "output": Role.OUTPUT}
_PLACES = {Role.INPUT: "before", Role.OUTPUT: "after"}
_DEEPEST = 64


class TensorFile(Struct, frozen=True):
    """A file of one tensor.

    Attributes:
        path: where it lies; it may be a link to another file of the dump.
        role: input or output.
        index: which input or output.
        place: "before" or "after": when it was saved.
        refused: why it must not be read; None if it may.
    """

    path: Path
    role: Role
    index: int
    place: str
    refused: Message | None = None

    @property
    def is_in_place(self) -> bool:
        """Tell whether it was saved when it should be: inputs before the operation ran, outputs after."""
        return self.place == _PLACES[self.role]

    @property
    def key(self) -> str:
        """Its number; "0.after" for an input that was saved after the operation ran."""
        return str(self.index) if self.is_in_place else f"{self.index}.{self.place}"


class OperationFolder(Struct, frozen=True):
    """What lies in the folder of an operation.

    Attributes:
        operation: which one.
        files: its tensors: inputs in ascending order, then outputs.
        parameters: the file of its parameters, if there is one.
    """

    operation: Operation
    files: tuple[TensorFile, ...]
    parameters: Path | None


class RunFolder(Struct, frozen=True):
    """What lies in a numbered folder.

    Attributes:
        folders: by name of the operation.
        statistics: the table of statistics, if there is one.
        unknown: what is not part of the format, or may not be read.
    """

    folders: Mapping[str, OperationFolder]
    statistics: Path | None
    unknown: tuple[str, ...]


def scan_run(run: Path, bounds: Bounds) -> RunFolder:
    """Find the operations and tensor files of a run, without opening a file."""
    scan = _Scan(run, bounds)
    with entries_of(run) as entries:
        waiting: list[tuple[Operation | None, Entry]] = [(None, entry) for entry in entries]
    folders: dict[str, OperationFolder] = {}
    statistics = None
    while waiting:
        around, entry = waiting.pop()
        if around is None and entry.name == STATISTICS_FILE:
            statistics = scan.followed(entry)
        elif _is_operation(entry) and (around is None or len(around.orders) < _DEEPEST):
            folder, inner = scan.operation(around, entry)
            folders[folder.operation.name] = folder
            waiting += [(folder.operation, child) for child in inner]
        else:
            scan.pass_over(entry)
    return RunFolder(dict(sorted(folders.items())), statistics, tuple(sorted(scan.unknown)))


class _Scan:
    """Looks through a run, and remembers what it passed over."""

    def __init__(self, run: Path, bounds: Bounds) -> None:
        self._run = run
        self._bounds = bounds
        self.unknown: list[str] = []

    def operation(self, around: Operation | None, entry: Entry) -> tuple[OperationFolder, list[Entry]]:
        """Read the folder of an operation; return what else lies in it."""
        rest: list[Entry] = []
        files: list[TensorFile] = []
        parameters = None
        for inner in self._entries(entry):
            if inner.name in _PLACES.values() and inner.is_dir(follow_symlinks=False):
                files += self._tensor_files(inner)
            elif inner.name == PARAMETERS_FILE:
                parameters = self.followed(inner)
            else:
                rest.append(inner)
        operation = Operation.below(around, printable(entry.name), is_graph=any(map(_is_operation, rest)))
        files.sort(key=lambda file: (file.role, file.index, not file.is_in_place, file.path))
        return OperationFolder(operation, tuple(files), parameters), rest

    def followed(self, entry: Entry) -> Path | None:
        """Return the path of a file; None, and it is passed over, if it is none or leads out of the dump."""
        if not self._bounds.refusal(entry) and entry.is_file():
            return Path(entry.path)
        self.pass_over(entry)
        return None

    def pass_over(self, entry: Entry) -> None:
        self.unknown.append(printable(os.path.relpath(entry.path, self._run)))

    def _entries(self, entry: Entry) -> list[Entry]:
        try:
            return list_folder(entry)
        except OSError:
            self.pass_over(entry)
            return []

    def _tensor_files(self, folder: Entry) -> Iterator[TensorFile]:
        for entry in self._entries(folder):
            named = _TENSOR_FILE.fullmatch(entry.name)
            if named:
                role, index = _ROLES[named["role"]], int(named["index"])
                refused = self._bounds.refusal(entry)
                yield TensorFile(Path(entry.path), role, index, folder.name, refused)
            elif not _TILING_FILE.fullmatch(entry.name):
                self.pass_over(entry)


def _is_operation(entry: Entry) -> bool:
    return OPERATION_NAME.fullmatch(entry.name) is not None and entry.is_dir(follow_symlinks=False)


_DTYPES = {"float": "float32", "double": "float64", "bf16": "bfloat16"}
_LARGEST = 256 * 1024 * 1024
"""Size in bytes up to which a table is read."""

_MOST_ROWS = 1_000_000
"""Rows that are read, of a hundred bytes and more: a run of the largest models has a tenth of them."""

_INDEX = re.compile(r"[0-9]{1,9}", re.ASCII)
_SHAPE = re.compile(r"[0-9]{1,18}(?:x[0-9]{1,18})*", re.ASCII)


class StatisticsRow(Struct, frozen=True):
    """What is known of a tensor; statistics are None where the tool wrote N/A."""

    dtype: str
    shape: tuple[int, ...] | None
    statistics: Statistics | None


class RunStatistics(Struct, frozen=True):
    """What a table says.

    Attributes:
        rows: by the running numbers of an operation, then by tensor; of one that has several rows the last.
        operations: the operations that it names and those around them, by name.
        notes: what in it cannot be used.
    """

    rows: Mapping[tuple[int, ...], Mapping[tuple[Role, int], StatisticsRow]]
    operations: dict[str, Operation]
    notes: tuple[Message, ...] = ()


def read_statistics(file: Path) -> RunStatistics:
    """Read a table, as far as it can be read."""
    rows: defaultdict[tuple[int, ...], dict[tuple[Role, int], StatisticsRow]] = defaultdict(dict)
    operations: dict[str, Operation] = {}
    bad = count = 0
    try:
        for parsed in parse_table(file, _parsed, largest=_LARGEST, most_rows=_MOST_ROWS):
            count += 1
            if parsed is None:
                bad += 1
                continue
            line, tensor, row = parsed
            rows[line[-1].orders][tensor] = row
            for operation in line:
                operations.setdefault(operation.name, operation)
    except DamagedError as exc:
        return RunStatistics({}, {}, (exc.message,))
    repeated = count - bad - sum(map(len, rows.values()))
    notes = (
        Message.of("dumps.table.rows_left_out", most=_MOST_ROWS) if count == _MOST_ROWS else None,
        bad_rows(bad, count),
        Message.of("dumps.atb.repeated_rows", rows=repeated) if repeated else None,
    )
    return RunStatistics(rows, operations, tuple(known(notes)))


def _parsed(fields: Mapping[str, str]) -> tuple[list[Operation], tuple[Role, int], StatisticsRow]:
    """Return the operations on the way down to that of a row, which tensor it is of, and what it says."""
    path = zip(fields["Op Id"].split("_"), fields["Op Name"].split("/"), strict=True)
    labels = [f"{order}_{type_name}" for order, type_name in path]
    if not all(map(OPERATION_NAME.fullmatch, labels)) or not _INDEX.fullmatch(fields["Index"]):
        raise ValueError(labels)
    line: list[Operation] = []
    for depth, label in enumerate(labels, start=1):
        line.append(Operation.below(line[-1] if line else None, label, is_graph=depth < len(labels)))
    return line, (_ROLES[fields["Input/Output"]], int(fields["Index"])), _row(fields)


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


_ALIAS = re.compile(
    r"(?P<orders>[0-9]{1,9}(?:_[0-9]{1,9}){0,63})_(?P<role>in|out)tensor(?P<index>[0-9]{1,9})(?:_.*)?\.bin",
    re.ASCII,
)
_LONGEST_CHAIN = 8
_MOST_ARGUMENTS = 256
_NO_ROW = StatisticsRow("", None, None)


class RunTensors:
    """Describes the tensors of a run, one operation at a time.

    Attributes:
        notes: files of which something is odd or damaged, and what.
    """

    def __init__(self, run: RunFolder, statistics: RunStatistics) -> None:
        """Take what was found in the folder of the run and in its table."""
        self.notes: list[tuple[str, Message]] = []
        self._folders = run.folders
        self._by_orders = {folder.operation.orders: folder for folder in run.folders.values()}
        self._rows = statistics.rows

    def describe(self, operation: Operation) -> tuple[TensorRecord, ...]:
        """Return the inputs, arguments and outputs of an operation."""
        rows = dict(self._rows.get(operation.orders, {}))
        folder = self._folders.get(operation.name)
        files = folder.files if folder else ()
        records: list[TensorRecord] = []
        for file, occurrence in counted(files, lambda file: (file.role, file.key)):
            row = rows.pop((file.role, file.index), _NO_ROW) if file.is_in_place else _NO_ROW
            records.append(replace(self._record(operation, file, row), key=numbered(file.key, occurrence)))
            if occurrence:
                self.notes.append((_shown(operation, file), Message.of("dumps.atb.number_twice")))
        records += [_record_of_row(role, index, row) for (role, index), row in sorted(rows.items())]
        return inputs_first(records, self._arguments(operation, folder) if folder else ())

    def _record(self, operation: Operation, file: TensorFile, row: StatisticsRow) -> TensorRecord:
        name = printable(file.path.name)
        record = TensorRecord(file.role, file.key, "", None, location=DataLocation(file.path, "bin"))
        if file.refused:
            return replace(record, location=None, problem=problem_of_file(name, file.refused))
        try:
            described = describe(file_contents(file.path))
        except DamagedError as exc:
            return replace(record, problem=problem_of_file(name, exc.message))
        if described.note:
            self.notes.append((_shown(operation, file), described.note))
        statistics = described.statistics or row.statistics
        record = replace(record, dtype=described.dtype, shape=described.shape, statistics=statistics)
        holder = file if described.has_values else self._holder(described)
        if holder is None and statistics is not None:
            return replace(record, location=None)
        problem = _problem(described, holder)
        return replace(
            record,
            location=DataLocation((holder or file).path, "bin"),
            problem=problem and problem_of_file(name, problem),
        )

    def _holder(self, alias: Description) -> TensorFile | None:
        """Return the file of this run that holds the values of an alias, if there is one."""
        described = alias
        for _ in range(_LONGEST_CHAIN):
            file = self._named(described.alias)
            if file is None or file.refused:
                return None
            try:
                described = describe(file_contents(file.path))
            except DamagedError:
                return None
            if described.begin is not None:
                is_same = (described.dtype, described.shape) == (alias.dtype, alias.shape)
                return file if is_same else None
        return None

    def _named(self, alias: str) -> TensorFile | None:
        match = _ALIAS.fullmatch(alias)
        if match is None:
            return None
        folder = self._by_orders.get(tuple(map(int, match["orders"].split("_"))))
        wanted = _ROLES[match["role"]], int(match["index"])
        files = folder.files if folder else ()
        return next((file for file in files if (file.role, file.index) == wanted and file.is_in_place), None)

    def _arguments(self, operation: Operation, folder: OperationFolder) -> list[TensorRecord]:
        """Return what an operation was told: what lies beside its tensors, else what the topology says."""
        told: Any = operation.parameters
        where = f"{operation.name}/{PARAMETERS_FILE}"
        if folder.parameters is not None:
            try:
                told = read_json(folder.parameters).value
            except DumpUnreadableError as exc:
                self.notes.append((where, exc.message))
        arguments = list(islice(_flattened(told), _MOST_ARGUMENTS + 1))
        if len(arguments) > _MOST_ARGUMENTS:
            self.notes.append((where, Message.of("dumps.atb.too_many_arguments", most=_MOST_ARGUMENTS)))
        return [
            TensorRecord(Role.INPUT, key, type(value).__name__, (), scalar=str(value))
            for key, value in arguments[:_MOST_ARGUMENTS]
        ]


def _problem(described: Description, holder: TensorFile | None) -> Message | None:
    """Say why the values of a file, or of the one that it names, cannot be read."""
    if not described.alias:
        return described.unreadable or described.blocks
    if holder is None:
        return Message.of("dumps.atb.values_not_in_run", file=quoted(described.alias))
    return described.blocks


def _shown(operation: Operation, file: TensorFile) -> str:
    return f"{operation.name}/{file.place}/{printable(file.path.name)}"


def _record_of_row(role: Role, index: int, row: StatisticsRow) -> TensorRecord:
    """Describe a tensor of which there is no file."""
    problem = None if row.statistics else Message.of("dumps.atb.nothing_dumped")
    return TensorRecord(role, str(index), row.dtype, row.shape, row.statistics, problem=problem)


def _flattened(told: object) -> Iterator[tuple[str, object]]:
    """Yield the values in nested objects and lists by their dotted keys: "normParam.epsilon"."""
    waiting = [("", told)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict | list):
            inner = items_of(value)
            waiting += reversed([(f"{key}.{name}" if key else name, child) for name, child in inner])
        elif key and value is not None:
            yield key, value
