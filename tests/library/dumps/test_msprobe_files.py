"""Tensor files of msprobe without their dump.json: the names of the files still say whose they are."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import ids_of

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.msprobe.file_names import is_call_name, parse_file_name
from firstdrift.model.slice import Dump, Slice
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Unpacked = Callable[[str], Path]


def bare(dump: Path, folder: Path) -> Path:
    """Copy the tensor files of the first slice of a dump, and nothing else; their times are lost."""
    data = min(dump.rglob("dump_tensor_data"))
    folder.mkdir(parents=True)
    for file in data.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def read_first(path: Path) -> tuple[Dump, Slice]:
    dump = open_dump(path)
    return dump, read_slice(dump, dump.slices[0])


@pytest.mark.parametrize(
    ("stem", "node", "label"),
    [
        ("Module.norm.RMSNorm.forward.0.output.0", "Module.norm.RMSNorm.forward.0", "output.0"),
        ("Module.a.b.Linear.backward.12.input.0", "Module.a.b.Linear.backward.12", "input.0"),
        ("Cell.norm.RMSNorm.forward.0.input.0", "Cell.norm.RMSNorm.forward.0", "input.0"),
        ("Functional.linear.3.forward.input.0", "Functional.linear.3.forward", "input.0"),
        ("Tensor.__add__.0.backward.output.1", "Tensor.__add__.0.backward", "output.1"),
        ("Module.w.W.forward.0.kwargs.cfg.b.c", "Module.w.W.forward.0", "input.cfg.b.c"),
        ("Module.w.W.forward.0.output.0.nt.a", "Module.w.W.forward.0", "output.0.nt.a"),
        ("Module.bn.BN.forward.0.parameters.weight", "Module.bn.BN.forward.0", "parameter.weight"),
        ("Module.bn.BN.parameters_grad.0.bias", "Module.bn.BN.parameters_grad.0", "gradient.bias"),
        (
            "Module.forward.input.Linear.forward.0.output.0",
            "Module.forward.input.Linear.forward.0",
            "output.0",
        ),
    ],
)
def test_a_file_name_says_call_role_and_place(stem: str, node: str, label: str) -> None:
    found = parse_file_name(stem)
    assert found is not None
    assert (found.node, f"{found.role}.{found.key}") == (node, label)
    assert is_call_name(node)


@pytest.mark.parametrize(
    "stem",
    [
        "model.layers.0.mlp.output.0",
        "layers.0.forward.0.output.0",
        "Module.norm.output",
        "model.layers.0.mlp.forward.0.output.0",
        "Module.norm.RMSNorm.forward.00.output.0",
        "Functional.linear.forward.input.0",
        "emb.0.debug",
        "",
    ],
)
def test_other_names_are_read_as_before(stem: str) -> None:
    assert parse_file_name(stem) is None


@given(st.text(max_size=40))
def test_no_name_breaks_the_reader(stem: str) -> None:
    for name in (stem, f"Module.{stem}.forward.0.output.0", f"{stem}.0.forward.input.{stem}"):
        found = parse_file_name(name)
        assert found is None or (is_call_name(found.node) and name.startswith(found.node))


def test_a_bare_folder_holds_the_calls_of_the_dump_it_was_taken_from(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    whole = unpacked("msprobe/llama_tensor_mix_perturb") / "golden"
    _, known = read_first(whole)
    dump, found = read_first(bare(whole, tmp_path / "bare"))
    assert dump.format == "plain"
    assert Message.of("dumps.plain.names.call", count=1084) in dump.evidence
    of_whole = {node.name: node for node in known.nodes}
    for node in found.nodes:
        same = of_whole[node.name]
        assert (node.path, node.kind, node.type_name, node.direction, node.call) == (
            same.path,
            same.kind,
            same.type_name,
            same.direction,
            same.call,
        )
        assert sorted(record.label for record in node.tensors) == sorted(
            record.label for record in same.tensors if record.location is not None
        )
        assert node.parent in (None, same.parent)
    order = {node.name: node.order for node in found.nodes}
    assert all(order[node.parent] > node.order for node in found.nodes if node.parent)
    modules = [node.name for node in found.nodes if node.kind == "module" and node.direction == "forward"]
    assert modules == sorted(modules, key=lambda name: of_whole[name].order)


def test_two_bare_folders_are_compared_call_by_call(unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    golden, target = bare(dump / "golden", tmp_path / "golden"), bare(dump / "target", tmp_path / "target")
    report = compare(golden, target)
    counts = report.counts
    assert (counts.pairs, counts.incomparable) == (1084, 0)
    assert (counts.unmatched_golden_nodes, counts.unmatched_target_nodes) == (0, 0)
    bad = report.findings.first_bad_node
    assert bad is not None
    assert (bad.module, bad.target) == ("model.layers.2.mlp.down_proj", "Functional.linear.20.forward")
    same = compare(golden, golden)
    assert same.counts.passed == same.counts.pairs == 1084


@pytest.mark.parametrize("side", ["golden", "target"])
def test_a_bare_folder_is_compared_with_a_whole_dump(unpacked: Unpacked, tmp_path: Path, side: str) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    without = bare(dump / side, tmp_path / "bare")
    report = compare(*((without, dump / "target") if side == "golden" else (dump / "golden", without)))
    assert report.counts.pairs == 1084
    left = report.slices[0].plan
    assert (left.unmatched_golden if side == "golden" else left.unmatched_target) == ()
    bad, known = report.findings.first_bad_node, compare(dump / "golden", dump / "target").findings
    assert bad is not None
    assert known.first_bad_node is not None
    assert (bad.module, bad.target, bad.reasons) == (
        known.first_bad_node.module,
        known.first_bad_node.target,
        known.first_bad_node.reasons,
    )


def test_a_healthy_bfloat16_run_stays_clean(unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16")
    golden, target = bare(dump / "golden", tmp_path / "golden"), bare(dump / "target", tmp_path / "target")
    for pair in ((golden, target), (dump / "golden", target), (golden, dump / "target")):
        report = compare(*pair)
        assert report.counts.pairs == report.counts.passed == 336
        assert report.findings.first_bad_node is None


def test_call_numbers_that_may_have_shifted_are_not_trusted(unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb") / "golden"
    without = bare(dump, tmp_path / "bare")
    for file in without.glob("Functional.silu.3.*"):
        file.unlink()
    plan = compare(dump, without).slices[0].plan
    paired = {pair.target_node for pair in plan.pairs}
    assert "Functional.linear.20.forward" in paired
    shifted = [
        (match.golden, match.target)
        for match in plan.matches
        if match.target[0].startswith("Functional.silu") and match.golden != match.target
    ]
    assert shifted == []


def test_a_step_that_has_lost_its_dump_json_keeps_its_coordinates(tmp_path: Path) -> None:
    for step in (0, 1):
        data = tmp_path / f"step{step}" / "rank0" / "dump_tensor_data"
        data.mkdir(parents=True)
        np.save(data / "Module.norm.RMSNorm.forward.0.output.0.npy", np.ones((2, 8), "f4"))
    dump = open_dump(tmp_path)
    assert [listing.coordinates.step for listing in dump.slices] == [0, 1]
    for listing in dump.slices:
        (node,) = read_slice(dump, listing).nodes
        assert (node.name, node.path) == ("Module.norm.RMSNorm.forward.0", "norm")


def test_a_file_on_its_own_has_no_name(tmp_path: Path) -> None:
    for at, name in enumerate(("Module.a.Linear.forward.0.output.0.npy", "golden.npy")):
        np.save(tmp_path / name, np.full((2, 8), at, "f4"))
    report = compare(tmp_path / "golden.npy", tmp_path / "Module.a.Linear.forward.0.output.0.npy")
    assert report.counts.pairs == 1


def test_a_bad_file_spoils_its_own_tensor(unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msprobe/llama_tensor_L0_bf16") / "golden"
    without = bare(dump, tmp_path / "bare")
    (without / "Module.lm_head.Linear.forward.0.output.0.pt").write_bytes(b"")
    report = compare(dump, without)
    assert (report.counts.incomparable, report.counts.passed) == (1, 335)
    ((_, _, said),) = report.incomparable()
    assert "dumps.file.empty" in ids_of(said)
    assert "Module.lm_head.Linear.forward.0.output.0.pt" in text_of(said)
