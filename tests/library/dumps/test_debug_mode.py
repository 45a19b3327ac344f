"""Logs of PyTorch's DebugMode, as it wrote them and as it would write others."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import ids_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.debug_mode import parse_line
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.node import NodeKind
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]
CALL = "aten::relu(t: f32[2, 8])  ->  t: f32[2, 8]  # {'input_hash': ((4.5,), {}), 'hash': 1.25}"


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "debug-mode"
    return read_slice(dump, dump.slices[at])


def log(folder: Path, *lines: str, name: str = "debug.log") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines))
    return folder


def values(text: str) -> list[tuple[str, str, str, str | None]]:
    line = parse_line(text)
    assert line is not None
    return [(one.key, one.dtype, one.shape or one.text, one.hash) for one in (*line.inputs, *line.outputs)]


def test_a_fault_is_found_in_its_module_and_a_healthy_run_agrees(unpacked: Unpacked) -> None:
    folder = unpacked("engines/debug_mode")
    dump = open_dump(folder / "golden")
    assert [message.id for message in dump.evidence] == ["dumps.debug_mode.logs"]
    found = compare(folder / "golden", folder / "target").findings.first_bad_node
    assert found is not None
    assert found.module == "model.layers.1.mlp.down_proj"
    report = compare(folder / "golden", folder / "healthy")
    assert (report.counts.error, report.counts.incomparable) == (0, 0)
    assert report.counts.passed > 700


def test_operators_lie_in_their_modules_in_the_order_in_which_they_end(unpacked: Unpacked) -> None:
    nodes = {node.name: node for node in read(unpacked("engines/debug_mode") / "golden").nodes}
    module = nodes["Model.model.layers.1.mlp.down_proj"]
    assert (module.path, module.kind, module.parent) == (
        "model.layers.1.mlp.down_proj",
        NodeKind.MODULE,
        "Model.model.layers.1.mlp",
    )
    inside = [node for node in nodes.values() if node.parent == module.name]
    assert [node.type_name for node in inside] == ["Aten.t", "Aten.mm"]
    assert all(node.order < module.order for node in inside)
    assert [record.label for record in inside[1].tensors] == ["input.0", "input.1", "output.0"]
    given = [load_tensor(record.location).item() for record in inside[1].tensors if record.location]
    assert len(given) == 3
    assert given[1] == next(
        load_tensor(record.location).item() for record in inside[0].tensors if record.label == "output.0"
    )


def test_checksums_of_bits_are_equal_or_not(unpacked: Unpacked) -> None:
    folder = unpacked("engines/debug_mode")
    records = [record for node in read(folder / "bits").nodes for record in node.tensors]
    assert sum(record.digest is not None for record in records) > 500
    report = compare(folder / "bits", folder / "bits")
    assert (report.counts.error, report.counts.incomparable) == (0, 0)


def test_lists_names_and_placements_are_read() -> None:
    text = (
        "    aten::cat(['dt$0: f32[2, 8]| S(0)', 't: bf16[4]'], -1, out=t$3: i64[], alpha=[1, 2])"
        "  ->  ('t: f32[2]', 't: f32[3]')"
        "  # {'input_hash': (([1.0, 2.5], None), {'out': 7.0}), 'hash': (3.0, nan)}"
    )
    assert values(text) == [
        ("0.0", "float32", "2, 8", "1.0"),
        ("0.1", "bfloat16", "4", "2.5"),
        ("1", "", "-1", None),
        ("out", "int64", "", "7.0"),
        ("alpha", "", "[1, 2]", None),
        ("0", "float32", "2", "3.0"),
        ("1", "float32", "3", "nan"),
    ]


@pytest.mark.parametrize(
    "line", ["# File: a.py, code: x", "", "hello", "[annotate] x", "aten::relu(t: f32[2]"]
)
def test_other_lines_are_no_calls(line: str) -> None:
    assert parse_line(line) is None


def test_calls_without_hashes_say_so(tmp_path: Path) -> None:
    (node,) = read(log(tmp_path, "aten::relu(t: f32[2, 8])  ->  t: f32[2, 8]")).nodes
    assert [ids_of(record.problem) for record in node.tensors] == [("dumps.debug_mode.no_hash",)] * 2


@pytest.mark.parametrize(
    "recorded",
    [
        "{'hash': __import__('os')}",
        "{'hash': (((",
        "{" + "[" * 5000,
        "{'hash': True}",
        "{'hash': []}",
        "{[]: 1}",
        "{'hash': 0x" + "f" * 6000 + "}",
    ],
)
def test_what_stands_for_hashes_is_not_run(tmp_path: Path, recorded: str) -> None:
    (node,) = read(log(tmp_path, f"aten::relu(t: f32[2])  ->  t: f32[2]  # {recorded}")).nodes
    assert {ids_of(record.problem) for record in node.tensors} == {("dumps.debug_mode.no_hash",)}


def test_logs_of_ranks_are_slices_and_others_are_not_mixed(tmp_path: Path) -> None:
    for rank in range(2):
        log(tmp_path / "ranks", CALL, name=f"debug_rank{rank}.log")
        log(tmp_path / "runs", CALL, name=f"run{rank}.log")
    assert [one.coordinates for one in open_dump(tmp_path / "ranks").slices] == [
        Coordinates(rank=0),
        Coordinates(rank=1),
    ]
    with refuses(DumpNotRecognisedError, "dumps.several"):
        open_dump(tmp_path / "runs")


def test_modules_that_never_end_are_refused(tmp_path: Path) -> None:
    lines = [f"{' ' * depth}[nn.Mod] M.{depth}" for depth in range(2000)]
    with pytest.raises(DumpUnreadableError):
        read(log(tmp_path, CALL, *lines))


@pytest.mark.parametrize("text", ["", "aten::relu", "[nn.Mod]", "a log of something\n" * 100])
def test_other_logs_are_no_dump(tmp_path: Path, text: str) -> None:
    assert recognise(log(tmp_path, text)) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=80), max_size=10))
def test_any_lines_are_read(lines: list[str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "debug.log"
        path.write_text("\n".join([CALL, *lines]), encoding="utf-8", errors="replace")
        nodes = read(Path(folder)).nodes
    assert nodes[0].type_name == "Aten.relu"
    assert len({node.name for node in nodes}) == len(nodes)


floats = st.floats(min_value=0, allow_infinity=False, allow_nan=False)


@settings(max_examples=20, deadline=None)
@given(st.lists(floats, min_size=1, max_size=5))
def test_the_hash_of_a_tensor_is_its_value(found: list[float]) -> None:
    lines = [f"aten::relu(t: f64[2])  ->  t: f64[2]  # {{'hash': {value}}}" for value in found]
    with TemporaryDirectory() as folder:
        nodes = read(log(Path(folder), *lines)).nodes
        loaded = [load_tensor(node.tensors[-1].location).item() for node in nodes]
    assert loaded == found


def test_what_is_written_now_is_read(tmp_path: Path) -> None:
    from torch.utils._debug_mode import DebugMode

    with DebugMode(record_nn_module=True, record_ids=True) as mode, DebugMode.log_tensor_hashes():
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())(torch.ones(2, 4))
    nodes = read(log(tmp_path, mode.debug_string())).nodes
    assert [node.name for node in nodes if node.kind is NodeKind.MODULE] == [
        "Sequential.0",
        "Sequential.1",
        "Sequential",
    ]
