"""Graphs that msprobe made of dumps of ours: what is read of them is what is read of the dumps."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import ids_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]
DUMP = "msprobe/llama_stat_mix_perturb"
TABLE = (
    "CREATE TABLE tb_nodes (id TEXT PRIMARY KEY, node_order INTEGER, node_name TEXT, node_type TEXT,"
    " up_node TEXT, micro_step_id INTEGER, input_data TEXT, output_data TEXT, data_source TEXT,"
    " step INTEGER, rank INTEGER)"
)
LEAF = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": "[2, 3]", "Max": "1.0", "Min": "-1.0"}


def write(file: Path, *rows: tuple[Any, ...]) -> Path:
    """Write a database of nodes: name, type, parent, inputs, side."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as database:
        database.execute(TABLE)
        for order, (name, kind, parent, inputs, side) in enumerate(rows):
            data = inputs if isinstance(inputs, str) else json.dumps(inputs)
            row = (f"{side}{order}", order, name, kind, parent, 0, data, "{}", side, 0, 0)
            database.execute("INSERT INTO tb_nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()
    return file


def read(path: Path) -> Slice:
    dump = open_dump(path)
    assert dump.format == "msprobe-vis"
    (listing,) = dump.slices
    return read_slice(dump, listing)


def as_json(database: Path) -> dict[str, Any]:
    """Write a graph as releases before 8.2 did."""
    with closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as opened:
        rows = opened.execute(
            "SELECT node_name, node_type, up_node, sub_nodes, input_data, output_data FROM tb_nodes"
        ).fetchall()
    nodes = {
        name: {
            "id": name,
            "node_type": int(kind),
            "input_data": json.loads(given),
            "output_data": json.loads(taken),
            "upnode": up or "None",
            "subnodes": json.loads(subs or "[]"),
        }
        for name, kind, up, subs, given, taken in rows
    }
    return {"root": "DefaultModel", "node": nodes}


def test_a_graph_tells_the_same_as_the_dump_that_it_was_made_of(unpacked: Unpacked) -> None:
    graph = open_dump(unpacked("engines/msprobe_vis") / "golden")
    assert [listing.coordinates for listing in graph.slices] == [Coordinates(0, 0)]
    dump = open_dump(unpacked(DUMP) / "golden")
    found, wanted = (read_slice(one, one.slices[0]) for one in (graph, dump))
    assert {node.name: (node.path, node.type_name, node.call) for node in found.nodes} == {
        node.name: (node.path, node.type_name, node.call) for node in wanted.nodes
    }
    tensors = [
        {(node.name, record.label): record.statistics for node in one.nodes for record in node.tensors}
        for one in (found, wanted)
    ]
    assert tensors[0].keys() == tensors[1].keys()
    assert sum(value is not None for value in tensors[0].values()) > 1000
    assert tensors[0] == tensors[1]
    parents = {node.name: node.parent for node in wanted.nodes}
    assert {node.name: node.parent for node in found.nodes} == parents


def test_a_fault_is_found_between_two_graphs_and_between_a_graph_and_a_dump(unpacked: Unpacked) -> None:
    graphs, dumps = unpacked("engines/msprobe_vis"), unpacked(DUMP)
    for golden, target in (
        (graphs / "golden", graphs / "target"),
        (dumps / "golden", graphs / "target"),
        (graphs / "golden", graphs / "both"),
    ):
        found = compare(golden, target).findings.first_bad_node
        assert found is not None
        assert found.module == "model.layers.2.mlp.down_proj"
    report = compare(dumps / "golden", graphs / "golden")
    assert (report.counts.error, report.counts.incomparable) == (0, 0)


def test_of_a_comparison_the_run_under_suspicion_is_read_and_that_is_said(unpacked: Unpacked) -> None:
    dump = open_dump(unpacked("engines/msprobe_vis") / "both")
    assert [problem.reason.id for problem in dump.problems] == ["dumps.msprobe_vis.golden_left_out"]
    assert len(dump.slices) == 1


def test_graphs_of_before_are_json(unpacked: Unpacked, tmp_path: Path) -> None:
    folder = unpacked("engines/msprobe_vis")
    for side in ("golden", "target"):
        (database,) = (folder / side).iterdir()
        (tmp_path / f"{side}.vis").write_text(json.dumps(as_json(database)))
    graph, known = read(tmp_path / "golden.vis"), read(folder / "golden")
    assert {node.name: node.tensors for node in graph.nodes} == {
        node.name: node.tensors for node in known.nodes
    }
    assert {node.name: node.parent for node in graph.nodes} == {
        node.name: node.parent for node in known.nodes
    }
    report = compare(tmp_path / "golden.vis", tmp_path / "target.vis")
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.2.mlp.down_proj"
    both = {"NPU": as_json(database), "Bench": as_json(database)}
    (tmp_path / "both.vis").write_text(json.dumps(both))
    assert [problem.reason.id for problem in open_dump(tmp_path / "both.vis").problems] == [
        "dumps.msprobe_vis.golden_left_out"
    ]


def test_what_only_groups_operators_is_no_node(tmp_path: Path) -> None:
    rows = [
        ("Functional.linear.0.forward", "1", "Apis_Between_Modules.0", {}, "NPU"),
        ("Apis_Between_Modules.0", "9", "Module.a.Linear.forward.0", {}, "NPU"),
        ("Module.a.Linear.forward.0", "0", "DefaultModel", {}, "NPU"),
        ("DefaultModel", "0", "", {}, "NPU"),
    ]
    nodes = read(write(tmp_path / "a.vis.db", *rows)).nodes
    assert [(node.name, node.parent) for node in nodes] == [
        ("Functional.linear.0.forward", "Module.a.Linear.forward.0"),
        ("Module.a.Linear.forward.0", None),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"shape": "[2, -3]"}, "dumps.record.bad_shape"),
        ({"shape": "[" + "9" * 30 + "]"}, "dumps.record.bad_shape"),
        ({"shape": "x"}, "dumps.record.bad_shape"),
        ({"shape": 5.5}, "dumps.record.bad_shape"),
    ],
)
def test_a_value_that_is_damaged_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    inputs = {"Module.a.Linear.forward.0.input.0": {**LEAF, **change}}
    (node,) = read(write(tmp_path / "a.vis.db", ("Module.a.Linear.forward.0", "0", "", inputs, "NPU"))).nodes
    assert ids_of(node.tensors[0].problem) == (problem,)


