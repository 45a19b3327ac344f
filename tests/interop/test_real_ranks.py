"""A model that the real msprobe dumps now on several ranks, against the same model on one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / ".venv-interop" / "bin" / "python"


def write_dump(dump: Path, *options: str) -> Path:
    subprocess.run([PEER, Path(__file__).with_name("dump_ranks.py"), dump, *options], check=True)
    return dump


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dump(tmp_path_factory.mktemp("whole") / "dump", "--micro-steps", "2")


def compared(golden: Path, target: Path, *options: str) -> dict[str, Any]:
    command = [Path(sys.executable).with_name("firstdrift"), "compare", golden, target, "--json", *options]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=False, capture_output=True).stdout)
    return answer


@pytest.mark.parametrize(
    "spread",
    [["--tensor", "2"], ["--pipeline", "2"], ["--pipeline", "2", "--virtual", "2"]],
    ids=["tensor", "pipeline", "virtual"],
)
def test_a_healthy_model_is_the_same_however_it_is_spread(
    whole: Path, tmp_path: Path, spread: list[str]
) -> None:
    answer = compared(whole, write_dump(tmp_path / "dump", "--micro-steps", "2", *spread))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["pass"] == answer["counts"]["pairs"] > 400


def test_a_sequence_that_is_spread_too_is_the_same(tmp_path: Path) -> None:
    whole = write_dump(tmp_path / "whole", "--task", "tensor")
    spread = write_dump(tmp_path / "dump", "--task", "tensor", "--tensor", "2", "--sequence")
    answer = compared(whole, spread)
    assert answer["first_bad_node"] is None
    assert answer["counts"]["pass"] == answer["counts"]["pairs"] > 200


def test_the_rank_with_a_wrong_weight_is_named(whole: Path, tmp_path: Path) -> None:
    options = ["--micro-steps", "2", "--tensor", "2", "--scale", "1:2:up=1.5"]
    answer = compared(whole, write_dump(tmp_path / "dump", *options))
    assert answer["first_bad_node"]["module"] == "model.layers.2.mlp.up"
    assert answer["rank_finding"] == "It began on rank 1."


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_one_rank_has_no_finding_because_it_holds_shards(tmp_path: Path, level: str) -> None:
    options = ["--llama", "--task", "tensor", "--level", level]
    whole = write_dump(tmp_path / "whole", *options)
    spread = write_dump(tmp_path / "spread", *options, "--tensor", "2")
    chosen = compared(whole, spread, "--rank", "1")
    shutil.rmtree(spread / "step0" / "rank0")
    for answer, passed in ((chosen, 100), (compared(whole, spread), 50), (compared(spread, whole), 50)):
        assert answer["first_bad_node"] is None
        assert answer["counts"]["error"] == answer["counts"]["warning"] == 0
        assert answer["counts"]["pass"] > passed


def test_the_wrong_weight_of_the_chosen_rank_is_named(tmp_path: Path) -> None:
    options = ["--llama", "--task", "tensor"]
    whole = write_dump(tmp_path / "whole", *options)
    spread = write_dump(tmp_path / "spread", *options, "--tensor", "2", "--scale", "1:2:gate=1.5")
    assert compared(whole, spread, "--rank", "1")["first_bad_node"]["module"] == "model.layers.2.mlp.gate"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dump(tmp_path_factory.mktemp("llama") / "dump", "--llama")


@pytest.mark.parametrize("more", [[], ["--sequence"]], ids=["shards", "sequence"])
def test_a_llama_on_two_stages_of_two_shards_is_the_same(
    llama: Path, tmp_path: Path, more: list[str]
) -> None:
    options = ["--llama", "--tensor", "2", "--pipeline", "2", *more]
    answer = compared(llama, write_dump(tmp_path / "dump", *options))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["error"] == answer["counts"]["unmatched_golden_nodes"] == 0
    assert answer["counts"]["pass"] > 550


def test_the_rank_of_a_later_stage_with_a_wrong_weight_is_named(llama: Path, tmp_path: Path) -> None:
    options = ["--llama", "--tensor", "2", "--pipeline", "2", "--scale", "3:3:gate=1.5"]
    answer = compared(llama, write_dump(tmp_path / "dump", *options))
    assert answer["first_bad_node"]["module"] == "model.layers.3.mlp.gate"
    assert answer["rank_finding"] == "It began on rank 3."


@pytest.mark.parametrize("more", [[], ["--numbered"]], ids=["from 0", "of all"])
def test_experts_of_which_each_rank_has_half_are_those_of_the_model(tmp_path: Path, more: list[str]) -> None:
    whole = write_dump(tmp_path / "whole", "--llama", "--experts", "1")
    answer = compared(whole, write_dump(tmp_path / "dump", "--llama", "--experts", "2", *more))
    assert answer["first_bad_node"] is None
    assert answer["counts"]["error"] == answer["counts"]["unmatched_golden_nodes"] == 0
