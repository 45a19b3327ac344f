"""What was matched by hand and exported, read by the real msprobe."""

import csv
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift import MatchingRules, Options, compare
from firstdrift.exports.mapping_yaml import data_mapping, layer_mapping, write_mapping

NEW, OLD = ".feed_forward.", ".mlp."


@pytest.fixture(scope="module")
def dumps(unpacked: Callable[[str], Path]) -> Path:
    """In the target the modules `mlp` of layers 1 and 3 are called `feed_forward`."""
    return unpacked("msprobe/d4_renamed")


@pytest.fixture(scope="module")
def mappings(dumps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mapping files of two matches made by hand, where matching by name leaves 46 nodes over."""
    folder = tmp_path_factory.mktemp("mappings")
    options = Options(matching=MatchingRules(structure=False))
    report = compare(dumps / "golden", dumps / "target", options)
    for at in (1, 3):
        name = f"Module.model.layers.{at}.{{}}.LlamaMLP.forward.0"
        report = report.match(name.format("mlp"), name.format("feed_forward"))
    write_mapping(data_mapping, report, folder / "data.yaml")
    write_mapping(layer_mapping, report, folder / "layer.yaml")
    return folder


@pytest.fixture(scope="module")
def sides(dumps: Path) -> list[str | Path]:
    return ["-tp", dumps / "target" / "step0", "-gp", dumps / "golden" / "step0"]


@pytest.mark.parametrize("given", [True, False])
def test_msprobe_compares_what_the_data_mapping_says(
    msprobe: Callable[..., None], sides: list[str | Path], mappings: Path, tmp_path: Path, given: bool
) -> None:
    msprobe("compare", *sides, "-o", tmp_path, *(["-dm", mappings / "data.yaml"] if given else []))
    (report,) = tmp_path.glob("compare_result_*.csv")
    csv.field_size_limit(2**24)  # its column of call stacks is longer than Python's default allows
    with report.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if NEW in row["NPU Name"]]
    assert len(rows) == 52
    expected = [row["NPU Name"].replace(NEW, OLD) if given else "N/A" for row in rows]
    assert [row["Bench Name"] for row in rows] == expected


@pytest.mark.parametrize("given", [True, False])
def test_msprobe_links_the_nodes_that_the_layer_mapping_says(
    msprobe: Callable[..., None], sides: list[str | Path], mappings: Path, tmp_path: Path, given: bool
) -> None:
    msprobe("graph_visualize", *sides, "-o", tmp_path, *(["-lm", mappings / "layer.yaml"] if given else []))
    (graph,) = tmp_path.glob("*.vis.db")
    with sqlite3.connect(graph) as database:
        query = "SELECT node_name, matched_node_link FROM tb_nodes WHERE data_source = 'NPU'"
        links = {name: json.loads(link or "[]") for name, link in database.execute(query) if NEW in name}
    assert len(links) == 26
    for name, link in links.items():
        assert link[-1:] == ([name.replace(NEW, OLD)] if given else [])
