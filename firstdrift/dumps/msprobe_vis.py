"""Read graphs that msprobe made for its viewer as the dumps that they were made from.

    msprobe graph_visualize -tp runs/target/step0/rank0 -o out     out/build_20261124000553.vis.db
    msprobe graph_visualize -tp … -gp … -o out                     out/compare_20261124000613.vis.db

Values were left where they were dumped: statistics and checksums are what a graph has of them.

Graphs lie in a database (`.vis.db`), before release 8.2 in JSON (`.vis`):

    tb_nodes   node_name, node_type, up_node, node_order, input_data, output_data, step, rank, data_source
    {"root": "DefaultModel", "node": {name: {"upnode", "subnodes", "node_type", "input_data", "output_data"}}}
    {"NPU": {"root", "node"}, "Bench": {"root", "node"}}       of a comparison

The bytes of a database are read once and opened in memory: nothing in it writes, and what a query may do and
give is counted.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from firstdrift.dumps.containers.contents import number_in, sizes_in
from firstdrift.dumps.execution_order import after_children, children_of
from firstdrift.dumps.msprobe.records import canonical_dtype
from firstdrift.dumps.msprobe.tree import Construct, finish_order, last_positions, repair_parents
from firstdrift.dumps.nodes import call_node, with_distinct_keys
from firstdrift.dumps.reader import FilesReader, several_at
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import beginning_of, printable, read_whole
from firstdrift.dumps.storage.json_file import parse_json, read_json
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import known, positions
from firstdrift.model.names import NameParts, parse_name
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates, Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

TARGET: Final = "NPU"
"""What a graph that is alone is called, and of a comparison that of the run under suspicion."""

GOLDEN: Final = "Bench"
DATABASE: Final = ".vis.db"
_JSON: Final = ".vis"
_BEGIN: Final = b"SQLite format 3\0"
_JSON_MARKS: Final = (b'"root"', b'"NPU"')
_LOOKED_AT: Final = 512
_LARGEST: Final = 2**30
_LONGEST_VALUE: Final = 64 * 2**20
"""Bytes of one value, or one row."""

_MOST_STEPS: Final = 50_000_000
"""Steps of SQLite's machine that a query may take: a node takes a few hundred."""

_STEPS_AT_ONCE: Final = 100_000
_WAL: Final = 18
_COLUMNS: Final = "node_name, node_type, up_node, micro_step_id, input_data, output_data"
_KINDS: Final = {"0": "module", "1": "operator", "module": "module", "api": "operator"}


class GraphNode(Struct, frozen=True):
    """A node of a graph.

    Attributes:
        name: as msprobe writes it.
        kind: "module", "operator", or "collection" for what only holds operators.
        parent: name of the node around it; "" at the top.
        micro_step: which page of the graph it is on.
        values: what it takes and gives by name, as msprobe writes it: text for text.
    """

    name: str
    kind: str
    parent: str
    micro_step: int
    values: Mapping[str, Any]


class GraphPlace(Struct, frozen=True):
    """Which graph of a file: of which side of a comparison, which step and rank."""

    side: str
    step: int | None
    rank: int | None


def graphs_in(file: Path) -> list[GraphPlace]:
    """List the graphs of a file.

    Raises:
        DumpUnreadableError: it is damaged, or holds none.
    """
    found = list(_of_database(file) if file.name.endswith(DATABASE) else _of_json(_json(file)))
    if not found:
        raise DumpUnreadableError(Message.of("dumps.msprobe_vis.no_graph"), path=file)
    return found


def nodes_in(file: Path, place: GraphPlace) -> list[GraphNode]:
    """Return the nodes of a graph, what a node contains before it.

    Raises:
        DumpUnreadableError: the file is damaged.
    """
    if not file.name.endswith(DATABASE):
        return list(_json_nodes(_graph_of(_json(file), place.side)))
    rows = _query(
        file,
        f"SELECT {_COLUMNS} FROM tb_nodes WHERE data_source = ? AND step = ? AND rank = ? "  # noqa: S608 (ours)
        "ORDER BY node_order",
        (place.side, place.step, place.rank),
    )
    return [
        _node(name, kind, parent, step, {**_values(given), **_values(taken)})
        for name, kind, parent, step, given, taken in rows
    ]


