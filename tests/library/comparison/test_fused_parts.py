"""Of what was fused the part that is off is named: of queries, keys and values, of gate and up.

A dump of torch modules is held against one of ATB, which computes them as one; the values that a module gave
are changed in a copy of the former.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from messages import ids
from msgspec.structs import replace

from firstdrift import MatchingRules, Options, Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.part_errors import errors_of_parts
from firstdrift.model.tensor import Role, Statistics, TensorRecord, join_statistics
from firstdrift.verdict.scaled_part import scaled_part
from firstdrift.verdict.worst_part import named_parts

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


ATTENTION, FUSED = "vit.layers.1.attention", "blocks.1.attn.qkv"
NAMES = [f"Module.{ATTENTION}.{part}_proj.Linear.forward.0" for part in "qkv"]


def without_values(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of a dump without the file that has the values of a tensor."""
    return {key: told for key, told in entry.items() if key != "data_name"}


@pytest.fixture
def by_statistics(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[..., Report]:
    """Return a function that compares two runs by their statistics; the key is wrong in one of them.

    What it is given changes the statistics of the weight of query, key and value.
    """

    def run(other: Mapping[str, float], *, reverse: bool = False) -> Report:
        pair = tmp_path / "pair"
        shutil.copytree(unpacked("implementations/vit_fused_key"), pair)
        for index in pair.rglob("dump.json"):
            dump = json.loads(index.read_text(), object_hook=without_values) | {"task": "statistics"}
            fused = dump["data"].get(f"Module.{FUSED}.Linear.forward.0")
            if fused is not None:
                fused["parameters"]["weight"] |= other
            index.write_text(json.dumps(dump))
            shutil.rmtree(index.parent / "dump_tensor_data")
        sides = pair / "golden", pair / "target"
        return compare(*(sides[::-1] if reverse else sides))

    return run


@pytest.mark.parametrize("reverse", [False, True])
def test_a_part_that_alone_explains_all_statistics_is_named(
    by_statistics: Callable[..., Report], reverse: bool
) -> None:
    bad = by_statistics({}, reverse=reverse).findings.first_bad_node
    assert bad is not None
    assert (bad.target if reverse else bad.golden) == NAMES[1]
    assert bad.module == (f"{ATTENTION}.k_proj" if reverse else FUSED)
    (said,) = (reason for reason in bad.reasons if reason.id == "reason.scaled_part")
    assert said.arguments["factor"] == pytest.approx(1.3, rel=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_where_statistics_do_not_tell_the_part_all_are_named(
    by_statistics: Callable[..., Report], reverse: bool
) -> None:
    bad = by_statistics({"Max": 1.7}, reverse=reverse).findings.first_bad_node
    assert bad is not None
    assert (bad.target if reverse else bad.golden) == " + ".join(NAMES)
    assert bad.module == (ATTENTION if reverse else FUSED)
    assert "any_part" in ids(bad.reasons)


def summed_up(values: Array, shape: tuple[int, ...] | None = None) -> TensorRecord:
    """Describe a weight by its statistics."""
    told = Statistics(values.max(), values.min(), values.mean(), float(np.linalg.norm(values)))
    return TensorRecord(Role.PARAMETER, "weight", "float32", shape or values.shape, told)


@settings(max_examples=60, deadline=None)
@given(
    seed=some.integers(0, 10_000),
    rows=some.lists(some.integers(4, 48), min_size=2, max_size=3),
    which=some.integers(0, 2),
    factor=some.sampled_from([1.3, 1.02, 0.5, 0.0, -1.0, None]),
)
def test_no_part_is_named_that_is_not_off(
    seed: int, rows: list[int], which: int, factor: float | None
) -> None:
    """A factor is found; of what is no factor, none is."""
    dice = np.random.default_rng(seed)
    parts = [dice.standard_normal((count, 16)).astype(np.float32) for count in rows]
    at = which % len(parts)
    changed = list(parts)
    changed[at] = dice.permuted(parts[at]) ** 3 if factor is None else parts[at] * np.float32(factor)
    whole = np.concatenate(changed)
    records = tuple(map(summed_up, parts))
    joined = replace(records[0], shape=whole.shape, statistics=join_statistics(records))
    pair = TensorPair(
        0, "q", "qkv", joined, summed_up(whole), golden_parts=records, joining=Joining.CONCATENATED
    )
    found = scaled_part(pair)
    if factor is None:
        assert found is None
    else:
        assert found == (at, pytest.approx(factor, abs=1e-3))


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


def test_of_experts_whose_statistics_do_not_tell_which_is_off_the_module_around_all_is_named() -> None:
    record = summed_up(np.ones((4, 3), "float32"))
    nodes = tuple(
        f"Module.mlp.experts.{at}.{name}.Linear.forward.0" for at in range(3) for name in ("w1", "w3")
    )
    pair = TensorPair(
        0, "", "", record, record, target_parts=(record,) * 6, part_nodes=nodes, joining=Joining.STACKED
    )
    assert named_parts(pair) == ("Module.mlp.experts",)
    assert named_parts(replace(pair, joining=Joining.CONCATENATED)) == nodes
