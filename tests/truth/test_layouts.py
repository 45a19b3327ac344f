"""Pairs of the laboratory in other layouts: token by token as msit writes them, and of two ranks.

`layouts/NAME.tar.xz` holds NAME/golden and NAME/target; `layouts/expected.json` has their truths, as the
laboratory wrote them when it planted the faults (`benchmarks/truth`). Names that begin with "h_" or "r_" are
healthy; "tp12" is a model on one rank against the same model spread over two, "dp22" two copies of one.
"""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "truth"))

from score import answer_to
from scoring import Score, score

HERE = Path(__file__).with_name("layouts")
EXPECTED: dict[str, dict[str, Any]] = json.loads(HERE.joinpath("expected.json").read_text("utf-8"))
RIGHT = Score(found=True, cls=True, token=True, rank=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_answer_is_the_truth(name: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    truth, answer = EXPECTED[name], answer_to(str(tmp_path / name))
    assert score(truth, answer) == RIGHT, answer.summary
    assert (answer.status == 1) is not (truth["healthy"] or truth.get("input", False))


def test_each_pair_has_a_truth() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz")} == set(EXPECTED)


def test_each_layout_has_faults_and_a_healthy_pair() -> None:
    for sign in (".msit.", ".tp"):
        assert {truth["healthy"] for name, truth in EXPECTED.items() if sign in name} == {True, False}
    assert {truth.get("token") for truth in EXPECTED.values()} > {0, 3}
    assert {tuple(truth.get("ranks at fault", ())) for truth in EXPECTED.values()} > {(0,), (1,), (0, 1)}
