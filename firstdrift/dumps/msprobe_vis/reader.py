"""Read graphs that msprobe made for its viewer as the dumps that they were made from.

    msprobe graph_visualize -tp runs/target/step0/rank0 -o out     out/build_20261124000553.vis.db
    msprobe graph_visualize -tp … -gp … -o out                     out/compare_20261124000613.vis.db

Values were left where they were dumped: statistics and checksums are what a graph has of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from firstdrift.dumps.containers.contents import LARGEST_NUMBER, DamagedError, shape_of
from firstdrift.dumps.msprobe.records import canonical_dtype
from firstdrift.dumps.msprobe.tree import Construct, finish_order, last_positions, repair_parents
from firstdrift.dumps.msprobe_vis.graph_files import (
    GOLDEN,
    TARGET,
    GraphNode,
    GraphPlace,
    graphs_in,
    looks_like_graphs,
    nodes_in,
)
from firstdrift.dumps.nodes import call_node, with_distinct_keys
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, first_names, is_file, printable
from firstdrift.errors import DumpNotRecognisedError
from firstdrift.model.names import parse_name
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates, Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

_MOST_FILES: Final = 200
_ITEM: Final = re.compile(r"(?:.*?\.)?(?P<part>input|output|parameters)\.(?P<key>.+)", re.DOTALL)
_ROLES: Final = {"input": Role.INPUT, "output": Role.OUTPUT, "parameters": Role.PARAMETER}
_TENSOR_TYPES: Final = frozenset({"torch.Tensor", "mindspore.Tensor"})
_NONE: Final = frozenset({"None", "null", "", "N/A"})
_NUMBERS: Final = re.compile(r"\s*(?:torch\.Size\()?[\[(]?(?P<numbers>[0-9,\s]*)[\])]{0,2}\s*", re.ASCII)
_WHOLE_MODEL: Final = "DefaultModel"
_ORDER: Final = OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.recorded_at_beginning"))


class MsprobeVisReader(DumpReader):
    """The `DumpReader` of graphs of msprobe."""

    format = "msprobe-vis"
    title = Message.of("dumps.msprobe_vis.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a file, or holds some; empty if it does not."""
        return tuple(Message.of("dumps.msprobe_vis.file", file=printable(file.name)) for file in _files(path))

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a file lies in a folder."""
        return bool(_files(folder))

    def open_dump(self, path: Path) -> Dump:
        """List the steps and ranks of the graph of a run; of a comparison, of that under suspicion."""
        files = _files(path)
        if not files:
            raise self.none_at(path)
        if len(files) > 1:
            several = Message.of("dumps.several", dumps=first_names([file.name for file in files]))
            raise DumpNotRecognisedError(several, path=path, hint=Message.of("dumps.choose_one"))
        file = Bounds.around(path).require(files[0])
        graphs = graphs_in(file)
        side = _side(graphs)
        listings = [
            SliceListing(Coordinates(graph.step, graph.rank), file) for graph in graphs if graph.side == side
        ]
        is_comparison = any(graph.side != side for graph in graphs)
        left_out = Problem(printable(file.name), Message.of("dumps.msprobe_vis.golden_left_out"))
        return self.dump(path, listings, [left_out] if is_comparison else [])

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes of the graph of a step and rank."""
        file = Bounds.around(dump.path).require(listing.directory)
        at = listing.coordinates
        side = _side(graphs_in(file))
        graph = nodes_in(file, GraphPlace(side, at.step, at.rank))
        return Slice(listing, tuple(_nodes(graph)), _ORDER)


def _files(path: Path) -> list[Path]:
    candidates = [path] if is_file(path) else files_in(path, _MOST_FILES)
    return [file for file in candidates if looks_like_graphs(file)]


def _side(graphs: Iterable[GraphPlace]) -> str:
    return TARGET if any(graph.side == TARGET for graph in graphs) else GOLDEN