def _of_database(file: Path) -> Iterator[GraphPlace]:
    for side, step, rank in _query(file, "SELECT DISTINCT data_source, step, rank FROM tb_nodes", ()):
        if side in (TARGET, GOLDEN) and _is_number(step) and _is_number(rank):
            yield GraphPlace(side, step, rank)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _query(file: Path, query: str, given: tuple[object, ...]) -> list[tuple[Any, ...]]:
    content = bytearray(read_whole(file, _LARGEST))
    # A database in memory has no log beside it; what was not taken over from that is in no node either.
    content[_WAL : _WAL + 2] = b"\1\1"
    left = _MOST_STEPS // _STEPS_AT_ONCE

    def count() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.deserialize(bytes(content))
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            database.set_progress_handler(count, _STEPS_AT_ONCE)
            database.text_factory = _text
            kind = database.execute("SELECT type FROM sqlite_master WHERE name = 'tb_nodes'").fetchone()
            if kind != ("table",):
                raise DumpUnreadableError(Message.of("dumps.msprobe_vis.no_table"), path=file)
            # A column that is computed may have any size, however small the file is.
            if any(hidden for *_, hidden in database.execute("PRAGMA table_xinfo(tb_nodes)")):
                raise DumpUnreadableError(Message.of("dumps.msprobe_vis.no_table"), path=file)
            return list(_bounded(database.execute(query, given), len(content), file))
    # What is wrong with the schema is said in bytes of the file, which need not be text.
    except (sqlite3.Error, MemoryError, OverflowError, UnicodeDecodeError) as exc:
        damaged = Message.of("dumps.msprobe_vis.damaged", error=str(exc))
        raise DumpUnreadableError(damaged, path=file) from exc


def _bounded(rows: Iterable[tuple[Any, ...]], left: int, file: Path) -> Iterator[tuple[Any, ...]]:
    """Yield rows; together they hold no more than their file, unless several of them are one place in it."""
    for row in rows:
        left -= sum(len(value) for value in row if isinstance(value, str | bytes))
        if left < 0:
            raise DumpUnreadableError(Message.of("dumps.msprobe_vis.rows_too_large"), path=file)
        yield row


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _node(
    name: object, kind: object, parent: object, micro_step: object, values: Mapping[str, Any]
) -> GraphNode:
    is_none = parent in (None, "None")
    return GraphNode(
        name=printable(str(name)),
        kind=_KINDS.get(str(kind), "collection"),
        parent="" if is_none else printable(str(parent)),
        micro_step=micro_step if isinstance(micro_step, int) and _is_number(micro_step) else 0,
        values=values,
    )


def _values(text: object) -> Mapping[str, Any]:
    try:
        value = parse_json(text).value if isinstance(text, str) and text else {}
    except (ValueError, RecursionError):
        return {"": {"type": "damaged"}}
    return value if isinstance(value, dict) else {}


# ---- JSON


def _json(file: Path) -> Mapping[str, Any]:
    value = read_json(file).value
    return value if isinstance(value, dict) else {}


def _of_json(value: Mapping[str, Any]) -> Iterator[GraphPlace]:
    for side in (TARGET, GOLDEN):
        if _graph_of(value, side):
            yield GraphPlace(side, None, None)


