"""What the processes of an ATB dump wrote, and which operations their models consist of.

Any of the folders may be named:

    msit                                       msprobe
    msit_dump_20250101_000000/                 atb_dump_data/
    ├── model/4242/*.json                      ├── info/model/0_4242/*.json
    └── tensors/                               └── data/
        └── 0_4242/   one device and process       └── 0_4242/
            └── 3/    one run of the model             └── 3/
                └── 20_Decoder_layer/after/outtensor0.bin

JSON files beside the tensors say which operations there are:

    {"modelName": "DecoderModel_Decoder", "nodes": [
       {"opName": "WordEmbedding_16", "opType": "WordEmbedding", "param": "", "nodes": […]}, …]}

The number at the end of the first name (16) is where the running numbers of the model begin. Operations are
the nodes of a run, with those that are known from its folders and statistics alone.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    MOST_ENTRIES,
    files_ending,
    is_file,
    printable,
    process_folders,
    ranks_of,
    sub_folders,
)
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import gathered
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Problem
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message

STATISTICS_FILE = "statistic.csv"
OPERATION_NAME = re.compile(r"(?P<order>0|[1-9][0-9]{0,8})_(?P<type>[^/\0]+)", re.ASCII)
"""Name of the folder of an operation: its running number and its type."""

_PROCESS_NAME = re.compile(r"(?P<device>[0-9]{1,9})_(?P<pid>[0-9]{1,18})", re.ASCII)
_RUN_NAME = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


class AtbLayout(Struct, frozen=True):
    """Where a tool puts what it dumps.

    Attributes:
        holder: path of the folder of processes in the dump: ("tensors",).
        models: path of the topologies of a process in the dump, with {process} and {pid}.
        layers: the same for the topologies of single operations.
    """

    holder: tuple[str, ...]
    models: str
    layers: str

    def is_holder(self, folder: Path) -> bool:
        """Tell whether a folder is named like one that holds processes."""
        return folder.parts[-len(self.holder) :] == self.holder


class AtbProcess(Struct, frozen=True):
    """What one process wrote.

    Attributes:
        folder: holds its runs.
        rank: its rank among others; None if it is alone.
        runs: numbered folders, one for each run of the model, in ascending order.
        bounds: the folder of the dump, which no link may lead out of.
        models: folder of the topologies of its models.
        layers: folder of the topologies of single operations.
    """

    folder: Path
    rank: int | None
    runs: tuple[Path, ...]
    bounds: Bounds
    models: Path
    layers: Path


def find_processes(path: Path, layout: AtbLayout) -> tuple[AtbProcess, ...]:
    """Return the processes of the one dump at, above or below a path; none if there is no such dump."""
    path = Path(os.path.realpath(path))
    if _is_process(path.parent, layout) and _is_run(path):
        return (process_at(path.parent, layout),)
    folders = process_folders(
        path, lambda folder: _is_process(folder, layout), layout.is_holder, _own_folders
    )
    ranks = ranks_of([int(folder.name.partition("_")[0]) for folder in folders])
    return tuple(process_at(folder, layout, rank) for folder, rank in zip(folders, ranks, strict=True))


def process_at(folder: Path, layout: AtbLayout, rank: int | None = None) -> AtbProcess:
    """Describe the process that wrote a folder."""
    runs = [entry for entry in _own_folders(folder) if _RUN_NAME.fullmatch(entry.name)]
    root = folder.parent.parent
    names = {"process": folder.name, "pid": folder.name.rpartition("_")[2]}
    return AtbProcess(
        folder=folder,
        rank=rank,
        runs=tuple(sorted(runs, key=lambda run: int(run.name))),
        bounds=Bounds(root),
        models=root / layout.models.format(**names),
        layers=root / layout.layers.format(**names),
    )


def operation_folders(folder: Path) -> list[Path]:
    """Return the folders of operations in a folder by name."""
    return [entry for entry in _own_folders(folder) if OPERATION_NAME.fullmatch(entry.name)]


def _own_folders(folder: Path, most_entries: int | None = None) -> list[Path]:
    """Return the folders in a folder by name; links to folders are none of them."""
    return [entry for entry in sub_folders(folder, most_entries) if not entry.is_symlink()]


def _is_process(folder: Path, layout: AtbLayout) -> bool:
    return (
        layout.is_holder(folder.parent)
        and _PROCESS_NAME.fullmatch(folder.name) is not None
        and any(map(_is_run, _own_folders(folder, MOST_ENTRIES)))
    )


def _is_run(folder: Path) -> bool:
    if _RUN_NAME.fullmatch(folder.name) is None:
        return False
    entries = _own_folders(folder, MOST_ENTRIES)
    return is_file(folder / STATISTICS_FILE) or any(OPERATION_NAME.fullmatch(entry.name) for entry in entries)


_TRANSDATA_FILE = "TransdataOperation_0.json"
_LONGEST_LABEL = 255
_DEEPEST = 64
_NUMBER_AT_END = re.compile(r"_(0|[1-9][0-9]{0,8})$", re.ASCII)
_Parsed = TypeVar("_Parsed")


class Operation(Struct, frozen=True):
    """An operation of a model.

    Attributes:
        name: path of its folder in a run: "20_Decoder_layer/0_Attention".
        orders: its running number and those of the operations around it, outermost first: (20, 0).
        type_name: "Attention".
        is_graph: whether it consists of operations.
        parameters: as given to the operation; {} where unknown.
    """

    name: str
    orders: tuple[int, ...]
    type_name: str
    is_graph: bool
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def below(cls, around: "Operation | None", label: str, **further: Any) -> "Operation":  # noqa: ANN401
        """Return the operation whose folder, in that of another, has a name: "0_Attention"."""
        order, _, type_name = label.partition("_")
        further = {"is_graph": False} | further
        if around is None:
            return cls(label, (int(order),), type_name, **further)
        return cls(f"{around.name}/{label}", (*around.orders, int(order)), type_name, **further)

    @property
    def parent(self) -> str | None:
        """Name of the operation around it."""
        return self.name.rpartition("/")[0] or None


class Topology(Struct, frozen=True):
    """What the topology files of a process say.

    Attributes:
        operations: of all models, by name.
        starts: running number of the first operation of each model, ascending; empty if unknown.
        models: names of the models, in that order.
        problems: files that could not be used.
    """

    operations: Mapping[str, Operation]
    starts: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_topology(process: AtbProcess) -> Topology:
    """Read the topology of a process; what cannot be used is a problem."""
    shift = 1 if (process.layers / _TRANSDATA_FILE).is_file() else 0
    problems: list[Problem] = []
    found = _read(process.models, process.bounds, partial(_model, shift), "model", problems)
    models = sorted(found, key=lambda model: model.start)
    starts = tuple(model.start for model in models)
    names = tuple(model.name for model in models)
    if len(set(starts)) < len(starts):
        reason = Message.of("dumps.atb.same_numbers", models=names)
        return Topology({}, problems=(*problems, Problem(_shown(process.models), reason)))
    if models:
        operations = {operation.name: operation for model in models for operation in model.operations}
        return Topology(operations, starts, names, tuple(problems))
    return _topology_of_layers(process, shift, problems)


class _NoTopologyError(ValueError):
    """A JSON file holds something else."""


class _Model(NamedTuple):
    name: str
    start: int
    operations: list[Operation]


def _topology_of_layers(process: AtbProcess, shift: int, problems: list[Problem]) -> Topology:
    """Put the topologies of single operations together where there are none of models."""
    layers = _read(process.layers, process.bounds, partial(_layer, shift), "operation", problems)
    operations = {operation.name: operation for layer in layers for operation in layer}
    source = "operations_and_folders" if operations else "folders"
    reason = Message.of(f"dumps.atb.tree_from_{source}")
    return Topology(operations, problems=(*problems, Problem(_shown(process.models), reason)))


def _read(
    folder: Path, bounds: Bounds, parse: Callable[[Any], _Parsed], what: str, problems: list[Problem]
) -> Iterator[_Parsed]:
    """Yield what was made of each JSON file of a folder; those that cannot be used are problems."""
    for file in files_ending(folder, ".json"):
        if file.name == _TRANSDATA_FILE or not file.is_file():
            continue
        try:
            yield parse(read_json(bounds.require(file)).value)
        except DumpUnreadableError as exc:
            problems.append(Problem(_shown(file), exc.message))
        except _NoTopologyError:
            problems.append(Problem(_shown(file), Message.of(f"dumps.atb.no_{what}_topology")))


def _layer(shift: int, value: Any) -> list[Operation]:  # noqa: ANN401 (whatever the JSON file holds)
    return _operations([(_number(value) + shift, value)])


def _model(shift: int, value: Any) -> _Model:  # noqa: ANN401
    try:
        name, nodes = value["modelName"], value["nodes"]
        start = _number(nodes[0]) + shift
    except (KeyError, TypeError, IndexError) as exc:
        raise _NoTopologyError from exc
    if not isinstance(name, str) or not isinstance(nodes, list):
        raise _NoTopologyError
    return _Model(name, start, _operations(list(enumerate(nodes, start))))


def _number(node: Any) -> int:  # noqa: ANN401
    """Return the running number at the end of an operation's name, 0 if there is none."""
    name = node.get("opName") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise _NoTopologyError
    number = _NUMBER_AT_END.search(name)
    return int(number[1]) if number else 0


