"""Of what was fused the part that is off is named: of queries, keys and values, of gate and up.

A dump of torch modules is held against one of ATB, which computes them as one; the values that a module gave
are changed in a copy of the former.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from messages import ids

from firstdrift import MatchingRules, Options, Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.metrics.part_errors import errors_of_parts

LAYER, TOKEN = 3, 2
PARTS = {
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "gate_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
}


@pytest.fixture
def compared(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[..., Report]:
    """Return a function that compares the two dumps, with the outputs of some modules times 1.5."""

    def run(*wrong: str, reverse: bool = False) -> Report:
        torch_run = tmp_path / "torch"
        shutil.copytree(unpacked("msit/llama12_golden_fp32"), torch_run)
        for name in wrong:
            (file,) = torch_run.rglob(f"{TOKEN}/root.model.layers.{LAYER}.{name}/output.pth")
            torch.save(torch.load(file) * 1.5, file)
        sides = torch_run, unpacked("msit/atb12_fp32_golden")
        options = Options(matching=MatchingRules(token=TOKEN))
        return compare(*(sides[::-1] if reverse else sides), options)

    return run


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_the_part_that_is_off_is_named(compared: Callable[..., Report], part: str, reverse: bool) -> None:
    bad = compared(PARTS[part], reverse=reverse).findings.first_bad_node
    assert bad is not None
    own = f"root.model.layers.{LAYER}.{PARTS[part]}"
    assert (bad.target if reverse else bad.golden) == own
    assert "worst_part" in ids(bad.reasons)
    if reverse:
        assert bad.module == own.removeprefix("root.")


def test_of_two_parts_that_are_off_the_first_is_named(compared: Callable[..., Report]) -> None:
    bad = compared(PARTS["k_proj"], PARTS["v_proj"]).findings.first_bad_node
    assert bad is not None
    assert bad.golden == f"root.model.layers.{LAYER}.self_attn.k_proj"


def test_where_nothing_is_off_no_part_is(compared: Callable[..., Report]) -> None:
    report = compared()
    assert exit_status(report) == 0
    assert report.findings.first_bad_node is None


@pytest.mark.parametrize(
    ("golden", "target", "errors"),
    [
        ([3.0, 4.0, 1.0, 2.0], [3.0, 4.0, 1.0, 2.0], (0.0, 0.0)),
        ([3.0, 4.0, 1.0, 2.0], [3.0, 4.5, 1.0, 2.0], (0.1, 0.0)),
        ([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 1.0], (0.0, math.inf)),
        ([3.0, 4.0, 1.0, math.nan], [3.0, 4.0, 1.0, math.nan], (0.0, 0.0)),
        ([3.0, 4.0, 1.0, math.nan], [3.0, 4.0, 1.0, 2.0], (0.0, math.inf)),
        ([3.0, 4.0, 1.0, math.inf], [6.0, 8.0, 1.0, math.inf], (1.0, 0.0)),
    ],
)
def test_errors_of_parts(golden: list[float], target: list[float], errors: tuple[float, ...]) -> None:
    labels = np.array([[0, 0, 1, 1]])
    sides = [np.array([values, values]) for values in (golden, target)]
    assert errors_of_parts(sides[0], sides[1], labels, 2) == pytest.approx(errors)
