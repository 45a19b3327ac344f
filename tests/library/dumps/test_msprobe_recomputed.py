"""Dumps of 2025-02 to 2026-05 say of each record whether activation checkpointing ran it again."""

import json
import shutil
from collections.abc import Callable, Container
from pathlib import Path

import pytest

from firstdrift import Report, compare
from firstdrift.dumps.detect import open_dump
from firstdrift.matching.plan import SlicePlan
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]


def read(folder: Path) -> Slice:
    dump = open_dump(folder)
    return read_slice(dump, dump.slices[0])


def flagged(folder: Path, again: Container[str]) -> None:
    """Let each record of a dump say whether it ran again, as msprobe did then, and take its stacks."""
    file = folder / "step0" / "rank0" / "dump.json"
    written = json.loads(file.read_text())
    for name, record in written["data"].items():
        if "forward" in name:
            record["is_recompute"] = name in again
    file.write_text(json.dumps(written))
    (file.parent / "stack.json").unlink()


def run_again(dumped: Slice) -> set[str]:
    """Return what ran inside a backward node, as the stacks tell."""
    parents = {node.name: node.parent for node in dumped.nodes}
    found = set()
    for node in dumped.nodes:
        above = node.parent
        while above is not None and ".backward" not in above:
            above = parents[above]
        if above is not None and "forward" in node.name:
            found.add(node.name)
    return found


@pytest.fixture
def dumps(unpacked: Unpacked, tmp_path: Path) -> tuple[Path, Path]:
    """A run without checkpointing, and one with it whose records say so."""
    source = unpacked("msprobe/llama_stat_mix_recompute")
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    flagged(tmp_path / "golden", ())
    flagged(tmp_path / "target", run_again(read(source / "target")))
    return tmp_path / "golden", tmp_path / "target"


def same(plan: SlicePlan) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(match.golden, match.target) for match in plan.matches]


def test_the_flag_is_no_problem_and_says_what_stacks_say(
    unpacked: Unpacked, dumps: tuple[Path, Path]
) -> None:
    source = unpacked("msprobe/llama_stat_mix_recompute")
    said, known = compare(*dumps), compare(source / "golden", source / "target")
    for report in (said, known):
        assert not report.golden.problems
        assert not report.target.problems
    assert same(said.slices[0].plan) == same(known.slices[0].plan)
    assert said.slices[0].plan.unmatched_target == known.slices[0].plan.unmatched_target
    assert said.findings == known.findings
    assert _parents(read(dumps[1])) == _parents(read(source / "target"))


def _parents(dumped: Slice) -> dict[str, str | None]:
    return {node.name: node.parent for node in dumped.nodes}


MODULES = (  # name, parent, whether it ran again; three micro batches, of which two are checkpointed
    ("Module.net.mlp.MLP.forward.0", "Module.net.Net.forward.0", False),
    ("Module.net.Net.forward.0", None, False),
    ("Module.net.mlp.MLP.forward.1", None, True),
    ("Module.net.mlp.MLP.backward.1", "Module.net.Net.backward.0", None),
    ("Module.net.Net.backward.0", None, None),
    ("Module.net.mlp.MLP.forward.2", "Module.net.Net.forward.1", False),
    ("Module.net.Net.forward.1", None, False),
    ("Module.net.mlp.MLP.forward.3", None, True),
    ("Module.net.mlp.MLP.backward.3", "Module.net.Net.backward.1", None),
    ("Module.net.Net.backward.1", None, None),
)
WITHOUT = tuple(
    (name.replace("d.1", "d.0").replace("d.2", "d.1").replace("d.3", "d.1"), parent, None)
    if ".mlp." in name
    else (name, parent, None)
    for name, parent, again in MODULES
    if not again
)


def write(
    folder: Path, modules: tuple[tuple[str, str | None, bool | None], ...], factor: float = 1.0
) -> Path:
    here = folder / "step0" / "rank0"
    here.mkdir(parents=True)
    data = {}
    for at, (name, _, again) in enumerate(modules):
        batch = 1.0 + (at >= len(modules) / 2) + (0.1 if ".mlp." in name else 0.0)
        record = {"input_args": [_tensor(batch)], "output": [_tensor(factor * (batch + 0.5))]}
        data[name] = record if again is None else {**record, "is_recompute": again}
    whole = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (here / "dump.json").write_text(json.dumps(whole))
    (here / "construct.json").write_text(json.dumps({name: parent for name, parent, _ in modules}))
    return folder


def _tensor(value: float) -> dict[str, object]:
    numbers = {"Max": value, "Min": -value, "Mean": value / 50, "Norm": 3 * value}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [4, 8],
        **numbers,
        "requires_grad": True,
    }


def calls(dumped: Slice) -> dict[str, int]:
    return {node.name: node.call for node in dumped.nodes if ".mlp." in node.name}


def test_what_ran_again_is_no_further_call(tmp_path: Path) -> None:
    read_ = read(write(tmp_path / "dump", MODULES))
    assert calls(read_) == {
        "Module.net.mlp.MLP.forward.0": 0,
        "Module.net.mlp.MLP.forward.1": 0,
        "Module.net.mlp.MLP.backward.1": 0,
        "Module.net.mlp.MLP.forward.2": 1,
        "Module.net.mlp.MLP.forward.3": 1,
        "Module.net.mlp.MLP.backward.3": 1,
    }
    again = next(node for node in read_.nodes if node.name.endswith("forward.1") and ".mlp." in node.name)
    assert isinstance(again, Node)
    assert again.parent == "Module.net.Net.backward.0"


def test_later_micro_batches_are_held_against_their_own(tmp_path: Path) -> None:
    report: Report = compare(write(tmp_path / "golden", WITHOUT), write(tmp_path / "target", MODULES))
    (result,) = report.slices
    found = {match.target[0]: match.golden[0] for match in result.plan.matches}
    assert found["Module.net.mlp.MLP.forward.2"] == "Module.net.mlp.MLP.forward.1"
    assert found["Module.net.mlp.MLP.backward.3"] == "Module.net.mlp.MLP.backward.1"
    assert set(result.plan.unmatched_target) == {
        "Module.net.mlp.MLP.forward.1",
        "Module.net.mlp.MLP.forward.3",
    }
    assert result.plan.unmatched_golden == ()
    assert report.counts.error == 0


@pytest.mark.parametrize("flag", [None, 1, "yes", [True]])
def test_a_flag_that_is_neither_true_nor_false_says_nothing(tmp_path: Path, flag: object) -> None:
    folder = write(tmp_path / "dump", MODULES[:3])
    file = folder / "step0" / "rank0" / "dump.json"
    written = json.loads(file.read_text())
    for record in written["data"].values():
        record["is_recompute"] = flag
    file.write_text(json.dumps(written))
    assert calls(read(folder))["Module.net.mlp.MLP.forward.1"] == 1
