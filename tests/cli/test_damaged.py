"""What the terminal and the exit status say of dumps with a damaged file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import says, titled

from firstdrift.model.slice import Coordinates, only_on_one_side
from firstdrift.wording.text import text_of

Run = Callable[..., Any]
Unpacked = Callable[[str], Path]

FILE = "step0/rank0/dump_tensor_data/Module.model.layers.1.mlp.down_proj.Linear.forward.0.output.0.pt"


@pytest.fixture
def golden(unpacked: Unpacked) -> Path:
    return unpacked("msprobe/llama_tensor_L0_bf16") / "golden"


@pytest.fixture
def target(golden: Path, tmp_path: Path) -> Path:
    """A healthy dump but for one file, which is cut short."""
    shutil.copytree(golden.parent / "target", tmp_path / "target")
    file = tmp_path / "target" / FILE
    file.write_bytes(file.read_bytes()[:100])
    return tmp_path / "target"


def test_a_healthy_run_with_an_unreadable_file_exits_with_2(
    firstdrift: Run, golden: Path, target: Path
) -> None:
    done = firstdrift("compare", golden, target)
    assert says(done.out.splitlines()[0], "summary.agree")
    assert titled("pairs", "344: 343 pass, 0 warning, 0 error, 1 incomparable") in done.out
    (line,) = (line for line in done.out.splitlines() if line.startswith(titled("incomparable")))
    assert "down_proj.Linear.forward.0 output.0: " in line
    assert str(target / FILE) in line
    assert says(line, "dumps.zip.cut_short")
    assert done.status == 2


def test_json_lists_what_could_not_be_read(firstdrift: Run, golden: Path, target: Path) -> None:
    done = firstdrift("compare", golden, target, "--json")
    answer = json.loads(done.out)
    assert answer["counts"]["incomparable"] == answer["unreadable"] == 1
    (pair,) = answer["incomparable"]
    assert pair["target"] == "Module.model.layers.1.mlp.down_proj.Linear.forward.0"
    assert (pair["tensor"], pair["step"], pair["rank"]) == ("output.0", 0, 0)
    assert "dumps.zip.cut_short" in json.dumps(pair["reason"])
    assert done.status == 2


def test_a_fault_comes_before_an_unreadable_file(firstdrift: Run, unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    shutil.copytree(dump / "target", tmp_path / "target")
    (tmp_path / "target" / FILE).unlink()
    done = firstdrift("compare", dump / "golden", tmp_path / "target", "--json")
    answer = json.loads(done.out)
    assert answer["first_bad_node"]["module"] == "model.layers.2.mlp.down_proj"
    assert answer["unreadable"] == 1
    assert done.status == 1


def test_a_damaged_rank_is_named_and_the_others_are_compared(
    firstdrift: Run, unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = unpacked("msprobe/dp2_stat_mix")
    shutil.copytree(dump / "golden", tmp_path / "copy")
    file = tmp_path / "copy" / "step0" / "rank1" / "dump.json"
    file.write_bytes(file.read_bytes()[:1000])
    done = firstdrift("compare", dump / "golden", tmp_path / "copy")
    assert titled("problem", f"target: {file}: ") in done.out
    assert titled("unpaired", text_of(only_on_one_side([Coordinates(0, 1)], [])[0])) in done.out
    assert says(done.out, "summary.equal_statistics"), "the others agree"
    assert done.status == 2
