"""Read one execution of an FX graph: a `.npy` file for each input and output of each node.

add_1-aten.add.Tensor.INPUT.0.20250101000000000002.npy
└ node, and its operator with the overload
"""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import Listed, list_named
from firstdrift.dumps.storage.tensor_files import records_of_file
from firstdrift.dumps.torchair.layout import FX_FILE
from firstdrift.dumps.torchair.operator import Notes, Operator, Operators, notes_of_unknown, split_number
from firstdrift.dumps.unique_labels import numbered, occurrences
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

_ROLES = {"INPUT": Role.INPUT, "OUTPUT": Role.OUTPUT}


class _Saved(NamedTuple):
    """A file and what its name says; inputs come before outputs."""

    role: Role
    number: int
    time: int
    file: Listed


def read_fx(folder: Path, bounds: Bounds) -> Operators:
    """Read the headers of all files of a folder."""
    named, unknown = list_named(folder, bounds, FX_FILE.fullmatch)
    files: defaultdict[str, list[_Saved]] = defaultdict(list)
    for file, match in named:
        saved = _Saved(_ROLES[match["role"]], int(match["index"]), int(match["time"]), file)
        files[printable(match["node"])].append(saved)
    notes = notes_of_unknown(unknown)
    operators = [_operator(name, saved, notes) for name, saved in files.items()]
    return Operators(sorted(operators, key=lambda operator: (operator.time, operator.name)), notes)


def _operator(name: str, files: list[_Saved], notes: Notes) -> Operator:
    files = sorted(files, key=lambda saved: saved[:3])
    records: list[TensorRecord] = []
    earlier = occurrences((saved.role, saved.number) for saved in files)
    for (role, number, _, file), occurrence in zip(files, earlier, strict=True):
        if occurrence:
            twice = Message.of("dumps.file.tensor_twice", tensor=f"{role}.{number}", node=name)
            notes.append((printable(file.path.name), twice))
        key = numbered(str(number), occurrence)
        records += records_of_file(file.path, "npy", role, key, file.refusal)
    node, _, target = name.partition("-")
    base = target.rpartition(".")[0] if target.count(".") > 1 else target
    return Operator(
        name=name,
        path=target or name,
        call=split_number(node)[1],
        type_name=base or name,
        time=min(saved.time for saved in files),
        tensors=tuple(records),
    )
