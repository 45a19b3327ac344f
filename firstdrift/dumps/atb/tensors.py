"""Describe the tensors of a run of an ATB dump: from their files, and from the table of statistics.

A file without values may name another of the same run that holds them (`data=10_0_1_outtensor0.bin`:
output 0 of the operation with the running numbers 10, 0, 1).
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from firstdrift.dumps.atb.run import PARAMETERS_FILE, OperationFolder, RunFolder, TensorFile
from firstdrift.dumps.atb.statistics import RunStatistics, StatisticsRow
from firstdrift.dumps.atb.topology import Operation
from firstdrift.dumps.containers.atb_bin import Description, describe
from firstdrift.dumps.containers.contents import DamagedError, file_contents, quoted
from firstdrift.dumps.nodes import counted, inputs_first, numbered
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.json_file import items_of, read_json
from firstdrift.dumps.storage.listed_files import problem_of_file
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_ALIAS = re.compile(
    r"(?P<orders>[0-9]{1,9}(?:_[0-9]{1,9}){0,63})_(?P<role>in|out)tensor(?P<index>[0-9]{1,9})(?:_.*)?\.bin",
    re.ASCII,
)
_ROLES = {"in": Role.INPUT, "out": Role.OUTPUT}
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
        self._rows: dict[tuple[int, ...], dict[tuple[Role, int], StatisticsRow]] = defaultdict(dict)
        for key, row in statistics.rows.items():
            self._rows[key.orders][key.role, key.number] = row

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
