"""Call trees of transformers' model debugger, written by the real one, are read like any other dump."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import ids_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Report
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError, FirstdriftError
from firstdrift.model.node import NodeKind
from firstdrift.model.slice import RECORDED_ORDER, Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]

ARCHIVE = "transformers/hf_debug_tree"
TREE = "LlamaForCausalLM_debug_tree_FULL_TENSORS.json"
PLANTED = "model.layers.1.mlp.down_proj"
TENSOR = {"shape": "torch.Size([2])", "dtype": "torch.float32", "value": "./x.safetensors"}


@pytest.fixture
def dumps(unpacked: Unpacked) -> Path:
    return unpacked(ARCHIVE)


def read(path: Path) -> Slice:
    dump = open_dump(path)
    assert dump.format == "hf-debug-tree"
    (listing,) = dump.slices
    return read_slice(dump, listing)


def records(slice_: Slice) -> list[TensorRecord]:
    return [record for node in slice_.nodes for record in node.tensors]


def bad_node(report: Report) -> str:
    assert report.findings.first_bad_node is not None
    return report.findings.first_bad_node.module


def write(folder: Path, tree: object, name: str = "M_debug_tree_FULL_TENSORS.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(tree))
    return folder


def test_every_call_is_a_node_and_what_it_called_comes_before_it(dumps: Path) -> None:
    slice_ = read(dumps / "golden")
    assert len(slice_.nodes) == 45
    assert (slice_.nodes[-1].kind, slice_.nodes[-1].path) == (NodeKind.MODEL, "")
    place = {node.name: node.order for node in slice_.nodes}
    assert all(node.parent is None or place[node.parent] > node.order for node in slice_.nodes)
    norms = [node.path for node in slice_.nodes if "layernorm" in node.path]
    assert norms[:2] == ["model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"]
    assert slice_.order_origin == RECORDED_ORDER
    assert not slice_.problems


def test_tensors_are_named_as_msprobe_names_them_and_lead_to_their_values(dumps: Path) -> None:
    attention = next(
        node for node in read(dumps / "golden").nodes if node.path.endswith("layers.0.self_attn")
    )
    assert {record.label for record in attention.tensors if record.is_tensor} == {
        "input.hidden_states",
        "input.position_embeddings.0",
        "input.position_embeddings.1",
        "input.attention_mask",
        "input.position_ids",
    }
    for record in records(read(dumps / "golden")):
        if record.is_tensor:
            assert record.location is not None
            values = load_tensor(record.location)
            assert (values.dtype.name, values.shape) == (record.dtype, record.shape)


@pytest.mark.parametrize(
    ("golden", "target"),
    [("golden", "target"), ("text", "text_target"), ("msprobe", "target"), ("msprobe", "text_target")],
)
def test_the_finding_is_the_same_whatever_wrote_the_dumps(dumps: Path, golden: str, target: str) -> None:
    assert bad_node(compare(dumps / golden, dumps / target)) == PLANTED


def test_the_digits_of_text_are_no_error(dumps: Path) -> None:
    for golden, target in (("msprobe", "text"), ("text", "golden")):
        report = compare(dumps / golden, dumps / target)
        assert report.findings.first_bad_node is None
        assert report.counts.error == 0
        assert report.counts.passed > 90


def test_healthy_runs_of_two_formats_agree(dumps: Path) -> None:
    report = compare(dumps / "msprobe", dumps / "golden")
    assert report.findings.first_bad_node is None
    assert (report.counts.error, report.counts.incomparable) == (0, 0)
    assert report.counts.passed > 100


def test_statistics_stand_in_where_values_are_text(dumps: Path) -> None:
    with_text = [record for record in records(read(dumps / "text")) if record.is_tensor]
    with_files = [record for record in records(read(dumps / "golden")) if record.is_tensor]
    assert not any(record.location for record in with_text)
    for text, file in zip(with_text, with_files, strict=True):
        assert text.statistics == file.statistics
        if text.statistics is not None and file.location is not None and text.statistics.mean is not None:
            values = load_tensor(file.location).astype("f8")
            if abs(values).max() < 1e30:
                assert text.statistics.norm == pytest.approx(float((values**2).sum() ** 0.5), rel=1e-3)


def test_layers_that_were_left_out_are_said_to_be(dumps: Path) -> None:
    (problem,) = read(dumps / "pruned").problems
    assert problem.reason == Message.of("dumps.hf_debug_tree.pruned_layers", count=31)


def test_the_tree_itself_may_be_named(dumps: Path) -> None:
    assert len(read(dumps / "golden" / TREE).nodes) == 45
    summary = read(dumps / "golden" / TREE.replace("FULL_TENSORS", "SUMMARY"))
    assert len(summary.nodes) == 45
    assert not any(record.location for record in records(summary))


def test_a_module_that_ran_twice_has_the_values_of_its_last_call(tmp_path: Path) -> None:
    child = {"module_path": "M.a", "inputs": None, "outputs": TENSOR}
    write(tmp_path, {"module_path": "M", "inputs": {"args": []}, "children": [child, child]})
    (tmp_path / "x.safetensors").write_bytes(b"")
    first, second, _ = read(tmp_path).nodes
    assert [(one.path, one.call) for one in (first, second)] == [("a", 0), ("a", 1)]
    assert first.name != second.name
    assert first.tensors[0].location is None
    assert second.tensors[0].location is not None


def test_trees_of_two_models_are_not_mixed(tmp_path: Path) -> None:
    for model in "M", "N":
        write(tmp_path, {"module_path": model}, f"{model}_debug_tree_SUMMARY.json")
    with refuses(DumpNotRecognisedError, "dumps.hf_debug_tree.several"):
        open_dump(tmp_path)
    assert len(read(tmp_path / "N_debug_tree_SUMMARY.json").nodes) == 1


def test_missing_damaged_and_hostile_files_spoil_their_tensor_alone(dumps: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dumps / "golden", tmp_path / "target")
    (folder / "LlamaForCausalLM.lm_head_outputs.safetensors").unlink()
    (folder / "LlamaForCausalLM.model.norm_outputs.safetensors").write_bytes(b"\x00" * 9)
    outside = tmp_path / "outside.safetensors"
    shutil.copy(folder / "LlamaForCausalLM.model.norm_inputs_args_0.safetensors", outside)
    (folder / "LlamaForCausalLM.model.norm_inputs_args_0.safetensors").unlink()
    (folder / "LlamaForCausalLM.model.norm_inputs_args_0.safetensors").symlink_to(outside)
    problems = [record.problem for record in records(read(folder)) if record.problem]
    assert len(problems) == 2
    assert any("dumps.record.file_missing" in ids_of(problem) for problem in problems)
    assert any("dumps.link.leads_out" in ids_of(problem) for problem in problems)
    report = compare(dumps / "golden", folder)
    assert report.counts.incomparable == 3
    assert report.counts.error == 0


@pytest.mark.parametrize("value", ["../x.safetensors", "/etc/x.safetensors", "x.pt", "a/b.safetensors"])
def test_files_elsewhere_are_refused(tmp_path: Path, value: str) -> None:
    write(tmp_path, {"module_path": "M", "outputs": {**TENSOR, "value": value}})
    (record,) = records(read(tmp_path))
    assert record.location is None
    assert ids_of(record.problem) == ("dumps.hf_debug_tree.no_file_name",)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"module_path": 3}', '{"children": []}'])
def test_a_damaged_tree_is_a_named_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "M_debug_tree_SUMMARY.json").write_text(text)
    with pytest.raises(DumpUnreadableError) as refused:
        read(tmp_path)
    assert refused.value.path == tmp_path / "M_debug_tree_SUMMARY.json"


def test_a_tree_nested_beyond_reason_is_a_named_error(tmp_path: Path) -> None:
    tree: dict[str, object] = {"module_path": "M"}
    for _ in range(450):
        tree = {"module_path": "M", "children": [tree]}
    with refuses(DumpUnreadableError, "dumps.json.nested_too_deeply"):
        read(write(tmp_path, tree))


def test_a_shape_that_no_tensor_has_spoils_its_tensor_alone(tmp_path: Path) -> None:
    usual = {"shape": "torch.Size([2])", "dtype": "torch.float32", "mean": "tensor(1.)", "std": "tensor(1.)"}
    huge = usual | {"shape": f"torch.Size({[2**62] * 20})"}
    tree = {"module_path": "M", "inputs": {"args": [huge, usual], "kwargs": {}}}
    first, second = records(read(write(tmp_path, tree)))
    assert ids_of(first.problem) == ("dumps.record.bad_shape",)
    assert second.problem is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(TENSOR),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["module_path", "inputs", "outputs", "children", "args", "kwargs", "shape", "dtype"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tree=json_values)
def test_any_tree_is_read_or_refused_with_a_reason(tmp_path: Path, tree: object) -> None:
    with suppress(FirstdriftError):
        assert read(write(tmp_path, {"module_path": "M", "children": [tree], "outputs": tree})).nodes
