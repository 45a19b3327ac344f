"""A layer mapping that names operators matches what the real msprobe matches, tensor by tensor."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from library.matching.made_mindspore import LAYER_MAPPING, write_both
from mapping_reading import read_mapping

from firstdrift import MatchingRules, Options, compare
from firstdrift.matching.plan import SlicePlan
from firstdrift.model.tensor import TensorRecord

NOTHING = "N/A"


def nodes_of(plan: SlicePlan) -> dict[str, str]:
    return {name: match.golden[0] for match in plan.matches for name in match.target if match.golden}


def tensors_of(plan: SlicePlan) -> dict[str, str]:
    return {
        f"{pair.target_node}.{label(pair.target)}": f"{pair.golden_node}.{label(pair.golden)}"
        for pair in plan.pairs
    }


def label(record: TensorRecord) -> str:
    return record.label.replace("parameter.", "parameters.")


@pytest.mark.parametrize("unrecorded", [(), ("input_norm.FusedRMSNorm.forward.0",)])
def test_nodes_and_tensors_are_those_of_msprobe(
    run_peer: Callable[..., None], tmp_path: Path, unrecorded: tuple[str, ...]
) -> None:
    golden, target = write_both(tmp_path, unrecorded)
    mapping, answer = tmp_path / "mapping.yaml", tmp_path / "answer.json"
    mapping.write_text(LAYER_MAPPING)
    run_peer(Path(__file__).with_name("map_layers.py"), golden, target, mapping, answer)
    expected = json.loads(answer.read_text())
    assert (len(expected["nodes"]), len(expected["tensors"])) == ((13, 44) if unrecorded else (14, 46))
    options = Options(matching=MatchingRules(mappings=(read_mapping(mapping),)))
    (result,) = compare(golden, target, options).slices
    for name, found in (("nodes", nodes_of(result.plan)), ("tensors", tensors_of(result.plan))):
        assert {one: found.get(one, NOTHING) for one in expected[name]} == expected[name]
