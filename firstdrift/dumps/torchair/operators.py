"""Read the operators in the folder of one execution of a graph, whichever form of the graph it is of.

FX: a `.npy` file for each input and output of each node.

    add_1-aten.add.Tensor.INPUT.0.20250101000000000002.npy
    └ node, and its operator with the overload

GE: a file for each operator, with all its inputs and outputs.

    MatMulV2.MatMul.2.7.1734070081497001
    └ type   └ name │ └ stream └ time in microseconds
                    └ task

A name too long for the file system is replaced by a number; `mapping.csv` beside it says by which.
"""

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, TensorHeader, file_contents
from firstdrift.dumps.containers.ge_dump import GeTensor, describe
from firstdrift.dumps.nodes import counted, distinct, numbered
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import Listed, list_named, not_part_of_a_dump, problem_of_file
from firstdrift.dumps.storage.tensor_files import NO_TENSOR, no_header, record_of, records_of_file
from firstdrift.dumps.torchair.layout import FX_FILE, GE_FILE
from firstdrift.groups import gathered
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message, joined, verbatim

Notes = list[tuple[str, Message]]
"""Files of which something is odd or damaged, and what; "" for the folder itself."""

_NUMBERED = re.compile(r"(?P<stem>.*[^0-9_])_(?P<number>0|[1-9][0-9]{0,8})", re.ASCII | re.DOTALL)
_NOT_IN_FILE_NAMES = re.compile(r"[./\\\s]")
_MAPPING = "mapping.csv"
_LARGEST_MAPPING = 64 * 1024 * 1024


class Operator(Struct, frozen=True):
    """One execution of an operator.

    Attributes:
        name: as the dump names it; unique in its graph.
        path: its name without the number at its end ("Add_1" is a call of "Add"), or its operator.
        call: that number.
        type_name: which operator it is: "aten.mm", "MatMulV2".
        time: when it ran, as the dump counts.
        tensors: inputs, then outputs.
        is_whole: whether its name stands for it alone; False for a further file of the same name.
    """

    name: str
    path: str
    call: int
    type_name: str
    time: tuple[int, ...]
    tensors: tuple[TensorRecord, ...]
    is_whole: bool = True


class _Saved(NamedTuple):
    """A file of the FX graph and what its name says; inputs come before outputs."""

    role: Role
    number: int
    time: int
    file: Listed


_Files = list[tuple[Listed, re.Match[str]]]


def read_fx(folder: Path, bounds: Bounds) -> tuple[list[Operator], Notes]:
    """Read the headers of all files of a folder; operators come in the order of their times."""
    named, unknown = list_named(folder, bounds, FX_FILE.fullmatch)
    notes = _notes_of_unknown(unknown)
    by_node = gathered((printable(match["node"]), (file, match)) for file, match in named)
    return _in_order([_fx_operator(name, files, notes) for name, files in by_node.items()]), notes


def _fx_operator(name: str, files: _Files, notes: Notes) -> Operator:
    saved = sorted(
        (
            _Saved(Role(match["role"].lower()), int(match["index"]), int(match["time"]), file)
            for file, match in files
        ),
        key=lambda one: one[:3],
    )
    records: list[TensorRecord] = []
    for (role, number, _, file), occurrence in counted(saved, lambda one: one[:2]):
        if occurrence:
            twice = Message.of("dumps.file.tensor_twice", tensor=f"{role}.{number}", node=name)
            notes.append((printable(file.path.name), twice))
        key = numbered(str(number), occurrence)
        records += records_of_file(file.path, "npy", role, key, file.refusal)
    node, _, target = name.partition("-")
    base = target.rpartition(".")[0] if target.count(".") > 1 else target
    time = min(one.time for one in saved)
    return Operator(name, target or name, _split_number(node)[1], base or name, (time,), tuple(records))


def read_ge(folder: Path, bounds: Bounds) -> tuple[list[Operator], Notes]:
    """Read the headers of all files of a folder; operators come in the order of their times.

    Of several files of one operator, the largest is the operator; the others are listed beside it.
    """
    notes: Notes = []
    long_names = _long_names(folder / _MAPPING, bounds, notes)
    named, unknown = list_named(folder, bounds, lambda name: GE_FILE.fullmatch(long_names.get(name, name)))
    notes += _notes_of_unknown([name for name in unknown if name != _MAPPING])
    by_name = gathered((printable(match["name"]), (file, match)) for file, match in named)
    operators = [
        operator for name, files in by_name.items() for operator in _ge_operators(name, files, notes)
    ]
    return list(_with_distinct_names(_in_order(operators), notes)), notes


def _ge_operators(name: str, files: _Files, notes: Notes) -> Iterator[Operator]:
    by_size = sorted(files, key=lambda saved: (-saved[0].size, _time(saved[1]), saved[0].path))
    for number, (file, match) in enumerate(by_size):
        if number:
            notes.append((printable(file.path.name), Message.of("dumps.torchair.file_twice", name=name)))
        in_header, tensors = _read(file, notes)
        own = in_header if _in_file_names(in_header) == _in_file_names(name) else name
        type_name, time = printable(match["type"]), _time(match)
        yield Operator(
            numbered(own, number), *_split_number(own), type_name, time, tensors, is_whole=not number
        )


def _time(match: re.Match[str]) -> tuple[int, int]:
    return int(match["time"]), int(match["task"])


def _in_order(operators: list[Operator]) -> list[Operator]:
    return sorted(operators, key=lambda operator: (operator.time, operator.name))


def _notes_of_unknown(names: Sequence[str]) -> Notes:
    """Say that entries of the folder were passed over, if any were."""
    return [("", not_part_of_a_dump(names))] if names else []


def _split_number(name: str) -> tuple[str, int]:
    """Take the number off the end of a name: "Add_1" is ("Add", 1), "MatMul" is ("MatMul", 0)."""
    found = _NUMBERED.fullmatch(name)
    return (found["stem"], int(found["number"])) if found else (name, 0)


def _with_distinct_names(operators: list[Operator], notes: Notes) -> Iterator[Operator]:
    """Tell operators apart whose headers give one name, though their files have several."""
    taken: set[str] = set()
    for operator in operators:
        name = distinct(operator.name, taken)
        if name == operator.name:
            yield operator
        else:
            notes.append(("", Message.of("dumps.torchair.name_twice", name=operator.name)))
            yield replace(operator, name=name, is_whole=False)


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
    return described.name, tuple(_record(tensor, path) for tensor in described.tensors)


def _record(tensor: GeTensor, file: Path) -> TensorRecord:
    problem = tensor.problem and problem_of_file(tensor.entry, tensor.problem)
    return record_of(replace(tensor.header, problem=problem), file, "ge", tensor.role, str(tensor.index))


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
