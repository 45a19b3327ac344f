"""Read the tensors that msprobe saves of an ACL graph: one file for each, and nothing that lists them.

    DUMP/step0/rank0/dump_tensor_data/Module.model.norm.LlamaRMSNorm.0.output.pt
                                      └ module and its class          └ call
                                      Aten.mm.3.input.1.pt            an operator, its fourth call

Statistics of such a graph come with a dump.json, and are read like any other dump of msprobe; the names of
nodes are the same in both.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.dumps.execution_order import finish_order, natural_key, value_flows
from firstdrift.dumps.msprobe.layout import DUMP_MARK, Layout, Mark, find_slices
from firstdrift.dumps.msprobe.tree import WHOLE_MODEL, Construct, repair_parents
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import folder_entries, is_folder, printable, sub_folders
from firstdrift.dumps.storage.listed_files import Listed, list_files, not_part_of_a_dump, problem_of_file
from firstdrift.dumps.storage.tensor_data import read_headers
from firstdrift.dumps.unique_labels import with_distinct_keys
from firstdrift.errors import DumpNotRecognisedError, TensorUnreadableError
from firstdrift.model.names import NameParts, parse_name
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.operators.order import OPERATOR
from firstdrift.wording.message import Message

_FOLDERS: Final = ("dump_tensor_data", "tensor_data")
_FILE: Final = re.compile(
    r"(?P<scope>.+)\.(?P<role>input_kwargs|input|output)(?:\.(?P<key>.+))?\.pt", re.ASCII | re.DOTALL
)
_ROLES: Final = {"input": Role.INPUT, "input_kwargs": Role.INPUT, "output": Role.OUTPUT}
_CALLED: Final = re.compile(r"(?P<scope>.+)\.(?P<call>0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)
_OTHER_DUMPS: Final = re.compile(r"\.(?:forward|backward)(?:\.|$)")
_MODULE: Final = "Module."
_FEWEST: Final = 8
"""Elements from which equal values are no accident."""

_LOOKED_AT: Final = 200

_MARK: Final = Mark(
    _FOLDERS[0],
    lambda entries: (
        not DUMP_MARK.is_slice(entries)
        and any(
            entry.name in _FOLDERS and is_folder(entry) and _holds_tensors(Path(entry.path))
            for entry in entries
        )
    ),
)


class _Times(Struct, frozen=True):
    """When the files of a node were written, in nanoseconds.

    Attributes:
        inputs: the last of its inputs; 0 if it has none.
        outputs: the first of its outputs.
        last: the last of its outputs, or of its inputs if it has no outputs.
    """

    inputs: int
    outputs: int
    last: int


class AclgraphReader(DumpReader):
    """The `DumpReader` of tensors of ACL graphs."""

    format = "msprobe-aclgraph"
    title = Message.of("dumps.aclgraph.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that there are such tensors at a path; empty if there are none."""
        slices = _slices(path).slices
        if not slices:
            return ()
        folder = _shown(_data_folder(slices[0].directory), path)
        return Message.of("dumps.aclgraph.tensors", folder=folder), Message.of("dumps.aclgraph.no_dump_json")

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories.

        Raises:
            DumpNotRecognisedError: there are no such tensors.
        """
        layout = _slices(path)
        if not layout.slices:
            raise DumpNotRecognisedError(Message.of("dumps.not_of_format", format=self.title), path=path)
        problems = [Problem(_shown(Path(one.file), path), one.reason) for one in layout.problems]
        return Dump(
            path=path,
            format=self.format,
            evidence=self.recognise(path),
            slices=layout.slices,
            problems=(*problems, *_unfinished(path)),
            attributes={"task": "tensor", "framework": "pytorch"}
            | ({"ranks": layout.rank_origin} if layout.rank_origin else {}),
        )

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the files of a slice.

        Raises:
            DumpUnreadableError: their folder is gone or cannot be read.
        """
        folder = _data_folder(listing.directory)
        where = _shown(folder, dump.path)
        tensors: defaultdict[str, list[tuple[list[tuple[int, int | str]], TensorRecord]]] = defaultdict(list)
        times: defaultdict[str, list[tuple[Role, int]]] = defaultdict(list)
        unknown: list[str] = []
        for file in list_files(folder, Bounds.around(dump.path)):
            found = _FILE.fullmatch(file.path.name) if not file.is_folder else None
            if found is None:
                unknown.append(printable(file.path.name))
                continue
            role = _ROLES[found["role"]]
            record = _record(role, printable(found["key"] or "0"), file)
            rank = (role is Role.OUTPUT, found["role"] == "input_kwargs")
            place = [(0, int(rank[0])), (0, int(rank[1])), *natural_key(record.key)]
            node = _node_name(printable(found["scope"]))
            tensors[node].append((place, record))
            times[node].append((role, file.time))
        problems = [Problem(where, not_part_of_a_dump(unknown))] if unknown else []
        spans = {name: _span(found) for name, found in times.items()}
        by_node: dict[str, tuple[TensorRecord, ...]] = {}
        for name, placed in tensors.items():
            records = [record for _, record in sorted(placed, key=lambda one: one[0])]
            by_node[name] = with_distinct_keys(records)
            problems += [
                Problem(where, Message.of("dumps.file.tensor_twice", tensor=record.label, node=name))
                for record, kept in zip(records, by_node[name], strict=True)
                if record.key != kept.key
            ]
        nodes, origin = _nodes(by_node, spans)
        return Slice(listing, nodes, origin, problems=tuple(problems))


