"""`firstdrift compare --mapping` and the export of mapping files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import says, titled

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Run = Callable[..., Any]
MAPPINGS = Path(__file__).parents[1] / "mappings"


@pytest.fixture(scope="module")
def two_frameworks(unpacked: Callable[[str], Path]) -> tuple[Path, Path]:
    dump = unpacked("msprobe/qwen2_layermap_stat_mix")
    return dump / "golden", dump / "target"


def test_a_mapping_finds_the_bad_node_across_frameworks_and_is_written_back(
    firstdrift: Run, two_frameworks: tuple[Path, Path], tmp_path: Path
) -> None:
    files = "--export-data-mapping", tmp_path / "data.yaml", "--export-layer-mapping", tmp_path / "layer.yaml"
    given = "--mapping", MAPPINGS / "layer_mapping_qwen2.yaml"
    for options in (
        (*given, *files),
        ("--mapping", tmp_path / "data.yaml"),
        ("--mapping", tmp_path / "layer.yaml"),
    ):
        done = firstdrift("compare", *two_frameworks, *options)
        assert done.status == 1
        assert f"\n{text_of(Message.of('terminal.first_bad_node'))}: " in done.out
        assert "0.module.module.decoder.layers.2.mlp.linear_fc2" in done.out.splitlines()[0]
        assert titled("note") not in done.out


def test_what_was_fused_is_written_as_a_view_mapping_and_read_back(
    firstdrift: Run, two_frameworks: tuple[Path, Path], tmp_path: Path
) -> None:
    views = tmp_path / "views.yaml"
    mapping = MAPPINGS / "layer_mapping_qwen2.yaml"
    firstdrift("compare", *two_frameworks, "--mapping", mapping, "--export-view-mapping", views)
    assert "view:\n  - concatenated" in views.read_text()
    done = firstdrift("compare", *two_frameworks, "--mapping", views, "--mapping", mapping)
    assert done.status == 1
    assert "0.module.module.decoder.layers.2.mlp.linear_fc2" in done.out.splitlines()[0]


def test_entries_that_match_nothing_are_told(
    firstdrift: Run, two_frameworks: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("MLP:\n  fc9: down_proj\nBLIP:\n  a: b\n")
    done = firstdrift("compare", *two_frameworks, "--mapping", tmp_path / "mine.yaml", "--json")
    notes = [note["arguments"] for note in json.loads(done.out)["notes"]]
    assert [(note["entry"]["arguments"]["line"], note["why"]["id"]) for note in notes] == [
        (2, "matching.mapping.no_target_path"),
        (4, "matching.mapping.no_target_class"),
    ]


def test_a_mapping_that_makes_no_sense_is_refused_with_line_and_key(
    firstdrift: Run, two_frameworks: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("MLP:\n  a: b\n  a: c\n")
    done = firstdrift("compare", *two_frameworks, "--mapping", tmp_path / "mine.yaml")
    assert done.status == 2
    assert f"{tmp_path / 'mine.yaml'}: " in done.err
    assert says(done.err, "matching.mapping.at_key_of_scope")


def test_a_match_set_is_taken_as_a_mapping(
    firstdrift: Run, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    dump = unpacked("msprobe/d4_renamed")
    dumps = dump / "golden", dump / "target"
    name = "Module.model.layers.{}.{}.LlamaMLP.forward.0"
    edits = [
        {"kind": "match", "golden": [name.format(at, "mlp")], "target": [name.format(at, "feed_forward")]}
        for at in (1, 3)
    ]
    (tmp_path / "set.json").write_text(json.dumps({"firstdrift_match_set": 1, "edits": edits}))
    by_name = firstdrift("compare", *dumps, "--json", "--no-structure")
    given = "--mapping", tmp_path / "set.json"
    by_hand = firstdrift("compare", *dumps, "--json", "--no-structure", *given)
    counts = [json.loads(done.out)["counts"] for done in (by_name, by_hand)]
    assert [count["unmatched_golden_nodes"] for count in counts] == [46, 0]
    edits[0]["golden"] = ["nothing"]
    (tmp_path / "set.json").write_text(json.dumps({"firstdrift_match_set": 1, "edits": edits}))
    noted = json.loads(firstdrift("compare", *dumps, "--json", "--no-structure", *given).out)
    assert noted["notes"][0]["arguments"]["why"]["id"] == "matching.edit.no_node"
    (tmp_path / "set.json").write_text('{"firstdrift_match_set": 1, "edits": 7}')
    refused = firstdrift("compare", *dumps, *given)
    assert refused.status == 2
    assert "set.json" in refused.err
