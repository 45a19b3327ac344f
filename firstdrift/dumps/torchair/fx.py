"""Read one execution of an FX graph: a `.npy` file for each input and output of each node.

add_1-aten.add.Tensor.INPUT.0.20250101000000000002.npy
└ node, and its operator with the overload
"""

from collections import defaultdict
from pathlib import Path

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import Listed, list_files, not_part_of_a_dump, problem_of_file
from firstdrift.dumps.storage.tensor_data import read_headers
from firstdrift.dumps.torchair.layout import FX_FILE
from firstdrift.dumps.torchair.operator import Operator, Operators, split_number
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_ROLES = {"INPUT": Role.INPUT, "OUTPUT": Role.OUTPUT}
_PLACES = {Role.INPUT: 0, Role.OUTPUT: 1}


def read_fx(folder: Path, bounds: Bounds) -> Operators:
    """Read the headers of all files of a folder.

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    files: defaultdict[str, list[tuple[Role, int, int, Listed]]] = defaultdict(list)
    unknown: list[str] = []
    for file in list_files(folder, bounds):
        match = FX_FILE.fullmatch(file.path.name) if not file.is_folder else None
        if match is None:
            unknown.append(printable(file.path.name))
            continue
        place = _ROLES[match["role"]], int(match["index"]), int(match["time"])
        files[printable(match["node"])].append((*place, file))
    notes = [("", not_part_of_a_dump(unknown))] if unknown else []
    operators = [_operator(name, found, notes) for name, found in files.items()]
    return Operators(sorted(operators, key=lambda one: (one.time, one.name)), notes)


def _operator(
    name: str, files: list[tuple[Role, int, int, Listed]], notes: list[tuple[str, Message]]
) -> Operator:
    records: list[TensorRecord] = []
    counts: defaultdict[tuple[Role, int], int] = defaultdict(int)
    for role, index, _, file in sorted(files, key=lambda one: (_PLACES[one[0]], *one[1:3])):
        count = counts[role, index]
        counts[role, index] += 1
        if count:
            notes.append((printable(file.path.name), _twice(f"{role}.{index}", name)))
        records.append(_record(role, f"{index}#{count}" if count else str(index), file))
    node, _, target = name.partition("-")
    base = target.rpartition(".")[0] if target.count(".") > 1 else target
    return Operator(
        name=name,
        path=target or name,
        call=split_number(node)[1],
        type_name=base or name,
        time=min(time for _, _, time, _ in files),
        tensors=tuple(records),
    )


def _twice(tensor: str, node: str) -> Message:
    return Message.of("dumps.file.tensor_twice", tensor=tensor, node=node)


def _record(role: Role, key: str, file: Listed) -> TensorRecord:
    name = printable(file.path.name)
    if file.refusal:
        return TensorRecord(role, key, "", None, problem=problem_of_file(name, file.refusal))
    location = DataLocation(file.path, "npy")
    try:
        (header,) = read_headers(file.path, "npy")
    except TensorUnreadableError as exc:
        return TensorRecord(
            role, key, "", None, location=location, problem=problem_of_file(name, exc.message)
        )
    return TensorRecord(role, key, header.dtype, header.shape, location=location)
