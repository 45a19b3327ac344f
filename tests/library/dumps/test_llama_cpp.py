"""Logs of llama.cpp's evaluation callback, as the tool wrote them and as it would write others."""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from messages import ids_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError, TensorUnreadableError
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]
EDGE = 3
"""Elements that are printed at each end of a dimension."""


def printed(
    name: str, values: np.ndarray, operator: str = "ADD", sources: str = "", dtype: str = "f32"
) -> str:
    """Write what the callback prints of a tensor of at most four dimensions."""
    ne = [*values.shape[::-1], *[1] * (4 - values.ndim)]
    whole = values.reshape(ne[::-1])
    lines = [f"common_debug_cb_eval: {name:>24} = ({dtype}) {operator:>10}({sources}}}) = {{{dims(ne)}}}\n"]
    for volume in whole:
        lines.append("    [\n")
        for plane in ends(volume, "        ..., \n", lines):
            lines.append("        [\n")
            rows = ends(plane, "            ..., \n", lines)
            lines += (f"            [{line_of(row)}  ],\n" for row in rows)
            lines.append("        ],\n")
        lines.append(f"    ]\n    sum = {float(whole.sum(dtype=np.float64)):f}\n")
    return "".join(lines)


def dims(ne: list[int]) -> str:
    return ", ".join(map(str, ne))


def ends(items: np.ndarray, gap: str, lines: list[str]) -> Iterator[np.ndarray]:
    for at, item in enumerate(items):
        if len(items) > 2 * EDGE and EDGE <= at < len(items) - EDGE:
            if at == EDGE:
                lines.append(gap)
            continue
        yield item


def line_of(row: np.ndarray) -> str:
    shown = [*row] if len(row) <= 2 * EDGE else [*row[:EDGE], None, *row[-EDGE:]]
    return ", ".join("   ..." if value is None else f"{value:12.4f}" for value in shown)


def elements(values: np.ndarray) -> list[float]:
    """Return the elements that are printed."""
    kept = values
    for axis, size in enumerate(values.shape):
        if size > 2 * EDGE and axis >= values.ndim - 3:
            kept = np.take(kept, [*range(EDGE), *range(size - EDGE, size)], axis=axis)
    return [float(f"{value:.4f}") for value in kept.ravel()]


