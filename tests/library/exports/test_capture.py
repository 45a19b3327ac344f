"""What to dump next is written as msprobe reads it, for the node and the slice that were found."""

import json

import pytest
from msgspec.structs import replace

from firstdrift.exports.capture import capture_config
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Finding, NodeClass, Verdict

NAME = "Module.layers.1.mlp.Linear.forward.0"
FINDING = Finding(
    Coordinates(step=3, rank=1),
    NAME,
    NAME,
    "layers.1.mlp",
    "output.0",
    NodeClass.SOURCE,
    Verdict.ERROR,
    (),
    {"error_bound": 0.5},
    7,
)


def test_the_node_is_captured_in_its_step_and_on_its_rank() -> None:
    config = json.loads(capture_config(FINDING, "msprobe") or "")
    assert (config["task"], config["level"]) == ("tensor", "mix")
    assert (config["step"], config["rank"]) == ([3], [1])
    assert config["tensor"] == {"scope": [], "list": [NAME], "data_mode": ["all"]}


def test_what_has_no_step_or_rank_is_captured_in_all_of_them() -> None:
    config = json.loads(capture_config(replace(FINDING, coordinates=Coordinates()), "msprobe") or "")
    assert config["step"] == config["rank"] == []


@pytest.mark.parametrize(
    ("finding", "format_"),
    [
        (FINDING, "msit-torch"),
        (replace(FINDING, metrics={"relative_l2": 0.5}), "msprobe"),
        (replace(FINDING, target="optimizer"), "msprobe"),
    ],
    ids=["another tool", "values are there", "no call"],
)
def test_where_it_would_not_help_nothing_is_offered(finding: Finding, format_: str) -> None:
    assert capture_config(finding, format_) is None
