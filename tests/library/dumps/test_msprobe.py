"""What the msprobe reader finds in dumps that the real msprobe wrote."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from library.dumps.msprobe_samples import module, tensor, write_dump
from messages import ids_of, outline, refuses

from firstdrift.dumps.msprobe.reader import MsprobeReader
from firstdrift.errors import DumpNotFoundError, DumpNotRecognisedError
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
READER = MsprobeReader()

NODES_AND_TENSORS = [
    ("async_stat_mix/golden", [(152, 336)]),
    ("async_stat_mix/target", [(152, 336)]),
    ("comm2_stat_mix/golden", [(25, 66), (24, 57)]),
    ("comm2_stat_mix/target", [(25, 66), (24, 57)]),
    ("d32_renamed/golden", [(3930, 7391)]),
    ("d32_renamed/target", [(3934, 7399)]),
    ("d4_renamed/golden", [(542, 1007)]),
    ("d4_renamed/target", [(546, 1015)]),
    ("d4_renamed/target_scaled_weight", [(542, 1007)]),
    ("dp2_md5_mix/golden", [(354, 600), (354, 600)]),
    ("dp2_md5_mix/target", [(354, 600), (354, 600)]),
    ("dp2_stat_mix/golden", [(378, 667), (378, 667), (378, 667), (378, 667)]),
    ("dp2_stat_mix/target", [(378, 667), (378, 667), (378, 667), (378, 667)]),
    ("llama_md5_mix_perturb/golden", [(636, 1084)]),
    ("llama_md5_mix_perturb/target", [(636, 1084)]),
    ("llama_stat_L0_generate/golden", [(228, 768)]),
    ("llama_stat_L0_generate/target", [(228, 768)]),
    ("llama_stat_L0_perturb/golden", [(152, 336)]),
    ("llama_stat_L0_perturb/target", [(152, 336)]),
    ("llama_stat_L1_perturb/golden", [(305, 748)]),
    ("llama_stat_L1_perturb/target", [(305, 748)]),
    ("llama_stat_fwdout/golden", [(597, 261)]),
    ("llama_stat_fwdout/target", [(597, 261)]),
    ("llama_stat_list/golden", [(597, 27)]),
    ("llama_stat_list/target", [(597, 27)]),
    ("llama_stat_mix_3steps/golden", [(568, 1121), (568, 1121), (568, 1121)]),
    ("llama_stat_mix_3steps/target", [(568, 1121), (568, 1121), (568, 1121)]),
    ("llama_stat_mix_attn/golden", [(636, 1084)]),
    ("llama_stat_mix_attn/target", [(551, 994)]),
    ("llama_stat_mix_identical/golden", [(636, 1084)]),
    ("llama_stat_mix_identical/target", [(636, 1084)]),
    ("llama_stat_mix_inf/golden", [(636, 1084)]),
    ("llama_stat_mix_inf/target", [(636, 1084)]),
    ("llama_stat_mix_microstep/golden", [(700, 1184)]),
    ("llama_stat_mix_microstep/target", [(700, 1184)]),
    ("llama_stat_mix_nan/golden", [(636, 1084)]),
    ("llama_stat_mix_nan/target", [(636, 1084)]),
    ("llama_stat_mix_perturb/golden", [(636, 1084)]),
    ("llama_stat_mix_perturb/target", [(636, 1084)]),
    ("llama_stat_mix_precision_high/golden", [(636, 1084)]),
    ("llama_stat_mix_precision_high/target", [(636, 1084)]),
    ("llama_stat_mix_proc/golden", [(152, 336)]),
    ("llama_stat_mix_proc/target", [(152, 336)]),
    ("llama_stat_mix_recompute/golden", [(348, 601)]),
    ("llama_stat_mix_recompute/target", [(425, 762)]),
    ("llama_stat_mix_riskall/golden", [(636, 1479)]),
    ("llama_stat_mix_riskall/target", [(636, 1479)]),
    ("llama_stat_mix_tensorlist/golden", [(636, 1084)]),
    ("llama_stat_mix_tensorlist/target", [(636, 1084)]),
    ("llama_stat_noextra/golden", [(457, 1084)]),
    ("llama_stat_noextra/target", [(457, 1084)]),
    ("llama_structure_mix_attn/golden", [(597, 0)]),
    ("llama_structure_mix_attn/target", [(512, 0)]),
    ("llama_tensor_L0_2steps/golden", [(82, 180), (82, 180)]),
    ("llama_tensor_L0_2steps/target", [(82, 180), (82, 180)]),
    ("llama_tensor_L0_bf16/golden", [(152, 336)]),
    ("llama_tensor_L0_bf16/target", [(152, 336)]),
    ("llama_tensor_L1_identical/golden", [(305, 748)]),
    ("llama_tensor_L1_identical/target", [(305, 748)]),
    ("llama_tensor_mix_perturb/golden", [(636, 1084)]),
    ("llama_tensor_mix_perturb/target", [(636, 1084)]),
    ("llama_xor_mix_perturb/golden", [(636, 1084)]),
    ("llama_xor_mix_perturb/target", [(636, 1084)]),
    ("megatron_microstep_stat_mix/golden", [(1059, 1791), (1059, 1791)]),
    ("megatron_microstep_stat_mix/target", [(1059, 1791), (1059, 1791)]),
    ("mixtral_stat_mix_perturb/golden", [(526, 936)]),
    ("mixtral_stat_mix_perturb/target", [(526, 936)]),
    ("qwen25vl_layermap_stat_mix/golden", [(825, 1326)]),
    ("qwen25vl_layermap_stat_mix/target", [(782, 1313)]),
    ("qwen2_layermap_stat_L0_clean/golden", [(154, 365)]),
    ("qwen2_layermap_stat_L0_clean/target", [(124, 278)]),
    ("qwen2_layermap_stat_mix/golden", [(638, 1125)]),
    ("qwen2_layermap_stat_mix/target", [(661, 1096)]),
    ("tp2_vs_tp1/golden", [(371, 610)]),
    ("tp2_vs_tp1/target", [(383, 626), (383, 626)]),
    ("zoo_stat_mix/golden", [(72, 179)]),
    ("zoo_stat_mix/target", [(72, 179)]),
    ("zoo_tensor_mix/golden", [(72, 179)]),
    ("zoo_tensor_mix/target", [(72, 179)]),
    ("zoo_xor_mix/golden", [(72, 179)]),
    ("zoo_xor_mix/target", [(72, 179)]),
]
"""Nodes and tensors of each slice."""

NODES_OF_THE_PEER = [
    ("comm2_stat_mix", [27, 26], 1),
    ("dp2_md5_mix", [357, 357], 2),
    ("dp2_stat_mix", [381, 381, 381, 381], 2),
    ("llama_md5_mix_perturb", [638], 1),
    ("llama_stat_L0_generate", [229], 0),
    ("llama_stat_L0_perturb", [153], 0),
    ("llama_stat_fwdout", [599], 1),
    ("llama_stat_mix_3steps", [570, 570, 570], 1),
    ("llama_stat_mix_attn", [553], 1),
    ("llama_stat_mix_identical", [638], 1),
    ("llama_stat_mix_inf", [638], 1),
    ("llama_stat_mix_microstep", [703], 2),
    ("llama_stat_mix_nan", [638], 1),
    ("llama_stat_mix_perturb", [638], 1),
    ("llama_stat_mix_precision_high", [638], 1),
    ("llama_stat_mix_proc", [153], 0),
    ("llama_stat_mix_recompute", [426], 0),
    ("llama_stat_mix_riskall", [638], 1),
    ("llama_stat_mix_tensorlist", [638], 1),
    ("llama_structure_mix_attn", [514], 1),
    ("llama_tensor_L0_2steps", [83, 83], 0),
    ("llama_xor_mix_perturb", [638], 1),
    ("megatron_microstep_stat_mix", [1063, 1063], 3),
    ("mixtral_stat_mix_perturb", [528], 1),
    ("qwen25vl_layermap_stat_mix", [784], 1),
    ("qwen2_layermap_stat_L0_clean", [125], 0),
    ("qwen2_layermap_stat_mix", [664], 2),
    ("tp2_vs_tp1", [386, 386], 2),
    ("zoo_stat_mix", [74], 1),
    ("zoo_tensor_mix", [74], 1),
    ("zoo_xor_mix", [74], 1),
]
"""Nodes that msprobe's graph_visualize counts in the target, and how many top-level groups
`Apis_Between_Modules` are among them, less the operators that construct.json lacks, which it drops."""


def slices_of(path: Path) -> list[Slice]:
    dump = READER.open_dump(path)
    assert dump.problems == ()
    return [READER.read_slice(dump, listing) for listing in dump.slices]


def only_slice(path: Path) -> Slice:
    (only,) = slices_of(path)
    return only


def tensors_of(read: Slice, node: str) -> dict[str, TensorRecord]:
    (found,) = (candidate for candidate in read.nodes if candidate.name == node)
    return {record.label: record for record in found.tensors}


def node_called(read: Slice, name: str) -> Node:
    (found,) = (candidate for candidate in read.nodes if candidate.name == name)
    return found


def tensors_in(value: object) -> Iterator[dict[str, Any]]:
    """Find everything with a shape and a dtype in a JSON value."""
    if isinstance(value, dict) and isinstance(value.get("dtype"), str) and "shape" in value:
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(inner)


@pytest.mark.parametrize(("dump", "expected"), NODES_AND_TENSORS)
def test_every_node_and_tensor_of_the_files_is_found(
    unpacked: Unpacked, dump: str, expected: list[tuple[int, int]]
) -> None:
    archive, _, side = dump.partition("/")
    read = slices_of(unpacked(f"msprobe/{archive}") / side)
    tensors = [[record for node in one.nodes for record in node.tensors] for one in read]
    found = [sum(record.is_tensor for record in records) for records in tensors]
    assert [(len(one.nodes), count) for one, count in zip(read, found, strict=True)] == expected
    for one, records, count in zip(read, tensors, found, strict=True):
        data, construct = files_of(one)
        assert {node.name for node in one.nodes} == {*data, *construct} - {"megatron_micro_step_number"}
        assert len({node.name for node in one.nodes}) == len(one.nodes)
        assert count == len(list(tensors_in(data)))
        assert [record.problem for record in records if record.problem] == []
        expected_problems = [("clauses", "dumps.file.missing", "dumps.msprobe.tree_from_names")]
        assert [ids_of(problem.reason) for problem in one.problems] == (
            expected_problems if archive == "llama_stat_noextra" else []
        )


def files_of(read: Slice) -> tuple[dict[str, Any], dict[str, Any]]:
    data = json.loads((read.listing.directory / "dump.json").read_text())["data"]
    construct = read.listing.directory / "construct.json"
    return data, json.loads(construct.read_text()) if construct.exists() else {}


@pytest.mark.parametrize("dump", [name for name, _ in NODES_AND_TENSORS])
def test_every_node_lies_under_a_node_that_finished_after_it(unpacked: Unpacked, dump: str) -> None:
    archive, _, side = dump.partition("/")
    for read in slices_of(unpacked(f"msprobe/{archive}") / side):
        orders = {node.name: node.order for node in read.nodes}
        assert list(orders.values()) == list(range(len(read.nodes)))
        assert all(node.parent is None or orders[node.parent] > node.order for node in read.nodes)


@pytest.mark.parametrize(("archive", "peer", "groups"), NODES_OF_THE_PEER)
def test_the_peer_counts_the_same_nodes_and_its_root_and_groups(
    unpacked: Unpacked, archive: str, peer: list[int], groups: int
) -> None:
    read = slices_of(unpacked(f"msprobe/{archive}") / "target")
    default_model = 1
    assert [len(one.nodes) + default_model + groups for one in read] == peer


@pytest.mark.parametrize("archive", ["debug_stat", "debug_tensor"])
def test_a_dump_of_single_points_is_another_format(unpacked: Unpacked, archive: str) -> None:
    path = unpacked(f"msprobe/{archive}") / "golden"
    assert READER.recognise(path) == ()
    with refuses(DumpNotRecognisedError, "dumps.file.problem"):
        READER.open_dump(path)


def test_an_msprobe_dump_is_recognised_and_says_what_it_is(unpacked: Unpacked) -> None:
    path = unpacked("msprobe/llama_tensor_mix_perturb") / "golden"
    header = ("task tensor", "level mix", "framework pytorch")
    said = Message.of("dumps.msprobe.file_with_data", file="step0/rank0/dump.json", header=header)
    assert READER.recognise(path) == (said,)
    dump = READER.open_dump(path)
    assert dump.attributes == {"task": "tensor", "level": "mix", "framework": "pytorch"}
    assert dump.evidence == (said,)


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        pytest.param("", [(0, 0), (0, 1), (1, 0), (1, 1)], id="dump"),
        pytest.param("step1", [(1, 0), (1, 1)], id="step"),
        pytest.param("step1/rank0", [(1, 0)], id="rank"),
        pytest.param("step1/rank0/dump.json", [(1, 0)], id="file"),
    ],
)
def test_any_level_of_a_dump_may_be_given(
    unpacked: Unpacked, below: str, expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked("msprobe/dp2_stat_mix") / "golden" / below
    coordinates = [listing.coordinates for listing in READER.open_dump(path).slices]
    assert coordinates == [Coordinates(step, rank) for step, rank in expected]
    if path.is_dir():
        monkeypatch.chdir(path)
        assert [listing.coordinates for listing in READER.open_dump(Path()).slices] == coordinates


def test_a_process_without_a_rank_has_none_where_it_is_alone(unpacked: Unpacked) -> None:
    dump = READER.open_dump(unpacked("msprobe/llama_stat_mix_proc") / "golden")
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(step=0)]
    assert "ranks" not in dump.attributes


@pytest.mark.parametrize(
    ("folders", "expected", "said"),
    [
        pytest.param(["step0/rank"], [(0, None)], None, id="older-releases"),
        pytest.param(["rank0", "rank10", "rank2"], [(None, 0), (None, 2), (None, 10)], None, id="no-steps"),
        pytest.param(["step0", "step11", "step2"], [(0, None), (2, None), (11, None)], None, id="no-ranks"),
        pytest.param([""], [(None, None)], None, id="no-levels"),
        pytest.param(["graph/step0/rank0"], [(0, 0)], None, id="mindspore-mixed-mode"),
        pytest.param(["step3/pid77"], [(3, None)], None, id="aclgraph"),
        pytest.param(
            ["step0/proc9", "step0/proc10"],
            [(0, 0), (0, 1)],
            "given_ranks given_rank proc9 0 given_rank proc10 1",
            id="several-processes",
        ),
        pytest.param(
            ["step0/rank0", "step0/proc10"],
            [(0, 0), (0, 1)],
            "given_ranks given_rank proc10 1",
            id="rank-and-process",
        ),
        pytest.param(
            ["step0/proc9", "step1/proc10"], [(0, None), (1, None)], None, id="one-process-after-the-other"
        ),
    ],
)
def test_steps_and_ranks_come_from_the_names_of_directories(
    tmp_path: Path, folders: list[str], expected: list[tuple[int | None, int | None]], said: str | None
) -> None:
    for folder in folders:
        write_dump(tmp_path / folder, {"Module.a.A.forward.0": module()})
    dump = READER.open_dump(tmp_path)
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(*each) for each in expected]
    given = dump.attributes.get("ranks")
    assert (given and outline(given)) == said
    assert dump.problems == ()


def test_a_directory_without_a_slice_is_reported(tmp_path: Path) -> None:
    write_dump(tmp_path / "step0" / "rank0", {"Module.a.A.forward.0": module()})
    (tmp_path / "step0" / "rank1").mkdir()
    (tmp_path / "notes").mkdir()
    dump = READER.open_dump(tmp_path)
    assert [(problem.file, problem.reason) for problem in dump.problems] == [
        ("step0/rank1", Message.of("dumps.msprobe.no_mark", name="dump.json"))
    ]


def test_two_slices_that_cannot_be_told_apart_are_reported(tmp_path: Path) -> None:
    for mode in ("graph", "pynative"):
        write_dump(tmp_path / mode / "step0" / "rank0", {"Module.a.A.forward.0": module()})
    dump = READER.open_dump(tmp_path)
    assert len(dump.slices) == 1
    assert [problem.file for problem in dump.problems] == ["pynative/step0/rank0"]


def test_nothing_and_anything_else_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DumpNotFoundError):
        READER.open_dump(tmp_path / "gone")
    with pytest.raises(DumpNotRecognisedError):
        READER.open_dump(tmp_path)
    (tmp_path / "dump.json").write_text('{"heap": []}')
    assert READER.recognise(tmp_path) == READER.recognise(tmp_path / "gone") == ()


def test_a_link_that_leads_back_up_does_not_lead_astray(tmp_path: Path) -> None:
    write_dump(tmp_path / "step0" / "rank0", {"Module.a.A.forward.0": module()})
    (tmp_path / "step0" / "rank1").symlink_to(tmp_path)
    assert [listing.coordinates for listing in READER.open_dump(tmp_path).slices] == [Coordinates(0, 0)]


def test_every_kind_of_argument_is_recorded(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/zoo_tensor_mix") / "golden")
    found = tensors_of(read, "Module.w.Weird.forward.0")
    scalars = {
        label: (record.dtype, record.scalar) for label, record in found.items() if not record.is_tensor
    }
    assert scalars == {
        "input.1": ("int", "1"),
        "input.2": ("float", "2.5"),
        "input.3": ("str", "pos"),
        "input.5.0": ("int", "1"),
        "input.5.1": ("int", "2"),
        "input.5.2.0": ("int", "3"),
        "input.flag": ("bool", "False"),
        "input.cfg.a": ("int", "1"),
        "input.size": ("torch.Size", "[2, 3]"),
        "input.dtype": ("torch.dtype", "torch.bfloat16"),
        "input.device": ("torch.device", "cpu:None"),
        "input.sl": ("slice", "[1, 3, 2]"),
        "input.el": ("ellipsis", "..."),
        "input.npi": ("int64", "5"),
        "input.npf": ("float32", "2.5"),
        "input.neg": ("int", "-1"),
        "input.big": ("int", "1099511627776"),
        "input.mf": ("torch.memory_format", "contiguous_format"),
        "output.0.s": ("str", "str"),
        "output.0.f": ("float", "1.5"),
    }
    assert {label for label, record in found.items() if record.is_tensor} == {
        *("input.0", "input.5.2.1", "input.6.0", "input.6.1.z", "input.cfg.b.c", "input.arr", "input.strs"),
        *("output.0.y", "output.0.nt.a", "output.0.nt.b.0", "output.0.dc.x", "output.0.dc.y.k"),
        *("output.0.t.0", "output.0.t.1.0", "output.0.t.1.1"),
    }
    assert found["input.strs"].dtype == "<U1"
    assert found["input.arr"].statistics == Statistics(5.0, 0.0, 2.5, 7.416198253631592)


def test_tensors_that_were_saved_say_where_they_lie(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/zoo_tensor_mix") / "golden")
    located = [record for node in read.nodes for record in node.tensors if record.location]
    assert {record.location.container for record in located if record.location} == {"pt", "npy"}
    assert all(record.location.file.is_file() for record in located if record.location)


def test_a_statistics_dump_may_have_saved_some_tensors(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/llama_stat_mix_tensorlist") / "target")
    saved = {node.path for node in read.nodes for record in node.tensors if record.location}
    assert "model.layers.2.mlp.down_proj" in saved
    assert "model.layers.2.mlp.up_proj" not in saved


def test_checksums_are_digests_as_text(unpacked: Unpacked) -> None:
    md5 = only_slice(unpacked("msprobe/llama_md5_mix_perturb") / "golden")
    assert tensors_of(md5, "Functional.embedding.0.forward")["input.0"].digest == "d49012e8"
    xor = tensors_of(only_slice(unpacked("msprobe/zoo_xor_mix") / "golden"), "Module.w.Weird.forward.0")
    assert xor["input.0"].digest == "0x81b3df37813c85d9"
    assert xor["input.0"].statistics is None
    assert xor["output.0.dc.x"].digest == "-0.06291091442108154"


def test_nan_and_infinity_are_values(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/llama_stat_mix_nan") / "target")
    statistics = [record.statistics for node in read.nodes for record in node.tensors if record.statistics]
    assert any(each.mean is not None and math.isnan(each.mean) for each in statistics)
    assert any(each.mean == float("-inf") for each in statistics)


def test_gradients_of_parameters_are_a_node_inside_the_backward_of_their_module(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/llama_stat_mix_microstep") / "golden")
    second = node_called(read, "Module.lm_head.Linear.parameters_grad.1")
    assert (second.kind, second.direction, second.path) == (NodeKind.MODULE, Direction.BACKWARD, "lm_head")
    assert second.parent == "Module.lm_head.Linear.backward.1"
    assert [record.label for record in second.tensors] == ["gradient.weight"]
    assert second.micro_step == 1


def test_forward_and_backward_of_a_module_have_their_roles(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/llama_stat_mix_perturb") / "golden")
    forward = node_called(read, "Module.model.layers.2.mlp.down_proj.Linear.forward.0")
    backward = node_called(read, "Module.model.layers.2.mlp.down_proj.Linear.backward.0")
    assert [record.role for record in forward.tensors] == [Role.INPUT, Role.OUTPUT, Role.PARAMETER]
    assert [record.label for record in backward.tensors] == ["input.0", "output.0"]
    assert (forward.path, forward.type_name, forward.call) == ("model.layers.2.mlp.down_proj", "Linear", 0)


def test_a_dump_of_the_structure_alone_has_nodes_without_tensors(unpacked: Unpacked) -> None:
    read = only_slice(unpacked("msprobe/llama_structure_mix_attn") / "golden")
    assert len(read.nodes) == 597
    assert all(node.tensors == () for node in read.nodes)
    assert read.order_origin.message.id == "dumps.order.from_beginnings"


@pytest.mark.parametrize("archive", ["llama_stat_mix_perturb", "llama_stat_noextra", "llama_stat_L1_perturb"])
def test_stacks_name_the_innermost_frame_first(unpacked: Unpacked, archive: str) -> None:
    dump = READER.open_dump(unpacked(f"msprobe/{archive}") / "golden")
    (listing,) = dump.slices
    stacks = READER.read_stacks(dump, listing)
    if archive == "llama_stat_noextra":
        assert stacks == {}
    else:
        assert stacks["Functional.linear.0.forward"][-1].startswith("File ")
        assert all("forward" in name for name in stacks)


def test_stacks_of_older_releases_are_read(tmp_path: Path) -> None:
    name, frames = (
        "Functional.linear.0.forward",
        ["File a.py, line 1, in f, \n x", "File b.py, line 2, in g, \n y"],
    )
    write_dump(tmp_path, {}, stack={name: frames})
    dump = READER.open_dump(tmp_path)
    (listing,) = dump.slices
    assert READER.read_stacks(dump, listing) == {name: tuple(frames)}


def test_mindspore_dumps_are_read(tmp_path: Path) -> None:
    recorded = {
        "type": "mindspore.Tensor",
        "dtype": "BFloat16",
        "shape": [8],
        "Max": 2,
        "Min": True,
        "Mean": None,
    }
    recorded |= {"Norm": 70.5, "data_name": "Cell.conv2.Conv2d.forward.0.input.0.npy"}
    kwargs = {"dtype": {"type": "mindspore.dtype", "value": "Float32"}}
    data = {
        "Mint.add.0.forward": {"input_args": [recorded], "input_kwargs": kwargs, "output": [recorded]},
        "Cell.conv2.Conv2d.forward.0": module(recorded),
    }
    write_dump(tmp_path, data, {"Mint.add.0.forward": "Cell.conv2.Conv2d.forward.0"}, framework="mindspore")
    (tmp_path / "dump_tensor_data").mkdir()
    (tmp_path / "dump_tensor_data" / recorded["data_name"]).touch()
    read = only_slice(tmp_path)
    found = tensors_of(read, "Cell.conv2.Conv2d.forward.0")["input.0"]
    assert found.dtype == "bfloat16"
    assert found.statistics == Statistics(2.0, 1.0, None, 70.5)
    assert found.location
    assert (found.location.container, found.problem) == ("npy", None)
    assert [(node.path, node.parent) for node in read.nodes] == [
        ("Mint.add", "Cell.conv2.Conv2d.forward.0"),
        ("conv2", None),
    ]


@pytest.mark.parametrize(
    ("recorded", "canonical"),
    [
        ("torch.float32", "float32"),
        ("torch.bfloat16", "bfloat16"),
        ("torch.float8_e4m3fn", "float8_e4m3fn"),
        ("torch.complex64", "complex64"),
        ("torch.uint16", "uint16"),
        ("torch.bool", "bool"),
        ("Float32", "float32"),
        ("BFloat16", "bfloat16"),
        ("UInt8", "uint8"),
        ("Bool", "bool"),
        ("Float8E4M3FN", "float8_e4m3fn"),
        ("mindspore.bool_", "bool"),
        ("float32", "float32"),
        ("<U1", "<U1"),
        ("", ""),
    ],
)
def test_dtypes_have_one_name_whatever_the_framework(tmp_path: Path, recorded: str, canonical: str) -> None:
    write_dump(tmp_path, {"Module.a.A.forward.0": module(tensor(dtype=recorded))}, {})
    assert tensors_of(only_slice(tmp_path), "Module.a.A.forward.0")["input.0"].dtype == canonical


def test_distributed_and_wrapped_tensors_are_tensors_and_groups_are_values(tmp_path: Path) -> None:
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "77849d8c"}
    sharded = tensor(type="torch.distributed.tensor.DTensor", placements=[{"Shard": {"dim": 0}}])
    message = {"class_type": "torch.distributed.P2POp", "tensor": tensor(), "op": "isend", "peer": 1}
    write_dump(tmp_path, {"Module.a.A.forward.0": module(sharded, group, message, None, {})}, {})
    found = tensors_of(only_slice(tmp_path), "Module.a.A.forward.0")
    assert found["input.0"].is_tensor
    assert found["input.1"].scalar == "{'group_ranks': [0, 1], 'group_id': '77849d8c'}"
    assert found["input.2.tensor"].is_tensor
    assert (found["input.2.op"].scalar, found["input.2.peer"].scalar) == ("isend", "1")
    assert "input.3" not in found
    assert "input.4" not in found


def test_arguments_whose_names_look_like_the_format_are_arguments(tmp_path: Path) -> None:
    record = module() | {"input_kwargs": {"type": {"type": "str", "value": "x"}, "shape": tensor()}}
    write_dump(tmp_path, {"Module.a.A.forward.0": record}, {})
    found = tensors_of(only_slice(tmp_path), "Module.a.A.forward.0")
    assert found["input.type"].scalar == "x"
    assert found["input.shape"].is_tensor


def test_arguments_of_one_key_are_told_apart(tmp_path: Path) -> None:
    by_name = {"0": {"type": "int", "value": 3}, "0#1": {"type": "int", "value": 4}}
    record = module(tensor(), [tensor()]) | {"input_kwargs": by_name | {"1.0": {"type": "int", "value": 5}}}
    write_dump(tmp_path, {"Module.a.A.forward.0": record}, {})
    found = tensors_of(only_slice(tmp_path), "Module.a.A.forward.0")
    assert (found["input.0"].scalar, found["input.1.0"].scalar) == (None, None)
    assert [found[f"input.{key}"].scalar for key in ("0#1", "0#1#1", "1.0#1")] == ["3", "4", "5"]
    assert found["output.0"].is_tensor


def test_the_folder_recorded_before_the_dump_was_moved_is_ignored(unpacked: Unpacked, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(unpacked("msprobe/zoo_tensor_mix") / "golden", moved)
    read = only_slice(moved)
    located = [record for node in read.nodes for record in node.tensors if record.location]
    assert located
    assert all(record.location.file.is_relative_to(moved) for record in located if record.location)
    assert all(record.problem is None for record in located)
