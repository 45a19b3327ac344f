"""A model that the real msprobe dumps now on several ranks, against the same model on one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

WRITER = Path(__file__).with_name("dump_ranks.py")
TWICE, TENSORS = ("--micro-steps", "2"), ("--task", "tensor")

Dumps = Callable[..., Path]


@pytest.fixture(scope="module")
def dump(run_peer: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    """Return a function that gives a dump written with some options: copy it before you change it."""

    @cache
    def write(*options: str) -> Path:
        written = tmp_path_factory.mktemp("ranks") / "dump"
        run_peer(WRITER, written, *options)
        return written

    return write


def compared(golden: Path, target: Path, *options: str) -> dict[str, Any]:
    command = [Path(sys.executable).with_name("firstdrift"), "compare", golden, target, "--json", *options]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=False, capture_output=True).stdout)
    return answer


@pytest.mark.parametrize(
    "spread",
    [["--tensor", "2"], ["--pipeline", "2"], ["--pipeline", "2", "--virtual", "2"]],
    ids=["tensor", "pipeline", "virtual"],
)
def test_a_healthy_model_is_the_same_however_it_is_spread(dump: Dumps, spread: list[str]) -> None:
    answer = compared(dump(*TWICE), dump(*TWICE, *spread))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["pass"] == answer["counts"]["pairs"] > 400


def test_a_sequence_that_is_spread_too_is_the_same(dump: Dumps) -> None:
    answer = compared(dump(*TENSORS), dump(*TENSORS, "--tensor", "2", "--sequence"))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["pass"] == answer["counts"]["pairs"] > 200


def test_the_rank_with_a_wrong_weight_is_named(dump: Dumps) -> None:
    answer = compared(dump(*TWICE), dump(*TWICE, "--tensor", "2", "--scale", "1:2:up=1.5"))
    assert answer["first_bad_node"]["module"] == "model.layers.2.mlp.up"
    assert answer["rank_finding"]["arguments"] == {"rank": 1}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_one_rank_has_no_finding_because_it_holds_shards(dump: Dumps, tmp_path: Path, level: str) -> None:
    options = ["--llama", *TENSORS, "--level", level]
    whole, spread = dump(*options), dump(*options, "--tensor", "2")
    left = shutil.copytree(spread, tmp_path / "left")
    shutil.rmtree(left / "step0" / "rank0")
    chosen = compared(whole, spread, "--rank", "1")
    for answer, passed in ((chosen, 100), (compared(whole, left), 50), (compared(left, whole), 50)):
        assert answer["first_bad_node"] is None
        assert answer["counts"]["error"] == answer["counts"]["warning"] == 0
        assert answer["counts"]["pass"] > passed


def test_the_wrong_weight_of_the_chosen_rank_is_named(dump: Dumps) -> None:
    options = ["--llama", *TENSORS, "--level", "mix"]
    spread = dump(*options, "--tensor", "2", "--scale", "1:2:gate=1.5")
    assert compared(dump(*options), spread, "--rank", "1")["first_bad_node"]["module"] == (
        "model.layers.2.mlp.gate"
    )


@pytest.mark.parametrize("more", [[], ["--sequence"]], ids=["shards", "sequence"])
def test_a_llama_on_two_stages_of_two_shards_is_the_same(dump: Dumps, more: list[str]) -> None:
    answer = compared(dump("--llama"), dump("--llama", "--tensor", "2", "--pipeline", "2", *more))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["error"] == answer["counts"]["unmatched_golden_nodes"] == 0
    assert answer["counts"]["pass"] > 550


def test_the_rank_of_a_later_stage_with_a_wrong_weight_is_named(dump: Dumps) -> None:
    spread = dump("--llama", "--tensor", "2", "--pipeline", "2", "--scale", "3:3:gate=1.5")
    answer = compared(dump("--llama"), spread)
    assert answer["first_bad_node"]["module"] == "model.layers.3.mlp.gate"
    assert answer["rank_finding"]["arguments"] == {"rank": 3}


@pytest.mark.parametrize("more", [[], ["--numbered"]], ids=["from 0", "of all"])
def test_experts_of_which_each_rank_has_half_are_those_of_the_model(dump: Dumps, more: list[str]) -> None:
    answer = compared(dump("--llama", "--experts", "1"), dump("--llama", "--experts", "2", *more))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["error"] == answer["counts"]["unmatched_golden_nodes"] == 0
