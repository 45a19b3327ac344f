"""Experts that the target stores in another order are paired by their weights; a fault among them is named.

`tests/dumps/experts` holds what msprobe wrote of a small model (`tests/interop/write_moved_experts.py`).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from messages import ids
from msgspec.structs import replace

from firstdrift import Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.dumps.storage.views import RENUMBERED
from firstdrift.matching.experts.find_order import find_moved
from firstdrift.matching.plan import SlicePlan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, TensorRecord, ViewStep

Unpack = Callable[[str], Path]

HEALTHY = (
    "listed_values",
    "listed_trained",
    "listed_bfloat16",
    "listed_digests",
    "stacked_values",
    "stacked_trained",
    "stacked_operators_trained",
    "listed_few",
    "stacked_few",
)
"""In lists and in stacks; from values, statistics and digests; with and without a backward pass."""

ORDER = (1, 3, 0, 2)
"""Which experts of the target are the golden ones: it stores the golden experts 2, 0, 3 and 1."""


@pytest.fixture
def compared(unpacked: Unpack) -> Callable[[str], Report]:
    def compare_pair(name: str) -> Report:
        pair = unpacked(f"experts/{name}")
        return compare(pair / "golden", pair / "target")

    return compare_pair


def plan_of(report: Report) -> SlicePlan:
    (one,) = report.slices
    return one.plan


@pytest.mark.parametrize("name", HEALTHY)
def test_experts_in_another_order_are_no_fault(compared: Callable[[str], Report], name: str) -> None:
    report = compared(name)
    found = report.findings
    assert (found.first_bad_node, found.suspects, found.systematic) == (None, (), ())
    assert exit_status(report) == 0
    assert ids(plan_of(report).notes) == ["note.experts_moved"]


@pytest.mark.parametrize("name", ["listed_values", "listed_trained", "listed_digests"])
def test_an_expert_is_paired_with_the_one_that_has_its_weights(
    compared: Callable[[str], Report], name: str
) -> None:
    matches = {one.target[0]: one for one in plan_of(compared(name)).matches}
    for golden, target in enumerate(ORDER):
        where = "Module.layers.1.mlp.experts.{}.up_proj.Linear.forward.0"
        match = matches[where.format(target)]
        assert match.golden == (where.format(golden),)
        assert "reason.same_expert" in ids(match.reasons)


@pytest.mark.parametrize("name", ["listed_values", "stacked_values"])
def test_what_the_router_gives_is_seen_in_the_order_of_the_golden_experts(
    compared: Callable[[str], Report], name: str
) -> None:
    report = compared(name)
    (result,) = report.slices
    told = {
        (pair.target_node, pair.target.label): measured
        for pair, measured in zip(result.plan.pairs, result.measurements, strict=True)
        if "transform.experts_in_order" in ids(pair.transform)
    }
    gate = "Module.layers.1.mlp.gate.Linear.forward.0"
    assert {
        (gate, "parameter.weight"),
        (gate, "output.0"),
        ("Torch.topk.1.forward", "output.1"),
    } <= told.keys()
    assert told[gate, "parameter.weight"].equal
    assert told["Torch.topk.1.forward", "output.1"].equal, "the numbers of the chosen experts are the same"


def test_numbers_of_experts_are_not_judged_by_statistics(compared: Callable[[str], Report]) -> None:
    plan = plan_of(compared("listed_trained"))
    said = {(pair.target_node, pair.target.label): pair.incomparable for pair in plan.pairs}
    why = said["Torch.topk.1.forward", "output.1"]
    assert why is not None
    assert why.id == "matching.incomparable.experts_numbered"
    assert said["Torch.topk.1.forward", "output.0"] is None


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("listed_off", "layers.1.mlp.experts.3.up_proj"),
        ("listed_off_values", "layers.1.mlp.experts.3.up_proj"),
        ("stacked_off", "layers.1.mlp.experts"),
        ("listed_router", "layers.1.mlp.gate"),
        ("stacked_router", "layers.1.mlp.gate"),
    ],
)
def test_a_fault_among_experts_in_another_order_is_named(
    compared: Callable[[str], Report], name: str, module: str
) -> None:
    found = compared(name).findings.first_bad_node
    assert found is not None
    assert (found.module, found.node_class) == (module, "weights differ")


@pytest.mark.parametrize(
    ("name", "module"),
    [("listed_swapped", "layers.0.mlp.experts.0.gate_proj"), ("stacked_swapped", "layers.0.mlp.experts")],
)
def test_experts_that_changed_places_alone_are_a_fault(
    compared: Callable[[str], Report], name: str, module: str
) -> None:
    report = compared(name)
    found = report.findings
    assert found.first_bad_node is not None
    assert (found.first_bad_node.module, found.first_bad_node.node_class) == (module, "weights differ")
    assert found.systematic == (), "it is no other checkpoint"
    assert ids(plan_of(report).notes) == ["note.experts_swapped"]
    assert exit_status(report) == 1


@pytest.mark.parametrize("name", ["listed_values", "stacked_values"])
def test_of_experts_in_one_order_nothing_is_said(unpacked: Unpack, name: str) -> None:
    target = unpacked(f"experts/{name}") / "target"
    plan = plan_of(compare(target, target))
    assert not {"note.experts_moved", "note.experts_swapped"} & {*ids(plan.notes)}
    assert not plan.unmatched_target


def test_numbers_beyond_those_that_are_told_stay(tmp_path: Path) -> None:
    np.save(tmp_path / "chosen.npy", np.array([[0, 1], [2, -1], [7, 3]]))
    location = DataLocation(tmp_path / "chosen.npy", "npy")
    told = replace(location, view=(ViewStep(RENUMBERED, (1, 3, 0, 2)),))
    assert load_tensor(told).tolist() == [[1, 3], [0, -1], [7, 2]]


@pytest.mark.parametrize("turned", [False, True])
def test_a_router_may_have_more_rows_than_there_are_experts(tmp_path: Path, turned: bool) -> None:
    """One that may choose none: the experts in one tensor are four, what the router chooses from are five."""
    dice = np.random.default_rng(7)
    experts, router = dice.normal(size=(4, 6, 3)), dice.normal(size=(5, 3))
    order = [1, 0, 2, 3] if turned else [0, 1, 2, 3]

    def run(side: str, numbers: list[int]) -> Slice:
        arrays = {
            "mlp.experts.gate_up_proj": experts[numbers] + 0.1,
            "mlp.gate.weight": router[[*numbers, 4]],
        }
        nodes = []
        for at, (path, array) in enumerate(arrays.items()):
            file = tmp_path / f"{side}{at}.npy"
            np.save(file, array.astype("float32"))
            module, _, key = path.rpartition(".")
            weight = TensorRecord(
                Role.PARAMETER, key, "float32", array.shape, location=DataLocation(file, "npy")
            )
            nodes.append(
                Node(path, module, NodeKind.MODULE, "Made", Direction.FORWARD, 0, at, None, (weight,))
            )
        return Slice(SliceListing(Coordinates(), tmp_path), tuple(nodes))

    found = find_moved(run("golden", [0, 1, 2, 3]), run("target", order))
    assert [moved.order for moved in found] == ([(1, 0, 2, 3, 4)] if turned else [])