def _slices(path: Path) -> Layout:
    return find_slices(path.parent if path.name in _FOLDERS else path, _MARK)


def _data_folder(directory: Path) -> Path:
    return next(
        (directory / name for name in _FOLDERS if (directory / name).is_dir()), directory / _FOLDERS[0]
    )


def _holds_tensors(folder: Path) -> bool:
    names = (entry.name for entry, is_folder in folder_entries(folder, _LOOKED_AT) if not is_folder)
    return any(
        found is not None and not _OTHER_DUMPS.search(found["scope"]) for found in map(_FILE.fullmatch, names)
    )


def _unfinished(path: Path) -> Iterator[Problem]:
    """Name what was saved since the last step ended: it is moved to its step only then."""
    for name in _FOLDERS:
        for process in sub_folders(path / name):
            if _holds_tensors(process):
                yield Problem(_shown(process, path), Message.of("dumps.aclgraph.unfinished_step"))


def _node_name(scope: str) -> str:
    """Return the name of a node as dump.json has it: "Module.norm.RMSNorm.forward.0", "Aten.mm.3.forward"."""
    found = _CALLED.fullmatch(scope)
    name, call = (found["scope"], found["call"]) if found else (scope, "0")
    return f"{name}.forward.{call}" if name.startswith(_MODULE) else f"{name}.{call}.forward"


def _span(files: list[tuple[Role, int]]) -> _Times:
    inputs = [time for role, time in files if role is Role.INPUT]
    outputs = [time for role, time in files if role is Role.OUTPUT]
    last = max(outputs or inputs)
    return _Times(max(inputs, default=0), min(outputs, default=last), last)


def _record(role: Role, key: str, file: Listed) -> TensorRecord:
    name = printable(file.path.name)
    if file.refusal:
        return TensorRecord(role, key, "", None, problem=problem_of_file(name, file.refusal))
    location = DataLocation(file.path, "pt")
    try:
        headers = read_headers(file.path, "pt")
    except TensorUnreadableError as exc:
        return TensorRecord(
            role, key, "", None, location=location, problem=problem_of_file(name, exc.message)
        )
    several = Message.of("dumps.aclgraph.not_one_tensor", count=len(headers))
    if reason := headers[0].problem if len(headers) == 1 else several:
        return TensorRecord(role, key, "", None, location=location, problem=problem_of_file(name, reason))
    (header,) = headers
    location = DataLocation(file.path, "pt", header.entry)
    return TensorRecord(role, key, header.dtype, header.shape, digest=header.digest, location=location)


