"""Read one execution of a compiled graph: a file for each operator, with all its inputs and outputs.

    MatMulV2.MatMul.2.7.1734070081497001
    └ type   └ name │ └ stream └ time in microseconds
                    └ task

A name too long for the file system is replaced by a number; `mapping.csv` beside it says by which.
"""

import csv
import io
import re
from collections import defaultdict
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, file_contents
from firstdrift.dumps.containers.ge_dump import GeFile, describe
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import Listed, list_files, not_part_of_a_dump, problem_of_file
from firstdrift.dumps.torchair.layout import GE_FILE
from firstdrift.dumps.torchair.operator import Operator, Operators, split_number
from firstdrift.dumps.unique_labels import distinct
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message, joined, verbatim

_NOT_IN_FILE_NAMES = re.compile(r"[./\\\s]")
_MAPPING = "mapping.csv"
_LARGEST_MAPPING = 64 * 1024 * 1024


class _NamedFile(Struct, frozen=True):
    """A file and what its name says."""

    file: Listed
    name: str
    type_name: str
    task: int
    time: int


def read_ge(folder: Path, bounds: Bounds) -> Operators:
    """Read the headers of all files of a folder.

    Of several files of one operator, the largest is the operator; the others are listed beside it.

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    entries = list_files(folder, bounds)
    notes: list[tuple[str, Message]] = []
    long_names = _long_names(entries, notes)
    files: defaultdict[str, list[_NamedFile]] = defaultdict(list)
    unknown: list[str] = []
    for entry in entries:
        name = entry.path.name
        match = GE_FILE.fullmatch(long_names.get(name, name)) if not entry.is_folder else None
        if match is not None:
            named = _NamedFile(
                entry,
                printable(match["name"]),
                printable(match["type"]),
                int(match["task"]),
                int(match["time"]),
            )
            files[named.name].append(named)
        elif name != _MAPPING:
            unknown.append(printable(name))
    if unknown:
        notes.append(("", not_part_of_a_dump(unknown)))
    found = [operator for name, group in files.items() for operator in _operators(name, group, notes)]
    operators = [operator for *_, operator in sorted(found, key=lambda one: one[:3])]
    return Operators(_with_distinct_names(operators, notes), notes)


def _with_distinct_names(operators: list[Operator], notes: list[tuple[str, Message]]) -> list[Operator]:
    """Tell operators apart whose headers give one name, though their files have several."""
    taken: set[str] = set()
    distinct_ones: list[Operator] = []
    for operator in operators:
        name = distinct(operator.name, taken)
        if name != operator.name:
            notes.append(("", Message.of("dumps.torchair.name_twice", name=operator.name)))
            operator = replace(operator, name=name, is_whole=False)  # noqa: PLW2901
        distinct_ones.append(operator)
    return distinct_ones


def _operators(
    name: str, files: list[_NamedFile], notes: list[tuple[str, Message]]
) -> list[tuple[int, int, str, Operator]]:
    files = sorted(files, key=lambda one: (-one.file.size, one.time, one.task, one.file.path))
    found = []
    for number, one in enumerate(files):
        if number:
            notes.append((printable(one.file.path.name), Message.of("dumps.torchair.file_twice", name=name)))
        said, tensors = _read(one.file, notes)
        own = said if _in_file_names(said) == _in_file_names(name) else name
        path, call = split_number(own)
        operator = Operator(
            name=f"{own}#{number}" if number else own,
            path=path,
            call=call,
            type_name=one.type_name,
            time=one.time,
            tensors=tensors,
            is_whole=number == 0,
        )
        found.append((one.time, one.task, operator.name, operator))
    return found


def _in_file_names(name: str) -> str:
    """Return a name as files have it, which cannot hold all that it may be made of."""
    return _NOT_IN_FILE_NAMES.sub("_", name)


def _read(file: Listed, notes: list[tuple[str, Message]]) -> tuple[str, tuple[TensorRecord, ...]]:
    """Return the name that the header of a file gives, and its tensors."""
    name = printable(file.path.name)
    if file.refusal:
        return "", (TensorRecord(Role.OUTPUT, "0", "", None, problem=problem_of_file(name, file.refusal)),)
    try:
        said: GeFile = describe(file_contents(file.path))
    except DamagedError as exc:
        location = DataLocation(file.path, "ge", "output.0")
        problem = problem_of_file(name, exc.message)
        return "", (TensorRecord(Role.OUTPUT, "0", "", None, location=location, problem=problem),)
    if not said.tensors:
        notes.append((name, Message.of("dumps.file.no_tensor")))
    return said.name, tuple(
        TensorRecord(
            tensor.role,
            str(tensor.index),
            tensor.dtype,
            tensor.shape,
            location=DataLocation(file.path, "ge", tensor.entry),
            problem=tensor.problem
            and problem_of_file(name, problem_of_file(f"{tensor.role}.{tensor.index}", tensor.problem)),
        )
        for tensor in said.tensors
    )


def _long_names(entries: list[Listed], notes: list[tuple[str, Message]]) -> dict[str, str]:
    """Return the names that were too long for files, by what stands for them."""
    file = next((entry for entry in entries if entry.path.name == _MAPPING and not entry.refusal), None)
    if file is None:
        return {}
    try:
        contents = file_contents(file.path)
        if len(contents) > _LARGEST_MAPPING:
            raise DamagedError(Message.of("dumps.torchair.mapping_too_large"))  # noqa: TRY301
        rows = csv.reader(io.StringIO(contents[:].decode("utf-8", "backslashreplace"), newline=""))
        return {row[0].strip(): row[1].strip() for row in rows if len(row) > 1}
    except (DamagedError, csv.Error) as exc:
        damage = exc.message if isinstance(exc, DamagedError) else verbatim(str(exc))
        notes.append((_MAPPING, joined(damage, Message.of("dumps.torchair.names_unknown"))))
        return {}