def log(folder: Path, *tensors: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "eval.log"
    file.write_text("llama_model_loader: loaded meta data\n" + "".join(tensors))
    return file


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "llama-cpp"
    return read_slice(dump, dump.slices[at])


def output(node: Node) -> tuple[str, list[float]]:
    record = next(record for record in node.tensors if record.label == "output.0")
    assert record.location is not None, record.problem
    values = load_tensor(record.location)
    assert values.shape == record.shape
    return record.dtype, values.tolist()


def problems(slice_: Slice) -> list[tuple[str, str]]:
    return [
        (node.name, id_)
        for node in slice_.nodes
        for record in node.tensors
        if record.label == "output.0"
        for id_ in ids_of(record.problem)
    ]


def test_a_fault_is_found_at_the_operator_where_it_was_planted(unpacked: Unpacked) -> None:
    folder = unpacked("engines/llama_cpp")
    dump = open_dump(folder / "golden")
    assert [message.id for message in dump.evidence] == ["dumps.llama_cpp.log"]
    report = compare(folder / "golden", folder / "target")
    found = report.findings.first_bad_node
    assert found is not None
    assert found.target == "blk.1.ffn_out"
    assert report.findings.suspects == ()


def test_two_healthy_runs_agree(unpacked: Unpacked) -> None:
    folder = unpacked("engines/llama_cpp")
    report = compare(folder / "golden", folder / "healthy")
    assert report.findings.first_bad_node is None
    assert report.counts.passed > 350
    assert report.counts.error == 0


def test_operators_lie_in_their_layers_and_take_what_was_printed_before(unpacked: Unpacked) -> None:
    slice_ = read(unpacked("engines/llama_cpp") / "golden")
    nodes = {node.name: node for node in slice_.nodes}
    down = nodes["blk.1.ffn_out"]
    assert (down.parent, down.type_name) == ("blk.1", "MUL_MAT")
    assert [record.label for record in down.tensors] == [
        "input.1.shape",
        "input.1",
        "output.0.shape",
        "output.0",
    ]
    assert [record.scalar for record in down.tensors] == ["[17, 64]", None, "[17, 32]", None]
    taken, (_, given) = down.tensors[1], output(nodes["blk.1.ffn_swiglu"])
    assert taken.location is not None
    assert load_tensor(taken.location).tolist() == given
    assert nodes["blk.1.norm (call 1)"].call == 1
    assert output(nodes["blk.0.kqv_out"])[0] == "float32 to 4 decimals"
    assert problems(slice_) == [("blk.2.ffn_out", "dumps.ggml_log.cut_short")]


def test_the_values_are_those_printed_and_the_sum_over_the_root_of_their_number(tmp_path: Path) -> None:
    values = np.arange(200, dtype=np.float32).reshape(20, 10) / 7
    (node,) = read(log(tmp_path, printed("x", values))).nodes
    dtype, found = output(node)
    assert dtype == "float32 to 4 decimals"
    assert found == [*elements(values), pytest.approx(float(values.sum()) / math.sqrt(200), rel=1e-5)]


def test_an_error_in_what_was_not_printed_is_seen_in_the_sum(tmp_path: Path) -> None:
    golden = np.random.default_rng(1).standard_normal((20, 64)).astype(np.float32)
    target = golden.copy()
    target[8:12, 20:40] += 0.5
    assert elements(golden) == elements(target)
    given = printed("given", golden)
    logs = [given + printed("x", one, "MUL", "given{64, 20, 1, 1}, ") for one in (golden, target)]
    paths = [log(tmp_path / str(at), text) for at, text in enumerate(logs)]
    found = compare(*paths).findings.first_bad_node
    assert found is not None
    assert found.target == "x"


def test_equal_numbers_that_are_rounded_to_other_decimals_are_no_fault(tmp_path: Path) -> None:
    golden = np.random.default_rng(1).standard_normal((9, 64)).astype(np.float32) / 50
    target = golden * np.float32(1 + 1e-6)
    paths = [log(tmp_path / str(at), printed("x", one)) for at, one in enumerate((golden, target))]
    assert compare(*paths).counts.error == 0


def test_each_evaluation_of_the_graph_is_a_step(tmp_path: Path) -> None:
    one = np.ones((2, 3), np.float32)
    graph = [
        printed("norm-0", one, "RMS_NORM", "inp{3, 2, 1, 1}, "),
        printed("norm-0", one, "RMS_NORM", "ffn_inp-0{3, 2, 1, 1}, "),
    ]
    dump = open_dump(log(tmp_path, *graph, *graph))
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(0), Coordinates(1)]
    assert [node.name for node in read_slice(dump, dump.slices[1]).nodes] == [
        "blk.0.norm",
        "blk.0.norm (call 1)",
        "blk.0",
    ]


def test_logs_of_earlier_releases_are_read(tmp_path: Path) -> None:
    old = (
        "ggml_debug:    inp_embd =   GET_ROWS(embd.weight{8, 9, 1, 1}, t{1, 1, 1, 1}}) = {8, 1, 1, 1} \n"
        "                                     [\n                                      [\n"
        "                                       [ -0.0181,  -0.0181,   0.0453, ...],\n"
        "                                      ],\n                                     ]\n"
        "ggml_debug:      norm-0 = (f32)       NORM(CUDA0#inp_embd#0{8, 1, 1, 1}, }) = {8, 1, 1, 1}\n"
        "                                     [\n                                      [\n"
        "                                       [ -0.6989,  nan,   inf, ...],\n"
        "                                      ],\n                                     ]\n"
    )
    first, norm, _ = read(log(tmp_path, old)).nodes
    assert output(first) == ("float32 to 4 decimals", [-0.0181, -0.0181, 0.0453])
    assert [record.label for record in norm.tensors] == [
        "input.0.shape",
        "input.0",
        "output.0.shape",
        "output.0",
    ]
    assert str(output(norm)[1]) == "[-0.6989, nan, inf]"


