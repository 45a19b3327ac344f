"""Values on one side, statistics on the other: the statistics are computed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import firstdrift
from firstdrift.verdict.judgement import Verdict
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]


def measured_from(report: firstdrift.Report) -> set[str]:
    return {
        measured.kind.value
        for result in report.slices
        for pair, measured in zip(result.plan.pairs, result.measurements, strict=True)
        if pair.target.is_tensor and pair.golden.is_tensor
    }


def rewritten(dump: Path, folder: Path, *, drop: set[str]) -> Path:
    """Copy an msprobe dump without some fields of its tensors."""
    shutil.copytree(dump, folder)
    for file in folder.glob("**/dump.json"):
        said = json.loads(file.read_text(), object_hook=lambda found: _without(found, drop))
        file.write_text(json.dumps(said))
    if "data_name" in drop:
        for data in folder.glob("**/dump_tensor_data"):
            shutil.rmtree(data)
    return folder


def _without(found: dict[str, object], drop: set[str]) -> dict[str, object]:
    if found.get("type") != "torch.Tensor":
        return found
    return {key: value for key, value in found.items() if key not in drop}


@pytest.mark.parametrize("values", ["golden", "target"])
def test_msprobe(unpacked: Unpacked, tmp_path: Path, values: str) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    sides = {
        side: rewritten(
            dump / side,
            tmp_path / side,
            drop={"Max", "Min", "Mean", "Norm"} if side == values else {"data_name"},
        )
        for side in ("golden", "target")
    }
    whole = firstdrift.compare(dump / "golden", dump / "target").findings.first_bad_node
    report = firstdrift.compare(sides["golden"], sides["target"])
    found = report.findings.first_bad_node
    assert whole is not None
    assert found is not None
    assert (found.target, found.node_class) == (whole.target, whole.node_class)
    assert measured_from(report) == {"statistics"}
    said = (pair for one in report.slices for pair in one.judgement.pairs)
    hidden = {reason for pair in said if pair.verdict is Verdict.INCOMPARABLE for reason in pair.reasons}
    assert hidden == {Message.of("pair.masked")}


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("llama4_golden_fp32", "llama4_stats1_bf16"),
        ("llama4_stats1_golden", "llama4_bf16"),
        ("llama12_golden_fp32", "atb12_bf16_stats"),
        ("llama12_stats_golden", "atb12_bf16_3tok"),
    ],
)
def test_msit(unpacked: Unpacked, golden: str, target: str) -> None:
    report = firstdrift.compare(unpacked(f"msit/{golden}"), unpacked(f"msit/{target}"))
    assert measured_from(report) == {"statistics"}
    assert report.counts.pairs == report.counts.passed > 300
    assert (report.findings.first_bad_token, report.findings.first_bad_node) == (None, None)


def test_statistics_of_msit_alone_show_a_fault(unpacked: Unpacked, tmp_path: Path) -> None:
    golden, target = unpacked("msit/llama4_stats1_golden"), tmp_path / "target"
    shutil.copytree(golden, target)
    (file,) = target.glob("*/torch_tensors/*/1/root.model.layers.2.mlp.act_fn/statistics.csv")
    header, entering, leaving = file.read_text().splitlines()
    cells = leaving.rsplit(",", 4)
    file.write_text(
        "\n".join([header, entering, ",".join([cells[0], *(f"{float(c) * 1.5}" for c in cells[1:])])])
    )
    found = firstdrift.compare(golden, target).findings.first_bad_node
    assert found is not None
    assert (found.coordinates.token, found.module) == (1, "model.layers.2.mlp.act_fn")