def _nodes(graph: list[GraphNode]) -> Iterator[Node]:
    """Make nodes; what is in a collection lies in what is around that, what is in the model at the top.

    What msprobe placed where a hook fired is placed as in its dumps.
    """
    kept = {node.name: node for node in graph if _is_kept(node)}
    above = {node.name: node.parent for node in graph}
    names = {name: parse_name(name) for name in kept}
    construct = Construct({name: _parent(name, above, kept) for name in kept})
    recorded = [name for name, node in kept.items() if node.values]
    parents, _ = repair_parents(names, construct, recorded, dict)
    last = last_positions(parents, {name: at for at, name in enumerate(kept)})
    is_paged = len({node.micro_step for node in kept.values()}) > 1
    for order, name in enumerate(finish_order(parents, last)):
        micro_step = kept[name].micro_step if is_paged else None
        tensors = with_distinct_keys(_tensors(kept[name]))
        yield call_node(name, names[name], order, parents[name], tensors, micro_step)


def _is_kept(node: GraphNode) -> bool:
    return node.kind != "collection" and (node.name != _WHOLE_MODEL or bool(node.values))


def _parent(name: str, above: Mapping[str, str], kept: Mapping[str, GraphNode]) -> str | None:
    """Return the nearest node around one that is kept; None at the top."""
    seen = {name}
    at = above.get(name, "")
    while at and at not in seen:
        if at in kept:
            return at
        seen.add(at)
        at = above.get(at, "")
    return None


def _tensors(node: GraphNode) -> Iterator[TensorRecord]:
    holds_gradients = parse_name(node.name).holds_gradients
    for item, leaf in node.values.items():
        role, key = _place(str(item), node.name, holds_gradients=holds_gradients)
        if isinstance(leaf, dict):
            record = _record(role, printable(key), leaf)
            if record is not None:
                yield record


def _place(item: str, node: str, *, holds_gradients: bool) -> tuple[Role, str]:
    """Return role and key of a value: "Module.x.forward.0.input.0" is input 0 of its node."""
    rest = item.removeprefix(node).lstrip(".")
    if holds_gradients:
        return Role.GRADIENT, rest or "0"
    match = _ITEM.fullmatch(rest)
    return (_ROLES[match["part"]], match["key"]) if match else (Role.INPUT, rest or "0")


def _record(role: Role, key: str, leaf: Mapping[str, Any]) -> TensorRecord | None:
    said = {name: value if isinstance(value, str) else str(value) for name, value in leaf.items()}
    kind = said.get("type", "")
    if kind in _NONE:
        return None
    if kind not in _TENSOR_TYPES:
        value = next((said[name] for name in ("value", "Max") if name in said), "")
        return TensorRecord(role, key, printable(kind), (), scalar=printable(value))
    shape = _shape(said.get("shape", ""))
    recorded = printable(repr(said.get("shape", ""))[:80])
    digest = said.get("md5", "")
    return TensorRecord(
        role=role,
        key=key,
        dtype=printable(canonical_dtype(said.get("dtype", ""))),
        shape=shape,
        statistics=_statistics(said),
        digest=None if digest in _NONE else printable(digest),
        requires_grad={"True": True, "False": False}.get(said.get("requires_grad", "")),
        problem=None if shape is not None else Message.of("dumps.record.bad_shape", recorded=recorded),
    )


def _shape(text: str) -> tuple[int, ...] | None:
    match = _NUMBERS.fullmatch(text)
    if match is None:
        return None
    words = [word for word in match["numbers"].replace(",", " ").split() if word]
    if any(len(word) > len(str(LARGEST_NUMBER)) for word in words):
        return None
    try:
        return shape_of([int(word) for word in words])
    except DamagedError:
        return None


def _statistics(said: Mapping[str, str]) -> Statistics | None:
    numbers = [_number(said.get(name, "")) for name in ("Max", "Min", "Mean", "Norm")]
    return None if numbers == [None] * len(numbers) else Statistics(*numbers)


def _number(text: str) -> float | None:
    if text in ("True", "False"):
        return float(text == "True")
    try:
        return float(text)
    except ValueError:
        return None
