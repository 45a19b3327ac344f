"""Read one execution of a compiled graph: a file for each operator, with all its inputs and outputs.

    MatMulV2.MatMul.2.7.1734070081497001
    └ type   └ name │ └ stream └ time in microseconds
                    └ task

A name too long for the file system is replaced by a number; `mapping.csv` beside it says by which.
"""

import csv
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, TensorHeader, file_contents
from firstdrift.dumps.containers.ge_dump import describe
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import Listed, list_named, problem_of_file
from firstdrift.dumps.storage.tensor_files import NO_TENSOR, no_header, record_of
from firstdrift.dumps.torchair.layout import GE_FILE
from firstdrift.dumps.torchair.operator import Notes, Operator, Operators, notes_of_unknown, split_number
from firstdrift.dumps.unique_labels import distinct, numbered
from firstdrift.model.tensor import Role, TensorRecord
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

    @classmethod
    def of(cls, file: Listed, match: re.Match[str]) -> "_NamedFile":
        name, type_name = printable(match["name"]), printable(match["type"])
        return cls(file, name, type_name, int(match["task"]), int(match["time"]))


def read_ge(folder: Path, bounds: Bounds) -> Operators:
    """Read the headers of all files of a folder.

    Of several files of one operator, the largest is the operator; the others are listed beside it.
    """
    notes: Notes = []
    long_names = _long_names(folder / _MAPPING, bounds, notes)
    named, unknown = list_named(folder, bounds, lambda name: GE_FILE.fullmatch(long_names.get(name, name)))
    files: defaultdict[str, list[_NamedFile]] = defaultdict(list)
    for file, match in named:
        files[printable(match["name"])].append(_NamedFile.of(file, match))
    notes += notes_of_unknown([name for name in unknown if name != _MAPPING])
    operators = [timed for name, group in files.items() for timed in _operators(name, group, notes)]
    in_order = sorted(operators, key=lambda timed: (timed[0], timed[1].name))
    return Operators(_with_distinct_names([operator for _, operator in in_order], notes), notes)


def _with_distinct_names(operators: list[Operator], notes: Notes) -> list[Operator]:
    """Tell operators apart whose headers give one name, though their files have several."""
    taken: set[str] = set()
    names = [distinct(operator.name, taken) for operator in operators]
    pairs = list(zip(operators, names, strict=True))
    doubles = (operator.name for operator, name in pairs if operator.name != name)
    notes += [("", Message.of("dumps.torchair.name_twice", name=double)) for double in doubles]
    return [
        operator if operator.name == name else replace(operator, name=name, is_whole=False)
        for operator, name in pairs
    ]


def _operators(
    name: str, files: list[_NamedFile], notes: Notes
) -> Iterator[tuple[tuple[int, int], Operator]]:
    """Yield the operators of files of one name, with the time and the task by which they are sorted."""
    by_size = sorted(files, key=lambda named: (-named.file.size, named.time, named.task, named.file.path))
    for number, named in enumerate(by_size):
        if number:
            twice = Message.of("dumps.torchair.file_twice", name=name)
            notes.append((printable(named.file.path.name), twice))
        in_header, tensors = _read(named.file, notes)
        own = in_header if _in_file_names(in_header) == _in_file_names(name) else name
        path, call = split_number(own)
        operator = Operator(
            name=numbered(own, number),
            path=path,
            call=call,
            type_name=named.type_name,
            time=named.time,
            tensors=tensors,
            is_whole=number == 0,
        )
        yield (named.time, named.task), operator


def _in_file_names(name: str) -> str:
    """Return a name as files have it, which cannot hold all that it may be made of."""
    return _NOT_IN_FILE_NAMES.sub("_", name)


def _read(file: Listed, notes: Notes) -> tuple[str, tuple[TensorRecord, ...]]:
    """Return the name that the header of a file gives, and its tensors."""
    path = file.path
    if file.refusal:
        refused = record_of(no_header(file.refusal), path, "ge", Role.OUTPUT, "0", is_refused=True)
        return "", (refused,)
    try:
        described = describe(file_contents(path))
    except DamagedError as exc:
        header = TensorHeader("output.0", "", None, problem=exc.message)
        return "", (record_of(header, path, "ge", Role.OUTPUT, "0"),)
    if not described.tensors:
        notes.append((printable(path.name), NO_TENSOR))
    return described.name, tuple(
        record_of(
            replace(tensor.header, problem=tensor.problem and problem_of_file(tensor.entry, tensor.problem)),
            path,
            "ge",
            tensor.role,
            str(tensor.index),
        )
        for tensor in described.tensors
    )


def _long_names(file: Path, bounds: Bounds, notes: Notes) -> dict[str, str]:
    """Return the names that were too long for files, by what stands for them."""
    if not os.path.lexists(file) or bounds.refusal(file):
        return {}
    try:
        contents = file_contents(file)
        if len(contents) > _LARGEST_MAPPING:
            raise DamagedError(Message.of("dumps.torchair.mapping_too_large"))  # noqa: TRY301
        rows = csv.reader(io.StringIO(contents[:].decode("utf-8", "backslashreplace"), newline=""))
        return {row[0].strip(): row[1].strip() for row in rows if len(row) > 1}
    except (DamagedError, csv.Error) as exc:
        damage = exc.message if isinstance(exc, DamagedError) else verbatim(str(exc))
        notes.append((_MAPPING, joined(damage, Message.of("dumps.torchair.names_unknown"))))
        return {}
