"""Read the tensors that msprobe saves of an ACL graph: one file for each, and nothing that lists them.

    DUMP/step0/rank0/dump_tensor_data/Module.model.norm.LlamaRMSNorm.0.output.pt
                                      └ module and its class          └ call
                                      Aten.mm.3.input.1.pt            an operator, its fourth call

Statistics of such a graph come with a dump.json, and are read like any other dump of msprobe; the names of
nodes are the same in both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from firstdrift.dumps.execution_order import (
    children_of,
    finish_order,
    natural_key,
    nodes_by_value,
    value_flows,
)
from firstdrift.dumps.msprobe.file_names import labels_of, telling_values
from firstdrift.dumps.msprobe.layout import DUMP_MARK, Layout, Mark, find_slices
from firstdrift.dumps.msprobe.tree import WHOLE_MODEL, Construct, repair_parents
from firstdrift.dumps.nodes import call_node, with_distinct_keys
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    Listed,
    files_in,
    is_folder,
    list_named,
    passed_over,
    printable,
    shown_below,
    sub_folders,
)
from firstdrift.dumps.storage.tensor_data import NO_TENSOR, headers_of, no_header, record_of
from firstdrift.files import Entry
from firstdrift.groups import gathered
from firstdrift.model.names import NameParts, parse_name
from firstdrift.model.node import Node
from firstdrift.model.slice import Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.paths import OPERATOR
from firstdrift.wording.message import Message

_FOLDERS: Final = ("dump_tensor_data", "tensor_data")
_FILE: Final = re.compile(
    r"(?P<scope>.+)\.(?P<role>input_kwargs|input|output)(?:\.(?P<key>.+))?\.pt", re.ASCII | re.DOTALL
)
_ROLES: Final = {"input": Role.INPUT, "input_kwargs": Role.INPUT, "output": Role.OUTPUT}
_CALLED: Final = re.compile(r"(?P<scope>.+)\.(?P<call>0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)
_OTHER_DUMPS: Final = re.compile(r"\.(?:forward|backward)(?:\.|$)")
_MODULE: Final = "Module."
_LOOKED_AT: Final = 200

_MARK: Final = Mark(
    _FOLDERS[0], lambda entries: not DUMP_MARK.is_slice(entries) and any(map(_is_data_folder, entries))
)


class _Saved(NamedTuple):
    """A tensor of a node, its place among those of the node, and when its file was written."""

    place: tuple[bool, bool, list[tuple[int, int | str]]]
    record: TensorRecord
    time: int


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
        folder = shown_below(_data_folder(slices[0].directory), path)
        return Message.of("dumps.aclgraph.tensors", folder=folder), Message.of("dumps.aclgraph.no_dump_json")

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories."""
        layout = _slices(path)
        if not layout.slices:
            raise self.none_at(path)
        attributes = {"task": "tensor", "framework": "pytorch"} | layout.attributes
        return self.dump(path, layout.slices, [*layout.problems_below(path), *_unfinished(path)], attributes)

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the files of a slice."""
        folder = _data_folder(listing.directory)
        where = shown_below(folder, dump.path)
        named, unknown = list_named(folder, Bounds.around(dump.path), _FILE.fullmatch)
        saved = gathered(
            (_node_name(printable(match["scope"])), _saved(file, match)) for file, match in named
        )
        problems = passed_over(where, unknown)
        by_node: dict[str, tuple[TensorRecord, ...]] = {}
        for name, files in saved.items():
            records = [tensor.record for tensor in sorted(files, key=lambda tensor: tensor.place)]
            by_node[name] = with_distinct_keys(records)
            problems += [
                Problem(where, Message.of("dumps.file.tensor_twice", tensor=record.label, node=name))
                for record, distinct in zip(records, by_node[name], strict=True)
                if record.key != distinct.key
            ]
        nodes, origin = _nodes(by_node, {name: _span(files) for name, files in saved.items()})
        return Slice(listing, nodes, origin, problems=tuple(problems))


def _saved(file: Listed, name: re.Match[str]) -> _Saved:
    role, key = _ROLES[name["role"]], printable(name["key"] or "0")
    place = role is Role.OUTPUT, name["role"] == "input_kwargs", natural_key(key)
    return _Saved(place, _record(role, key, file), file.time)


def _slices(path: Path) -> Layout:
    return find_slices(path.parent if path.name in _FOLDERS else path, _MARK)


def _data_folder(directory: Path) -> Path:
    folders = [directory / name for name in _FOLDERS]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _is_data_folder(entry: Entry) -> bool:
    return entry.name in _FOLDERS and is_folder(entry) and _holds_tensors(Path(entry.path))


def _holds_tensors(folder: Path) -> bool:
    matches = (_FILE.fullmatch(file.name) for file in files_in(folder, _LOOKED_AT))
    return any(match and not _OTHER_DUMPS.search(match["scope"]) for match in matches)


def _unfinished(path: Path) -> Iterator[Problem]:
    """Name what was saved since the last step ended: it is moved to its step only then."""
    for name in _FOLDERS:
        for process in sub_folders(path / name):
            if _holds_tensors(process):
                yield Problem(shown_below(process, path), Message.of("dumps.aclgraph.unfinished_step"))


def _node_name(scope: str) -> str:
    """Return the name of a node as dump.json has it: "Module.norm.RMSNorm.forward.0", "Aten.mm.3.forward"."""
    found = _CALLED.fullmatch(scope)
    name, call = (found["scope"], found["call"]) if found else (scope, "0")
    return f"{name}.forward.{call}" if name.startswith(_MODULE) else f"{name}.{call}.forward"


def _span(files: list[_Saved]) -> _Times:
    times = gathered((file.record.role, file.time) for file in files)
    inputs, outputs = times[Role.INPUT], times[Role.OUTPUT]
    last = max(outputs or inputs)
    return _Times(max(inputs, default=0), min(outputs, default=last), last)


def _record(role: Role, key: str, file: Listed) -> TensorRecord:
    """Describe the one tensor of a file; of one that cannot be read, dtype and shape are not known."""
    headers, reason = headers_of(file.path, "pt", file.refusal)
    count = 0 if reason is NO_TENSOR else len(headers)
    several = None if count == 1 else Message.of("dumps.aclgraph.not_one_tensor", count=count)
    problem = several or headers[0].problem
    header = no_header(problem, is_refused=file.refusal is not None) if problem else headers[0]
    return record_of(header, file.path, "pt", role, key)


def _nodes(
    by_node: Mapping[str, tuple[TensorRecord, ...]], times: Mapping[str, _Times]
) -> tuple[tuple[Node, ...], OrderOrigin]:
    """Make the nodes, in an order that is derived; say from what."""
    parts = {name: parse_name(name) for name in sorted(by_node, key=_listed)}
    parents, _ = repair_parents(parts, Construct(), parts, dict)
    is_timed = _are_plausible(parts, times)
    listed = sorted(parts, key=lambda name: times[name].last) if is_timed else list(parts)
    labels = dict.fromkeys(parts, OPERATOR) if is_timed else labels_of(parts)
    order, count = finish_order(children_of(listed, parents), labels, _flows(by_node, parts, parents))
    rest = "file_times" if is_timed else "node_names"
    origin = OrderOrigin(OrderSource.DERIVED, Message.of(f"dumps.order.from_{rest}", orderings=count))
    nodes = (call_node(name, parts[name], at, parents[name], by_node[name]) for at, name in enumerate(order))
    return tuple(nodes), origin


def _are_plausible(parts: Mapping[str, NameParts], times: Mapping[str, _Times]) -> bool:
    """Tell whether files may have been written at these times, and were not copied since.

    Inputs are written before outputs, and calls in their order.
    """
    if any(time.inputs > time.outputs for time in times.values()):
        return False
    calls = sorted((f"{of.path}.{of.type_name}", of.call, times[name].last) for name, of in parts.items())
    in_order = all(path != before or end <= last for (before, _, end), (path, _, last) in pairwise(calls))
    return in_order and len({time.last for time in times.values()}) > 1


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
    givers, takers = (nodes_by_value(operators, role, telling_values) for role in (Role.OUTPUT, Role.INPUT))
    for value, around in nodes_by_value(modules, Role.OUTPUT, telling_values).items():
        inner = givers[value] - takers[value]
        if len(inner) == 1:
            giver = inner.pop()
            for module in around:
                flows |= _around_module(module, giver, takers[value], parents)
    return flows


def _around_module(
    module: str, giver: str, takers: Iterable[str], parents: Mapping[str, str | None]
) -> set[tuple[str, str]]:
    """Say what ran before what, if an operator gives what a module gives and others take it."""
    beside = _beside(module, giver, parents)
    if beside is None:
        return set()
    return {(giver, beside)} | ({(module, taker) for taker in takers} if beside == module else set())


def _beside(module: str, operator: str, parents: Mapping[str, str | None]) -> str | None:
    """Return the sibling of an operator that a module is, or lies in; None if there is none."""
    at: str | None = module
    while at is not None and parents[at] != parents[operator]:
        at = parents[at]
    return at


def _listed(name: str) -> tuple[bool, list[tuple[int, int | str]]]:
    """Sort names by their numbers, the whole model last."""
    return name.startswith(f"{_MODULE}{WHOLE_MODEL}."), natural_key(name)
