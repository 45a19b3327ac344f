"""A dump of operators alone (level L1) against one of modules and operators (level mix)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import outline

import firstdrift

Unpacked = Callable[[str], Path]

MIX, OPERATORS = "msprobe/llama_stat_mix_perturb", "msprobe/llama_stat_L1_perturb"
FAULTY = "Functional.linear.20.forward"
LEVELS = pytest.mark.parametrize(("golden", "target"), [(MIX, OPERATORS), (OPERATORS, MIX)])


@LEVELS
def test_all_operators_are_compared_and_agree(unpacked: Unpacked, golden: str, target: str) -> None:
    report = firstdrift.compare(unpacked(golden) / "golden", unpacked(target) / "golden")
    recorded = min(report.golden.tensors, report.target.tensors)
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs == recorded
    matched = {name for one in report.slices[0].plan.matches for name in (*one.golden, *one.target)}
    assert not any(name.startswith("Module.") for name in matched)


@LEVELS
def test_a_fault_is_found(unpacked: Unpacked, golden: str, target: str) -> None:
    found = firstdrift.compare(
        unpacked(golden) / "golden", unpacked(target) / "target"
    ).findings.first_bad_node
    assert found is not None
    assert (found.golden, found.target, found.node_class) == (FAULTY, FAULTY, "weights differ")
    assert found.module == ("model.layers.2.mlp.down_proj" if target == MIX else None)


@LEVELS
def test_an_operator_is_named_where_no_module_around_it_has_a_partner(
    unpacked: Unpacked, tmp_path: Path, golden: str, target: str
) -> None:
    sides = (
        without(FAULTY, unpacked(golden) / "golden", tmp_path / "golden"),
        without(FAULTY, unpacked(target) / "target", tmp_path / "target"),
    )
    found = firstdrift.compare(*sides).findings.first_bad_node
    assert found is not None
    assert found.target.startswith("Tensor.__add__")
    assert outline(found.reasons[0]).startswith("entered at_least 2")


def without(name: str, dump: Path, folder: Path) -> Path:
    """Copy an msprobe dump without one of its records."""
    shutil.copytree(dump, folder)
    (file,) = folder.glob("**/dump.json")
    said = json.loads(file.read_text())
    del said["data"][name]
    file.write_text(json.dumps(said))
    return folder