def test_whole_numbers_and_what_is_not_printed(tmp_path: Path) -> None:
    ids = np.array([[3, 1], [2, 5]], np.int32)
    quantised = "common_debug_cb_eval: w = (q8_0) CPY(, }) = {32, 2, 1, 1}\n"
    slice_ = read(
        log(tmp_path, quantised, printed("top", ids, "TOP_K", dtype="i32"), printed("e", np.zeros((0, 3))))
    )
    nodes = {node.name: node for node in slice_.nodes}
    assert output(nodes["top"]) == ("int64", [3, 1, 2, 5])
    assert problems(slice_) == [("w", "dumps.llama_cpp.not_printed")]


def test_a_log_that_is_cut_short_spoils_its_last_tensor_only(tmp_path: Path) -> None:
    text = "".join(printed(name, np.ones((3, 4), np.float32)) for name in ("a", "b", "c"))
    for length in range(len(text) - 90, len(text) - 2, 11):
        slice_ = read(log(tmp_path, text[:length]))
        assert [name for name, _ in problems(slice_)] in ([], ["c"])
        assert len(slice_.nodes) in (2, 3)


def test_numbers_that_are_none_are_said_to_be(tmp_path: Path) -> None:
    text = printed("a", np.ones((1, 2), np.float32)).replace("1.0000", "1.0x00", 1)
    slice_ = read(log(tmp_path, text))
    assert problems(slice_) == [("a", "dumps.ggml_log.no_number")]


def test_two_logs_in_a_folder_are_not_mixed(tmp_path: Path) -> None:
    for name in ("a.log", "b.txt"):
        shutil.copy(log(tmp_path / "x", printed("a", np.ones((1, 2)))), tmp_path / name)
    shutil.rmtree(tmp_path / "x")
    with refuses(DumpNotRecognisedError, "dumps.several", dumps=("a.log", "b.txt")):
        open_dump(tmp_path)
    assert open_dump(tmp_path / "a.log").format == "llama-cpp"


def test_a_log_that_has_changed_is_said_to_hold_no_tensor_there(tmp_path: Path) -> None:
    file = log(tmp_path, printed("a", np.ones((1, 2), np.float32)))
    (node,) = read(file).nodes
    file.write_text("something else")
    with pytest.raises(TensorUnreadableError):
        output(node)


def test_a_link_out_of_the_dump_is_not_followed(tmp_path: Path) -> None:
    outside = log(tmp_path / "outside", printed("a", np.ones((1, 2))))
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "eval.log").symlink_to(outside)
    with refuses(DumpUnreadableError, "dumps.link.leads_out"):
        open_dump(tmp_path / "dump")


@pytest.mark.parametrize("text", ["", "no tensor\n", "ggml_debug: \n", "ggml_debug: a = b" * 50_000])
def test_other_logs_are_no_dump(tmp_path: Path, text: str) -> None:
    (tmp_path / "eval.log").write_text(text)
    assert recognise(tmp_path) is None


arrays = some.arrays(
    np.float32,
    some.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=9),
    elements=st.floats(-1e4, 1e4, width=32),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(arrays, min_size=1, max_size=4))
def test_what_was_printed_is_read_again(said: list[np.ndarray]) -> None:
    with TemporaryDirectory() as folder:
        slice_ = read(log(Path(folder), *(printed(f"t{at}", one) for at, one in enumerate(said))))
        assert [node.name for node in slice_.nodes] == [f"t{at}" for at in range(len(said))]
        for node, values in zip(slice_.nodes, said, strict=True):
            _, found = output(node)
            assert found[:-1] == elements(values)
            assert found[-1] * math.sqrt(values.size) == pytest.approx(values.sum(dtype=np.float64), abs=1e-3)
