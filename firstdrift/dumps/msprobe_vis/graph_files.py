"""Read the files of graphs that msprobe makes: a database (`.vis.db`), before release 8.2 JSON (`.vis`).

    tb_nodes   node_name, node_type, up_node, node_order, input_data, output_data, step, rank, data_source
    {"root": "DefaultModel", "node": {name: {"upnode", "subnodes", "node_type", "input_data", "output_data"}}}
    {"NPU": {"root", "node"}, "Bench": {"root", "node"}}       of a comparison

The bytes of a database are read once and opened in memory: nothing in it writes, and what a query may do is
counted.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from firstdrift.dumps.execution_order import after_children
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import open_regular, read_regular, said_by_system
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


def looks_like_graphs(file: Path) -> bool:
    """Tell whether a file is named and begins as such files do."""
    if not file.name.endswith((DATABASE, _JSON)):
        return False
    try:
        with open_regular(file) as opened:
            begin = opened.read(_LOOKED_AT)
    except OSError:
        return False
    if file.name.endswith(DATABASE):
        return begin.startswith(_BEGIN)
    return begin.lstrip().startswith(b"{") and any(mark in begin for mark in _JSON_MARKS)


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
    return [_row_node(row) for row in rows]


def _of_database(file: Path) -> Iterator[GraphPlace]:
    for side, step, rank in _query(file, "SELECT DISTINCT data_source, step, rank FROM tb_nodes", ()):
        if side in (TARGET, GOLDEN) and _is_number(step) and _is_number(rank):
            yield GraphPlace(side, step, rank)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _query(file: Path, query: str, given: tuple[object, ...]) -> list[tuple[Any, ...]]:
    try:
        content = bytearray(read_regular(file, most=_LARGEST))
    except OSError as exc:
        unreadable = Message.of("dumps.file.unreadable", error=said_by_system(exc))
        raise DumpUnreadableError(unreadable, path=file) from exc
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
            return database.execute(query, given).fetchall()
    except (sqlite3.Error, MemoryError, OverflowError) as exc:
        damaged = Message.of("dumps.msprobe_vis.damaged", error=str(exc))
        raise DumpUnreadableError(damaged, path=file) from exc


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _row_node(row: tuple[Any, ...]) -> GraphNode:
    name, kind, parent, micro_step, given, taken = row
    values = {**_values(given), **_values(taken)}
    return _node(name, kind, parent, micro_step, values)


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
        value = json.loads(text) if isinstance(text, str) and text else {}
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
    known = {name: node for name, node in nodes.items() if isinstance(node, dict)}
    children: dict[str | None, list[str]] = {}
    for name, node in known.items():
        parent = node.get("upnode")
        is_inside = isinstance(parent, str) and parent in known and parent != name
        children.setdefault(parent if is_inside else None, []).append(name)
    ordered = dict.fromkeys(after_children(children, _as_listed))
    for name in (*ordered, *(name for name in known if name not in ordered)):  # those of a circle are in none
        node = known[name]
        values = {**_object(node.get("input_data")), **_object(node.get("output_data"))}
        yield _node(name, node.get("node_type"), node.get("upnode"), node.get("micro_step_id"), values)


def _as_listed(names: Iterable[str]) -> Iterable[str]:
    return names


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
