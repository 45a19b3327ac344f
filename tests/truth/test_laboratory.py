"""The laboratory counts what it says it counts."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "truth"))

from dice import Dice, fold_of
from score import Chosen, names_in, pairs_of
from scoring import (
    Answer,
    Named,
    first_token_table,
    rank_table,
    rotated_table,
    score,
    table,
    token_table,
    wilson,
)

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


def test_the_module_around_is_the_place_where_nothing_inside_is_compared() -> None:
    truth = {**FAULT, "module": "layers.1.mlp.down", "around": "layers.1.mlp"}
    assert score(truth, named("layers.1.mlp")).found
    assert not score(truth, named("layers.1.mlp.up")).found


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


def tokens(node: int, first_bad: int | None) -> Answer:
    bad = None if first_bad is None else Named("lm_head", token=first_bad)
    return Answer(node=Named("up", "", "layers.1.mlp", "source", token=node), token=bad)


@pytest.mark.parametrize(
    ("node", "first_bad", "found", "right"),
    [
        (1, 1, True, True),
        (1, 2, True, True),  # its logits are off by more than rounding from there on
        (1, 0, True, False),
        (1, 3, True, False),
        (1, None, True, False),
        (0, 1, False, True),
        (2, 2, False, True),
    ],
)
def test_a_fault_is_found_in_its_token(node: int, first_bad: int | None, *, found: bool, right: bool) -> None:
    result = score({**FAULT, "token": 1, "logits": 2}, tokens(node, first_bad))
    assert (result.found, result.token) == (found, right)


def test_a_fault_that_no_logits_show_needs_no_bad_token() -> None:
    truth = {**FAULT, "token": 1}
    assert score(truth, tokens(1, None)).token
    assert score(truth, tokens(1, 2)).token
    assert not score(truth, tokens(1, 0)).token


@pytest.mark.parametrize(
    ("at_fault", "untold", "rank", "right"),
    [
        ([1], False, 1, True),
        ([1], False, 0, False),
        ([1], False, None, False),
        ([1], True, None, True),
        ([1], True, 0, False),
        ([0, 1], False, None, True),
        ([0, 1], False, 1, True),
    ],
)
def test_the_rank_at_fault_counts_by_itself(
    at_fault: list[int], rank: int | None, *, untold: bool, right: bool
) -> None:
    truth = {**FAULT, "ranks at fault": at_fault, "rank untold": untold}
    result = score(truth, Answer(node=Named("up", "", "layers.1.mlp", "source", rank=rank)))
    assert (result.found, result.rank) == (True, right)


def test_another_input_is_found_on_the_rank_that_was_given_it() -> None:
    truth = {"healthy": False, "module": None, "input": True, "cls": [], "ranks at fault": [1]}
    assert score(truth, Answer(inputs=2, input_ranks=(1, 1))).rank
    assert not score(truth, Answer(inputs=2, input_ranks=(0, 1))).rank
    assert not score(truth, Answer(node=Named("up"), inputs=1, input_ranks=(1,))).found


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


def result(arch: str, *, healthy: bool, found: bool) -> dict[str, object]:
    return {
        "healthy": healthy,
        "found": found,
        "class right": found,
        "token right": found,
        "rank right": found,
        "fold": fold_of(arch),
        "task": "tensor",
        "level": "msit",
        "ranks": "tp 1:2",
    }


def test_each_fold_is_held_against_the_others() -> None:
    results = [
        result("mixtral", healthy=False, found=False),
        result("llama", healthy=False, found=True),
        result("llama", healthy=True, found=False),
    ]
    rows = rotated_table(results).splitlines()[2:]
    assert rows[0].startswith("| 0 | 1/1 = 100%")
    assert [cell.split(" ")[1] for cell in rows[0].split("|")[2:6]] == ["1/1", "0/1", "1/1", "none"]
    assert [cell.split(" ")[1] for cell in rows[1].split("|")[2:6]] == ["0/1", "1/1", "none", "1/1"]
    assert rows[2].startswith("| **all** | | 1/2 = 50%")


def test_tokens_and_ranks_have_tables_of_their_own() -> None:
    results = [result("llama", healthy=False, found=True), result("gpt2", healthy=True, found=True)]
    assert token_table(results).splitlines()[2].startswith("| tensor, msit | 1/1 = 100%")
    assert rank_table(results).splitlines()[2].startswith("| tp 1:2 | 1/1 = 100%")
    assert token_table([]) == ""


def test_the_first_bad_token_is_scored_by_itself() -> None:
    truth, bad = {"healthy": False, "token": 1, "logits": 2}, {"token": 1}
    results = [
        result("llama", healthy=False, found=False) | {"truth": truth, "token": bad, "token right": True},
        result("gpt2", healthy=False, found=True) | {"truth": truth, "token": None, "token right": False},
        result("bloom", healthy=False, found=True) | {"truth": {"healthy": False}, "token": None},
        result("opt", healthy=True, found=False) | {"truth": HEALTHY, "token": None},
    ]
    low, high = (f"{end:.0%}".removesuffix("%") for end in wilson(1, 2))
    row = f"| msit first bad token | 1/2 = 50% [{low}-{high}%] | 0/1 = 0% [0-79%] |"
    assert first_token_table(results).splitlines()[2] == row
    assert first_token_table(results[2:]) == ""


def test_architectures_that_were_looked_at_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "looked_at.txt"
    file.write_text("llama  # its rotary base\n\n# qwen2\ngpt2\n")
    chosen = Chosen(looked_at=names_in(file))
    kept = [name for name in ("llama", "qwen2", "gpt2") if chosen.has({"arch": name, "fold": 1})]
    assert kept == ["qwen2"]


def test_a_name_of_no_architecture_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "looked_at.txt"
    file.write_text("lama\n")
    with pytest.raises(ValueError, match="lama"):
        names_in(file)
