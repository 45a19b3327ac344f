"""What is promised of exported mapping files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from mapping_reading import read_mapping

from firstdrift import Options, Report, compare
from firstdrift.exports.mapping_yaml import data_mapping, layer_mapping, write_mapping
from firstdrift.matching.manual.mapping import MappingKind
from firstdrift.matching.plan import MatchingRules

Unpack = Callable[[str], Path]
Matched = set[tuple[tuple[str, ...], tuple[str, ...]]]
MAPPINGS = Path(__file__).parents[2] / "mappings"

CASES = [
    ("qwen2_layermap_stat_mix", ("layer_mapping_qwen2.yaml",)),
    ("qwen25vl_layermap_stat_mix", ("layer_mapping_qwen25vl.yaml",)),
    ("d4_renamed", ()),
    ("llama_stat_mix_perturb", ()),
]


def matched(report: Report) -> Matched:
    """Return the nodes of all matches that hold anything to compare."""
    return {
        (match.golden, match.target)
        for result in report.slices
        for index, match in enumerate(result.plan.matches)
        if not match.doubtful and any(pair.match == index for pair in result.plan.pairs)
    }


def run(folder: Path, *mappings: Path) -> Report:
    files = tuple(map(read_mapping, mappings))
    return compare(folder / "golden", folder / "target", Options(matching=MatchingRules(mappings=files)))


@pytest.mark.parametrize(("dump", "mappings"), CASES)
def test_an_exported_mapping_gives_the_same_matches_when_read_back(
    unpacked: Unpack, tmp_path: Path, dump: str, mappings: tuple[str, ...]
) -> None:
    folder = unpacked(f"msprobe/{dump}")
    report = run(folder, *(MAPPINGS / name for name in mappings))
    write_mapping(data_mapping, report, tmp_path / "data.yaml")
    write_mapping(layer_mapping, report, tmp_path / "layer.yaml")
    for name, kind in (("data.yaml", MappingKind.DATA), ("layer.yaml", MappingKind.LAYER)):
        again = run(folder, tmp_path / name)
        assert read_mapping(tmp_path / name).kind is kind
        assert matched(again) == matched(report)
        assert again.notes() == ()
        assert again.findings.first_bad_node is not None
        assert report.findings.first_bad_node is not None
        assert again.findings.first_bad_node.target == report.findings.first_bad_node.target


def test_only_what_is_called_otherwise_is_written_and_what_was_fused_is_named(
    unpacked: Unpack, tmp_path: Path
) -> None:
    report = run(unpacked("msprobe/qwen2_layermap_stat_mix"), MAPPINGS / "layer_mapping_qwen2.yaml")
    write_mapping(data_mapping, report, tmp_path / "data.yaml")
    text = (tmp_path / "data.yaml").read_text()
    names = yaml.safe_load(text)
    assert all(target != golden for target, golden in names.items())
    down = "layers.2.mlp.{}.forward.0.output.0"
    target = "Module.0.module.module.decoder." + down.format("linear_fc2.RowParallelLinear")
    assert names[target] == "Module.module.model." + down.format("down_proj.Linear")
    assert text.count("# fused: ") == 8
    operators = [name for name in names if not name.startswith("Module.")]
    assert operators
    assert not any(".backward." in name for name in operators), "they follow their forward operators"
    write_mapping(layer_mapping, report, tmp_path / "layer.yaml")
    paths = yaml.safe_load((tmp_path / "layer.yaml").read_text())["TopLayer"]
    assert paths["0.module.module.decoder.layers.2"] == "module.model.layers.2"
    assert "0.module.module.decoder.layers.2.input_layernorm" not in paths