def _nodes(
    by_node: Mapping[str, tuple[TensorRecord, ...]], times: Mapping[str, _Times]
) -> tuple[tuple[Node, ...], OrderOrigin]:
    """Make the nodes, in an order that is derived; say from what."""
    parts = {name: parse_name(name) for name in sorted(by_node, key=_listed)}
    parents, _ = repair_parents(parts, Construct(), parts, dict)
    children: defaultdict[str | None, list[str]] = defaultdict(list)
    is_timed = _are_plausible(parts, times)
    for name in sorted(parts, key=lambda name: times[name].last) if is_timed else parts:
        children[parents[name]].append(name)
    labels = {
        name: OPERATOR if is_timed or one.kind == "api" else one.path.rpartition(".")[2]
        for name, one in parts.items()
    }
    order, count = finish_order(children, labels, _flows(by_node, parts, parents))
    rest = "file_times" if is_timed else "node_names"
    origin = OrderOrigin(OrderSource.DERIVED, Message.of(f"dumps.order.from_{rest}", orderings=count))
    nodes = tuple(
        Node(
            name=name,
            path=parts[name].path,
            kind=NodeKind(parts[name].kind),
            type_name=parts[name].type_name,
            direction=Direction.FORWARD,
            call=parts[name].call,
            order=at,
            parent=parents[name],
            tensors=by_node[name],
        )
        for at, name in enumerate(order)
    )
    return nodes, origin


def _are_plausible(parts: Mapping[str, NameParts], times: Mapping[str, _Times]) -> bool:
    """Tell whether files may have been written at these times, and were not copied since.

    Inputs are written before outputs, and calls in their order.
    """
    calls: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, one in parts.items():
        calls[f"{one.path}.{one.type_name}"].append((one.call, times[name].last))
        if times[name].inputs > times[name].outputs:
            return False
    in_order = all(
        before <= after for found in calls.values() for (_, before), (_, after) in pairwise(sorted(found))
    )
    return in_order and len({one.last for one in times.values()}) > 1


def _flows(
    by_node: Mapping[str, tuple[TensorRecord, ...]],
    parts: Mapping[str, NameParts],
    parents: Mapping[str, str | None],
) -> set[tuple[str, str]]:
    """Find what ran before what, by equal values: among operators, among modules, and between the two.

    An operator that gives what a module gives ran in it, one that takes it ran after it.
    """
    operators = {name: records for name, records in by_node.items() if parts[name].kind == "api"}
    modules = {name: records for name, records in by_node.items() if name not in operators}
    flows = value_flows(operators, parents) | value_flows(modules, parents)
    given, taken, modules_given = (
        _by_value(operators, Role.OUTPUT),
        _by_value(operators, Role.INPUT),
        _by_value(modules, Role.OUTPUT),
    )
    for value, around in modules_given.items():
        givers = given.get(value, set()) - taken.get(value, set())
        if len(givers) != 1:
            continue
        (giver,) = givers
        for module in around:
            beside = _beside(module, giver, parents)
            if beside is not None:
                flows.add((giver, beside))
            if beside == module:
                flows |= {(module, taker) for taker in taken.get(value, set())}
    return flows


def _by_value(nodes: Mapping[str, tuple[TensorRecord, ...]], role: Role) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, records in nodes.items():
        for record in records:
            if record.role is role and record.digest and prod(record.shape or ()) >= _FEWEST:
                found[record.digest].add(name)
    return found


def _beside(module: str, operator: str, parents: Mapping[str, str | None]) -> str | None:
    """Return the sibling of an operator that a module is, or lies in; None if there is none."""
    at: str | None = module
    while at is not None and parents[at] != parents[operator]:
        at = parents[at]
    return at


def _listed(name: str) -> tuple[bool, list[tuple[int, int | str]]]:
    """Sort names by their numbers, the whole model last."""
    return name.startswith(f"{_MODULE}{WHOLE_MODEL}."), natural_key(name)


def _shown(path: Path, top: Path) -> str:
    shown = os.path.relpath(path, top) if path.is_relative_to(top) and path != top else path.name
    return printable(shown)
