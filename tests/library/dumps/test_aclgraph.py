"""Dumps of ACL graphs: tensors without a dump.json are listed by their names, statistics are read as ever."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import ids_of, outline, passed_over

from firstdrift import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.model.node import Node
from firstdrift.model.slice import Coordinates, Dump, Slice
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]

# folder of the archive: format, modules, operators and tensors of each of its two steps, problems
CONTENTS = {
    "tensor_golden": ("msprobe-aclgraph", 22, 0, 44, 0),
    "tensor_bad": ("msprobe-aclgraph", 22, 0, 44, 0),
    "tensor_mix": ("msprobe-aclgraph", 22, 39, 149, 0),
    "statistics_golden": ("msprobe", 22, 39, 149, 2),
    "statistics_bad": ("msprobe", 22, 39, 149, 2),
}


def read_all(path: Path) -> tuple[Dump, list[Slice]]:
    dump = open_dump(path)
    return dump, [read_slice(dump, listing) for listing in dump.slices]


def by_name(read: Slice) -> dict[str, Node]:
    return {node.name: node for node in read.nodes}


def process(dump: Path, step: int = 0) -> Path:
    return next((dump / f"step{step}").iterdir())


@pytest.fixture
def tensors(unpacked: Unpacked, tmp_path: Path) -> Path:
    shutil.copytree(unpacked("msprobe/aclgraph") / "tensor_golden", tmp_path / "dump")
    return tmp_path / "dump"


@pytest.mark.parametrize(("folder", "contents"), CONTENTS.items())
def test_every_step_node_and_tensor_is_listed(
    unpacked: Unpacked, folder: str, contents: tuple[str, int, int, int, int]
) -> None:
    form, modules, operators, count, problems = contents
    dump, slices = read_all(unpacked("msprobe/aclgraph") / folder)
    assert dump.format == form
    assert dump.evidence
    assert [read.coordinates for read in slices] == [Coordinates(step=0), Coordinates(step=1)]
    extra = {"statistics_bad": (0, 1)}.get(folder, (0, 0))
    for read, more in zip(slices, extra, strict=True):
        kinds = [node.kind.value for node in read.nodes]
        assert (kinds.count("module"), kinds.count("api")) == (modules, operators + more)
        records = [record for node in read.nodes for record in node.tensors]
        assert len(records) == count + 2 * more
        assert all(record.problem is None for record in records)
    assert len(dump.problems) + sum(len(read.problems) for read in slices) == problems


def test_names_are_those_of_the_statistics_and_all_lies_in_the_model(unpacked: Unpacked) -> None:
    archive = unpacked("msprobe/aclgraph")
    _, (tensors, _) = read_all(archive / "tensor_mix")
    _, (statistics, _) = read_all(archive / "statistics_golden")
    known, others = by_name(tensors), by_name(statistics)
    assert known.keys() == others.keys()
    for name, node in known.items():
        other = others[name]
        assert (node.path, node.type_name, node.call) == (other.path, other.type_name, other.call)
        assert node.parent == other.parent
        # In dump.json, inputs that are no tensors leave no gap in the numbers of those that are.
        assert len(node.tensors) == len(other.tensors)
    roots = [node.name for node in known.values() if node.parent is None]
    assert roots == ["Module.__root__.Net.forward.0"]


def test_operators_come_in_the_order_in_which_they_ran(unpacked: Unpacked) -> None:
    archive = unpacked("msprobe/aclgraph")
    _, (statistics, _) = read_all(archive / "statistics_golden")
    ran = [node.name for node in statistics.nodes if node.kind == "api"]
    _, (read, _) = read_all(archive / "tensor_mix")
    assert [node.name for node in read.nodes if node.kind == "api"] == ran
    assert read.order_origin.message.id == "dumps.order.from_file_times"


def test_copied_files_are_put_in_order_by_values_and_names(unpacked: Unpacked, tmp_path: Path) -> None:
    shutil.copytree(unpacked("msprobe/aclgraph") / "tensor_golden", tmp_path / "copy")
    for at, file in enumerate(sorted((tmp_path / "copy").rglob("*.pt"), reverse=True)):
        os.utime(file, (at, at))
    _, (read, _) = read_all(tmp_path / "copy")
    assert read.order_origin.message.id == "dumps.order.from_node_names"
    order = {node.path: node.order for node in read.nodes}
    layer = ["norm", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj", "mlp"]
    places = [order[f"layers.{at}.{name}"] for at in range(3) for name in layer]
    assert places == sorted(places)
    assert order["embed_tokens"] == 0
    assert order["layers.2"] < order["norm"] < order["lm_head"] < order["__root__"]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_fault_is_found_where_it_was_planted(unpacked: Unpacked, task: str) -> None:
    archive = unpacked("msprobe/aclgraph")
    findings = compare(archive / f"{task}_golden", archive / f"{task}_bad").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.step == 1
    assert findings.first_bad_node.module == "layers.1.mlp.act_fn"


def test_a_dump_of_modules_agrees_with_one_of_modules_and_operators(unpacked: Unpacked) -> None:
    archive = unpacked("msprobe/aclgraph")
    report = compare(archive / "tensor_golden", archive / "tensor_mix")
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs == 88
    assert report.counts.unmatched_target_nodes == 78


def test_any_folder_of_a_dump_may_be_named(tensors: Path) -> None:
    for part in (tensors / "step1", process(tensors, 1), process(tensors, 1) / "dump_tensor_data"):
        (listing,) = open_dump(part).slices
        assert listing.coordinates.step in {1, None}


def test_older_folder_names_and_ranks_are_known(tensors: Path) -> None:
    for step in (0, 1):
        folder = process(tensors, step)
        (folder / "dump_tensor_data").rename(folder / "tensor_data")
        shutil.copytree(folder, folder.parent / "rank1")
        folder.rename(folder.parent / "rank0")
    dump, slices = read_all(tensors)
    assert [(read.coordinates.step, read.coordinates.rank) for read in slices] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert all(len(read.nodes) == 22 for read in slices)
    assert dump.evidence[0] == Message.of("dumps.aclgraph.tensors", folder="step0/rank0/tensor_data")


def test_processes_of_one_step_are_told_apart(tensors: Path) -> None:
    shutil.copytree(process(tensors), tensors / "step0/pid99999999")
    dump = open_dump(tensors)
    assert [one.coordinates.rank for one in dump.slices if one.coordinates.step == 0] == [0, 1]
    assert outline(dump.attributes["ranks"]).endswith("given_rank pid99999999 1")


def test_damage_foreign_files_links_and_what_was_not_finished_are_counted(tensors: Path) -> None:
    folder = process(tensors) / "dump_tensor_data"
    (folder / "Module.norm.LayerNorm.0.output.pt").write_bytes(b"cut")
    (folder / "readme.txt").write_text("?")
    (folder / "Module.x.Linear.0.output.pt").symlink_to("/etc/passwd")
    shutil.copytree(folder, tensors / "dump_tensor_data/pid1", symlinks=True)
    dump, (read, whole) = read_all(tensors)
    assert [problem.reason for problem in dump.problems] == [Message.of("dumps.aclgraph.unfinished_step")]
    assert [problem.reason for problem in read.problems] == [passed_over("readme.txt")]
    problems = [ids_of(record.problem) for node in read.nodes for record in node.tensors if record.problem]
    assert len(problems) == 2
    assert any("dumps.link.leads_out" in problem for problem in problems)
    assert not whole.problems


def test_calls_arguments_by_keyword_and_nested_values_have_their_keys(tmp_path: Path, tensors: Path) -> None:
    file = process(tensors) / "dump_tensor_data/Module.norm.LayerNorm.0.output.pt"
    folder = tmp_path / "other/step0/rank0/dump_tensor_data"
    folder.mkdir(parents=True)
    for name in (
        "Module.layers.0.attn.Attention.1.input_kwargs.mask.pt",
        "Module.layers.0.attn.Attention.1.input.10.pt",
        "Module.layers.0.attn.Attention.1.input.2.pt",
        "Module.layers.0.attn.Attention.1.output.0.1.pt",
        "Npu.npu_rms_norm.12.output.pt",
        "my_function.input.0.pt",
    ):
        shutil.copy(file, folder / name)
    _, (read,) = read_all(tmp_path / "other")
    nodes = by_name(read)
    assert {name: [record.label for record in node.tensors] for name, node in nodes.items()} == {
        "Module.layers.0.attn.Attention.forward.1": ["input.2", "input.10", "input.mask", "output.0.1"],
        "Npu.npu_rms_norm.12.forward": ["output.0"],
        "my_function.0.forward": ["input.0"],
    }
    assert nodes["Npu.npu_rms_norm.12.forward"].call == 12


def test_two_files_of_one_place_are_both_listed(tensors: Path) -> None:
    folder = process(tensors) / "dump_tensor_data"
    shutil.copy(folder / "Module.norm.LayerNorm.0.output.pt", folder / "Module.norm.LayerNorm.0.output.0.pt")
    _, (read, whole) = read_all(tensors)
    labels = [record.label for record in by_name(read)["Module.norm.LayerNorm.forward.0"].tensors]
    assert sorted(labels) == ["input.0", "output.0", "output.0#1"]
    (problem,) = read.problems
    twice = {"tensor": "output.0", "node": "Module.norm.LayerNorm.forward.0"}
    assert problem.reason == Message.of("dumps.file.tensor_twice", **twice)
    assert not whole.problems


def test_a_dump_of_msprobe_that_lost_its_dump_json_is_not_taken_for_one(
    tmp_path: Path, tensors: Path
) -> None:
    folder = tmp_path / "other/step0/rank0/dump_tensor_data"
    folder.mkdir(parents=True)
    file = process(tensors) / "dump_tensor_data/Module.norm.LayerNorm.0.output.pt"
    shutil.copy(file, folder / "Functional.linear.0.forward.output.0.pt")
    found = recognise(tmp_path / "other")
    assert found is None or found[0] == "plain"