def test_circles_and_data_that_is_no_json_do_no_harm(tmp_path: Path) -> None:
    rows = [("A", "0", "B", "{", "NPU"), ("B", "0", "A", "[1]", "NPU"), ("C", "0", "C", "", "NPU")]
    nodes = read(write(tmp_path / "a.vis.db", *rows)).nodes
    assert sorted(node.name for node in nodes) == ["A", "B", "C"]
    assert sum(node.parent is None for node in nodes) >= 2
    around = {"a": "b", "b": "a", "c": 3}
    circle = {name: {"node_type": 0, "upnode": parent} for name, parent in around.items()}
    (tmp_path / "b.vis").write_text(json.dumps({"root": "a", "node": circle}))
    assert sorted(node.name for node in read(tmp_path / "b.vis").nodes) == ["a", "b", "c"]


def test_a_view_that_never_ends_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.vis.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "CREATE VIEW tb_nodes AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT 'NPU' AS data_source, x AS step, x AS rank FROM n"
        )
    with refuses(DumpUnreadableError, "dumps.msprobe_vis.no_table"):
        open_dump(file)


def test_columns_that_are_computed_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.vis.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "CREATE TABLE tb_nodes (step INT, input_data TEXT AS (printf('%.*c', 30000000, 'x')))"
        )
        database.execute("INSERT INTO tb_nodes VALUES (0)")
        database.commit()
    with refuses(DumpUnreadableError, "dumps.msprobe_vis.no_table"):
        open_dump(file)