def _operations(nodes: list[tuple[int, Any]]) -> list[Operation]:
    """List operations and those they consist of, given by running number."""
    found: list[Operation] = []
    waiting: list[tuple[Operation | None, int, Any]] = [(None, order, node) for order, node in nodes]
    while waiting:
        parent, order, node = waiting.pop()
        operation, inner = _operation(parent, order, node)
        found.append(operation)
        waiting += [(operation, at, child) for at, child in enumerate(inner)]
    return found


def _operation(parent: Operation | None, order: int, node: Any) -> tuple[Operation, list[Any]]:  # noqa: ANN401
    fields = node if isinstance(node, dict) else {}
    inner, parameters = fields.get("nodes") or [], fields.get("param")
    label = f"{order}_{fields.get('opType')}"
    is_named = isinstance(fields.get("opType"), str) and OPERATION_NAME.fullmatch(label)
    if not is_named or not isinstance(inner, list) or len(label) > _LONGEST_LABEL:
        raise _NoTopologyError
    parameters = parameters if isinstance(parameters, dict) else {}
    operation = Operation.below(parent, label, is_graph=bool(inner), parameters=parameters)
    if len(operation.orders) > _DEEPEST:
        raise _NoTopologyError
    return operation, inner


def make_nodes(
    operations: Mapping[str, Operation], tensors: Mapping[str, tuple[TensorRecord, ...]]
) -> tuple[Node, ...]:
    """Make a node of each operation, in the order in which they finished; each parent is among them."""
    paths = _paths(operations.values())
    around = {operation.parent for operation in operations.values()}
    in_order = sorted(operations.values(), key=lambda operation: ((*operation.orders, inf), operation.name))
    return tuple(
        Node(
            name=operation.name,
            path=paths[operation.name],
            kind=NodeKind.MODULE if operation.is_graph or operation.name in around else NodeKind.API,
            type_name=operation.type_name,
            direction=Direction.FORWARD,
            call=0,
            order=at,
            parent=operation.parent,
            tensors=tensors.get(operation.name, ()),
        )
        for at, operation in enumerate(in_order)
    )


def _paths(operations: Iterable[Operation]) -> dict[str, str]:
    """Return the dotted path of each operation, by name.

    It goes by types; siblings of one type are numbered, at the top level as elements of a list:
    "20_Decoder_layer/0_Attention/4_LinearNoQuant" is "Decoder_layer.2.Attention.LinearNoQuant".
    """
    in_order = sorted(operations, key=lambda operation: (operation.orders, operation.name))
    siblings = gathered(((operation.parent, operation.type_name), operation.name) for operation in in_order)
    paths: dict[str, str] = {}
    for (parent, type_name), names in siblings.items():
        path = f"{paths[parent]}.{type_name}" if parent else type_name
        joint = "_" if parent else "."
        for at, name in enumerate(names):
            paths[name] = f"{path}{joint}{at}" if len(names) > 1 else path
    return paths


def _shown(path: Path) -> str:
    """Return the part of a path that tells a process's files apart: model/4242/Model.json."""
    return printable("/".join(path.parts[-3:] if path.suffix else path.parts[-2:]))
