"""The laboratory counts what it says it counts."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "truth"))

from dice import Dice, fold_of
from score import pairs_of
from scoring import Answer, Named, score, table, wilson

HEALTHY = {"healthy": True}
FAULT = {"healthy": False, "module": "layers.1.mlp", "cls": ["source"]}


def named(module: str | None, cls: str = "source", step: int = 0, target: str = "") -> Answer:
    return Answer(node=Named(target or f"Module.{module}", "", module, cls, step))


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.28), (10, 10, 0.72, 1.0), (5, 10, 0.24, 0.76)],
)
def test_an_interval_is_wilsons(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=0.005)


def test_an_architecture_stays_in_its_fold() -> None:
    assert [fold_of(name) for name in ("llama", "gpt2", "whisper", "unet", "mixtral")] == [1, 1, 2, 1, 0]


def test_dice_fall_alike_for_the_same_seed() -> None:
    assert Dice("a", 1).shuffled(range(9)) == Dice("a", 1).shuffled(range(9))
    assert sorted(Dice("a", 2).shuffled(range(9))) == list(range(9))


def test_a_healthy_pair_is_right_if_nothing_is_said() -> None:
    assert score(HEALTHY, Answer()).found
    assert not score(HEALTHY, named("layers.0")).found
    assert not score(HEALTHY, Answer(inputs=1)).found


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("layers.1.mlp", True),
        ("layers.1.mlp.up", True),
        ("layers.1", False),
        ("layers.1.mlp2", False),
        (None, False),
    ],
)
def test_a_fault_is_found_at_its_module_or_inside(module: str | None, *, found: bool) -> None:
    assert score(FAULT, named(module)).found is found


def test_a_module_inside_that_is_right_is_not_the_place() -> None:
    assert not score({**FAULT, "clean": ["layers.1.mlp.up"]}, named("layers.1.mlp.up")).found


def test_the_class_counts_by_itself() -> None:
    result = score(FAULT, named("layers.1.mlp", "weights differ"))
    assert (result.found, result.cls) == (True, False)


def test_a_fault_of_a_later_step_is_found_in_that_step() -> None:
    late = {**FAULT, "step": 3}
    assert score(late, named("layers.1.mlp", step=3)).found
    assert not score(late, named("layers.1.mlp", step=0)).found


def test_without_modules_the_operators_inside_count() -> None:
    truth = {**FAULT, "nodes": ["Functional.linear.4.forward"]}
    assert score(truth, named(None, target="Functional.linear.4.forward")).found
    assert not score(truth, named(None, target="Functional.linear.5.forward")).found


def test_a_loss_is_found_by_its_operator() -> None:
    truth = {"healthy": False, "module": "", "ops": "cross_entropy", "cls": ["source"]}
    assert score(truth, named(None, target="Functional.cross_entropy.0.forward")).found
    assert not score(truth, named("ln_f")).found


def test_another_input_is_found_as_such() -> None:
    truth = {"healthy": False, "module": None, "input": True, "cls": []}
    assert score(truth, Answer(inputs=1)).found
    assert not score(truth, named("layers.0")).found


def test_a_table_counts_faults_and_healthy_pairs_apart() -> None:
    results = [
        {"healthy": False, "found": True, "class right": False, "exit": 1, "task": "tensor"},
        {"healthy": True, "found": False, "class right": False, "exit": 1, "task": "tensor"},
    ]
    row = table("task", results, lambda one: str(one["task"])).splitlines()[2]
    assert row.startswith("| tensor | 1/1 = 100%")
    assert row.count("1/1 = 100%") == 3
    assert "0/1 = 0%" in row


def test_pairs_without_a_truth_of_their_own_have_that_of_the_folder(tmp_path: Path) -> None:
    for side in ("golden", "target"):
        (tmp_path / "h_bf16.regnet.fwd.stat.mix.130" / side).mkdir(parents=True)
    told = (
        '{"h_bf16.regnet.fwd.stat.mix.130": {"arch": "regnet", "kind": "h_bf16", "truth": {"healthy": true}}}'
    )
    (tmp_path / "EXPECTED.json").write_text(told)
    (pair,) = pairs_of(tmp_path)
    assert (pair["mode"], pair["level"], pair["class"], pair["truth"]) == ("fwd", "mix", "vision", HEALTHY)