@pytest.mark.parametrize("length", [100, 5000, 200_000, 900_000])
def test_a_database_that_is_cut_short_is_refused_by_name(
    unpacked: Unpacked, tmp_path: Path, length: int
) -> None:
    (whole,) = (unpacked("engines/msprobe_vis") / "golden").iterdir()
    file = tmp_path / "cut.vis.db"
    file.write_bytes(whole.read_bytes()[:length])
    with pytest.raises(DumpUnreadableError) as caught:
        read(file)
    assert caught.value.path == file


def test_what_lies_beside_a_database_is_left_as_it_is(unpacked: Unpacked) -> None:
    folder = unpacked("engines/msprobe_vis") / "golden"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    read(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("name", ["a.vis.db", "a.vis", "a.db"])
@pytest.mark.parametrize("content", [b"", b"SQLite format 4\0", b"[1, 2]", b'{"a": 1}'])
def test_other_files_are_no_graph(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert recognise(tmp_path / name) is None


def test_two_graphs_in_a_folder_are_not_mixed(tmp_path: Path) -> None:
    for name in ("a.vis.db", "b.vis.db"):
        write(tmp_path / name, ("A", "0", "", {}, "NPU"))
    with refuses(DumpNotRecognisedError, "dumps.several", dumps=("a.vis.db", "b.vis.db")):
        open_dump(tmp_path)


values = st.dictionaries(
    st.text(max_size=6),
    st.dictionaries(st.sampled_from([*LEAF, "md5", "value"]), st.text(max_size=8)),
    max_size=3,
)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, st.tuples(names, values), min_size=1, max_size=5))
def test_any_graph_is_read(said: dict[str, tuple[str, dict[str, Any]]]) -> None:
    rows = [(name, "0", parent, inputs, "NPU") for name, (parent, inputs) in said.items()]
    with TemporaryDirectory() as folder:
        nodes = read(write(Path(folder) / "a.vis.db", *rows)).nodes
    known = {node.name for node in nodes}
    assert len(nodes) == len([name for name, (_, inputs) in said.items() if name != "DefaultModel" or inputs])
    assert {node.parent for node in nodes} <= {None, *known}
    for node in nodes:
        labels = [record.label for record in node.tensors]
        assert len(labels) == len(set(labels))


def test_rows_that_are_one_place_of_a_file_do_not_multiply_it(tmp_path: Path) -> None:
    file = tmp_path / "build.vis.db"
    columns = "input_data, output_data, node_name, node_type, up_node, micro_step_id, step, rank, data_source"
    rest = "'', 'Module.a.A.forward.0', 0, 'None', 0, 0, 0, 'NPU'"
    few, many = 20_000, 20_000 + 4092 * 250  # as many bytes of both lie in the first page
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA page_size = 4096")
        database.execute(f"CREATE TABLE tb_nodes ({columns}, node_order)")
        for order in range(40):
            values = (" " * (few if order else many), order)
            database.execute(f"INSERT INTO tb_nodes VALUES (?, {rest}, ?)", values)  # noqa: S608 (ours)
        database.commit()
    content = bytearray(file.read_bytes())
    long = content.index(varint(2 * many + 13))
    for row in [at for at in range(len(content)) if content[at : at + 3] == varint(2 * few + 13)]:
        size, overflow = overflow_of(content, row)
        content[overflow : overflow + 4] = content[overflow_of(content, long)[1] :][:4]
        content[row - 5 : row - 2] = varint(size + many - few)
        content[row : row + 3] = varint(2 * many + 13)
    file.write_bytes(content)
    with refuses(DumpUnreadableError, "dumps.msprobe_vis.rows_too_large"):
        read(file)


def overflow_of(content: bytearray, row: int) -> tuple[int, int]:
    """Return the size of a row, whose first value is described at a place, and where its next page stands."""
    size = content[row - 5] % 128 << 14 | content[row - 4] % 128 << 7 | content[row - 3]
    kept = 489 + (size - 489) % 4092
    return size, row - 1 + (kept if kept <= 4061 else 489)


def varint(number: int) -> bytes:
    return bytes((128 | number >> 14, 128 | number >> 7 & 127, number & 127))