def _graph_of(value: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """Return the nodes of a side; the only graph of a file is that of the target."""
    graph = value.get(side, value if side == TARGET and GOLDEN not in value else None)
    nodes = graph.get("node") if isinstance(graph, dict) else None
    return nodes if isinstance(nodes, dict) else {}


def _json_nodes(nodes: Mapping[str, Any]) -> Iterator[GraphNode]:
    read = {name: node for name, node in nodes.items() if isinstance(node, dict)}
    parents = {name: _json_parent(name, read) for name in read}
    ordered = after_children(children_of(read, parents), iter)
    for name in dict.fromkeys((*ordered, *read)):  # those of a circle are in none
        node = read[name]
        values = {**_object(node.get("input_data")), **_object(node.get("output_data"))}
        yield _node(name, node.get("node_type"), node.get("upnode"), node.get("micro_step_id"), values)


def _json_parent(name: str, nodes: Mapping[str, Mapping[str, Any]]) -> str | None:
    parent = nodes[name].get("upnode")
    return parent if isinstance(parent, str) and parent in nodes and parent != name else None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


_ITEM: Final = re.compile(r"(?:.*?\.)?(?P<part>input|output|parameters)\.(?P<key>.+)", re.DOTALL)
_ROLES: Final = {"input": Role.INPUT, "output": Role.OUTPUT, "parameters": Role.PARAMETER}
_TENSOR_TYPES: Final = frozenset({"torch.Tensor", "mindspore.Tensor"})
_NONE: Final = frozenset({"None", "null", "", "N/A"})
_NUMBERS: Final = re.compile(r"\s*(?:torch\.Size\()?[\[(]?(?P<numbers>[0-9,\s]*)[\])]{0,2}\s*", re.ASCII)
_WHOLE_MODEL: Final = "DefaultModel"
_ORDER: Final = OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.recorded_at_beginning"))


class MsprobeVisReader(FilesReader):
    """The `DumpReader` of graphs of msprobe."""

    format = "msprobe-vis"
    title = Message.of("dumps.msprobe_vis.title")
    suffixes = frozenset({".db", _JSON})
    most_entries = most_files = 200

    def is_one(self, file: Path) -> bool:
        """Tell whether a file is named and begins as such files do."""
        begin = beginning_of(file, _LOOKED_AT)
        if file.suffix != _JSON:
            return file.name.endswith(DATABASE) and begin.startswith(_BEGIN)
        return begin.lstrip().startswith(b"{") and any(mark in begin for mark in _JSON_MARKS)

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a file, or holds some; empty if it does not."""
        names = [printable(file.name) for file in self.files(path)]
        return tuple(Message.of("dumps.msprobe_vis.file", file=name) for name in names)

    def open_dump(self, path: Path) -> Dump:
        """List the steps and ranks of the graph of a run; of a comparison, of that under suspicion."""
        files = self.files_at(path)
        if len(files) > 1:
            raise several_at(path, files)
        file = Bounds.around(path).require(files[0])
        graphs = graphs_in(file)
        side = _side(graphs)
        own = [Coordinates(graph.step, graph.rank) for graph in graphs if graph.side == side]
        left_out = Problem(printable(file.name), Message.of("dumps.msprobe_vis.golden_left_out"))
        problems = [left_out] if len(own) < len(graphs) else []
        return self.dump(path, (SliceListing(at, file) for at in own), problems)

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes of the graph of a step and rank."""
        file = Bounds.around(dump.path).require(listing.directory)
        at = listing.coordinates
        side = _side(graphs_in(file))
        graph = nodes_in(file, GraphPlace(side, at.step, at.rank))
        return Slice(listing, tuple(_nodes(graph)), _ORDER)


def _side(graphs: Iterable[GraphPlace]) -> str:
    return TARGET if any(graph.side == TARGET for graph in graphs) else GOLDEN


def _nodes(graph: list[GraphNode]) -> Iterator[Node]:
    """Make nodes; what is in a collection lies in what is around that, what is in the model at the top.

    What msprobe placed where a hook fired is placed as in its dumps.
    """
    kept = {node.name: node for node in graph if _is_kept(node)}
    names = dict(zip(kept, map(parse_name, kept), strict=True))
    parents = _parents(graph, kept, names)
    last = last_positions(parents, positions(kept))
    pages = {node.micro_step for node in kept.values()}
    for order, name in enumerate(finish_order(parents, last)):
        micro_step = kept[name].micro_step if len(pages) > 1 else None
        tensors = with_distinct_keys(_tensors(kept[name]))
        yield call_node(name, names[name], order, parents[name], tensors, micro_step)


def _parents(
    graph: Iterable[GraphNode], kept: Mapping[str, GraphNode], names: Mapping[str, NameParts]
) -> dict[str, str | None]:
    above = {node.name: node.parent for node in graph}
    construct = Construct({name: _parent(name, above, kept) for name in kept})
    recorded = [name for name, node in kept.items() if node.values]
    return repair_parents(names, construct, recorded, dict)[0]


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
    if kind in _TENSOR_TYPES:
        return _tensor(role, key, said)
    value = said.get("value", said.get("Max", ""))
    return TensorRecord(role, key, printable(kind), (), scalar=printable(value))


def _tensor(role: Role, key: str, said: Mapping[str, str]) -> TensorRecord:
    sizes = _NUMBERS.fullmatch(said.get("shape", ""))
    shape = sizes_in(sizes["numbers"]) if sizes else None
    recorded = printable(repr(said.get("shape", ""))[:80])
    digest = said.get("md5", "")
    numbers = [_number(said.get(name, "")) for name in ("Max", "Min", "Mean", "Norm")]
    return TensorRecord(
        role=role,
        key=key,
        dtype=printable(canonical_dtype(said.get("dtype", ""))),
        shape=shape,
        statistics=Statistics(*numbers) if known(numbers) else None,
        digest=None if digest in _NONE else printable(digest),
        requires_grad={"True": True, "False": False}.get(said.get("requires_grad", "")),
        problem=None if shape is not None else Message.of("dumps.record.bad_shape", recorded=recorded),
    )


def _number(text: str) -> float | None:
    return float(text == "True") if text in ("True", "False") else number_in(text)
