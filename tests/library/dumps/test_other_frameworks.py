"""Dumps of msprobe with the names of MindSpore, and dumps whose ranks msprobe has merged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.model.tensor import DataLocation
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]

NAMES = {
    '"Module.': '"Cell.',
    '"Functional.': '"MintFunctional.',
    '"Torch.': '"Mint.',
    '"torch.Tensor"': '"mindspore.Tensor"',
    '"torch.float32"': '"Float32"',
    '"torch.int64"': '"Int64"',
    '"framework": "pytorch"': '"framework": "mindspore"',
}


def under_names_of_mindspore(dump: Path, copy: Path) -> Path:
    """Write a dump again as MindSpore would have written it: its names and dtypes, tensors as `.npy`."""
    shutil.copytree(dump, copy)
    for file in copy.rglob("*.json"):
        text = file.read_text()
        for ours, theirs in NAMES.items():
            text = text.replace(ours, theirs)
        file.write_text(text.replace('.pt"', '.npy"'))
    for file in copy.rglob("*.pt"):
        name = file.name.replace("Module.", "Cell.").removesuffix(".pt")
        np.save(file.with_name(f"{name}.npy"), load_tensor(DataLocation(file, "pt")))
        file.unlink()
    return copy


def test_a_model_in_mindspore_agrees_with_the_same_model_in_torch(unpacked: Unpacked, tmp_path: Path) -> None:
    golden = unpacked("msprobe/llama_stat_mix_perturb") / "golden"
    target = under_names_of_mindspore(golden, tmp_path / "mindspore")
    dump = open_dump(target)
    assert dump.attributes["framework"] == "mindspore"
    read = [read_slice(each, each.slices[0]) for each in (open_dump(golden), dump)]
    assert [
        (node.path, node.kind, node.direction, node.call) for node in read[0].nodes if node.kind == "module"
    ] == [
        (node.path, node.kind, node.direction, node.call) for node in read[1].nodes if node.kind == "module"
    ]
    report = compare(golden, target)
    counts = report.counts
    assert (counts.error, counts.unmatched_golden_nodes, counts.unmatched_target_nodes) == (0, 0, 0)
    assert counts.pairs == compare(golden, golden).counts.pairs


def test_a_fault_is_found_across_the_two(unpacked: Unpacked, tmp_path: Path) -> None:
    dumps = unpacked("msprobe/llama_stat_mix_perturb")
    target = under_names_of_mindspore(dumps / "target", tmp_path / "mindspore")
    report = compare(dumps / "golden", target)
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.2.mlp.down_proj"


def test_tensors_of_mindspore_are_read_from_npy(unpacked: Unpacked, tmp_path: Path) -> None:
    golden = unpacked("msprobe/llama_tensor_L0_2steps") / "golden"
    target = under_names_of_mindspore(golden, tmp_path / "mindspore")
    for file in (*target.rglob("dump.json"),):
        data = json.loads(file.read_text())["data"]
        assert all(name.startswith("Cell.") for name in data)
    counts = compare(golden, target).counts
    assert (counts.pairs, counts.incomparable, counts.error) == (counts.passed, 0, 0)


def test_ranks_that_msprobe_merged_are_one_slice_without_problems(unpacked: Unpacked) -> None:
    dump = open_dump(unpacked("msprobe/tp2_merged_by_msprobe"))
    assert dump.attributes["merged"] == "msprobe"
    (listing,) = dump.slices
    read = read_slice(dump, listing)
    assert len(read.nodes) == 416  # as many as the peer's graph of it has
    assert not read.problems
    assert not any(record.problem for node in read.nodes for record in node.tensors)
    scalars = [record.scalar for node in read.nodes for record in node.tensors if not record.is_tensor]
    assert not any("Max" in str(scalar) for scalar in scalars)


def test_the_merged_dump_shows_the_same_fault_as_its_ranks(unpacked: Unpacked) -> None:
    golden = unpacked("msprobe/tp2_vs_tp1") / "golden"
    report = compare(golden, unpacked("msprobe/tp2_merged_by_msprobe"))
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module.endswith("decoder.layers.1.mlp.linear_fc2")


def test_a_number_that_is_none_spoils_no_comparison(unpacked: Unpacked, tmp_path: Path) -> None:
    """A float argument whose value a dump gives as text or as an object."""
    golden = unpacked("msprobe/zoo_stat_mix") / "golden"
    target = shutil.copytree(golden, tmp_path / "target")
    changed = 0
    for file in target.rglob("dump.json"):
        whole = json.loads(file.read_text())
        for record in whole["data"].values():
            for leaf in record.get("input_args", []):
                if isinstance(leaf, dict) and leaf.get("type") in ("int", "float"):
                    leaf["value"] = {"odd": "text"} if changed else "text"
                    changed += 1
        file.write_text(json.dumps(whole))
    assert changed > 1
    assert compare(golden, target).counts.pairs > 0
