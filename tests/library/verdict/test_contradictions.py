"""What is said of a node does not contradict what is said of others, or of it in another slice."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from library.verdict.made_slices import MadePair, make
from library.verdict.test_judge_properties import Drawn, slices

from firstdrift import compare
from firstdrift.comparison.report import Options
from firstdrift.model.slice import Coordinates
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.findings import judge_after
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.judgement import ORIGINS, NodeClass, RowJudgement, SliceJudgement, Verdict
from firstdrift.verdict.tree import TreeRow

MATCH = ("reason.inputs_agree", "reason.equal_inputs", "reason.weights", "reason.scaled")
"""Reasons that say that inputs match."""

Slice = tuple[Sequence[TreeRow], SliceJudgement]

PAIRS = (
    ("msit/llama12_golden_fp32", "msit/llama12_bf16_bad_L7_T2"),
    ("msprobe/comm2_stat_mix/golden", "msprobe/comm2_stat_mix/target"),
    ("msprobe/dp2_stat_mix/golden", "msprobe/dp2_stat_mix/target"),
    ("msprobe/llama_tensor_L0_2steps/golden", "msprobe/llama_tensor_L0_2steps/target"),
    ("msprobe/llama_stat_L0_generate/golden", "msprobe/llama_stat_L0_generate/target"),
    ("msprobe/megatron_microstep_stat_mix/golden", "msprobe/megatron_microstep_stat_mix/target"),
    ("msprobe/ranks_llama/both", "msprobe/ranks_llama/fault"),
    ("experts/listed_swapped/golden", "experts/listed_swapped/target"),
)


def require_consistent(row: TreeRow, said: RowJudgement, level: float | None) -> None:
    if said.verdict is Verdict.ERROR:
        assert said.node_class not in (NodeClass.CLEAN, NodeClass.HEALED), row
    if row.target and is_communication(row.target[0]):
        assert said.node_class not in ORIGINS, row
    if said.amplification is not None and said.input_error:
        assert said.amplification == (said.output_error or 0.0) / said.input_error
    if level is not None and (said.input_error or 0.0) > level:
        assert not any(reason.id in MATCH for reason in said.reasons), row


def require_one_limit(run: Iterable[Slice]) -> None:
    """Require that no node passes with an error that was one of it, or of a node beside it, before."""
    least: dict[tuple[int | None, tuple[str, ...]], float] = {}
    for rows, judged in run:
        for row, said in zip(rows, judged.rows, strict=True):
            error = said.output_error
            if error is None or judged.level is None:
                continue
            key = judged.coordinates.rank, row.target
            if said.verdict is Verdict.PASS:
                assert error < least.get(key, float("inf")), row
            elif said.node_class is NodeClass.PROPAGATED and error > judged.level:
                least[key] = min(error, least.get(key, error))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1])
def test_real_runs_are_not_contradicted(unpacked: Callable[[str], Path], pair: tuple[str, str]) -> None:
    golden, target = (unpacked("/".join(one.split("/")[:2])) / "/".join(one.split("/")[2:]) for one in pair)
    report = compare(golden, target, Options())
    run = [(one.rows, one.judgement) for one in report.slices]
    for rows, judged in run:
        for row, said in zip(rows, judged.rows, strict=True):
            require_consistent(row, said, None)
    require_one_limit(run)


def drawn(
    name: str,
    parent: str | None = None,
    *,
    inputs: tuple[float | str, ...] = (),
    outputs: tuple[float, ...] = (),
    weights: tuple[float, ...] = (),
) -> Drawn:
    return Drawn(name, parent, inputs, outputs, weights)


BEFORE = [drawn("Functional.linear.0.forward"), drawn("Functional.linear.1.forward")]
AFTER = [
    drawn("Functional.linear.4.forward", outputs=(2e-6,)),
    drawn("Functional.linear.5.forward", "Module.layers.0.Block.forward.0", weights=(2e-6,)),
    drawn("Module.layers.0.Block.forward.0", outputs=(0.0,)),
]
WEIGHTS_OFF = [
    *BEFORE,
    drawn("Functional.linear.2.forward", weights=(2e-6,)),
    drawn("Module.layers.3.mlp.MLP.forward.0", weights=(0.2, 0.2)),
    *AFTER,
]
"""All weights are off, by so much that no output tells of another fault."""

LESS_OFF = [
    *BEFORE,
    drawn("Functional.linear.2.forward", weights=(0.0, 1e-4)),
    drawn("Torch.mul.3.forward", inputs=(2e-6, "NaN in the target"), weights=(1e-4,)),
    *AFTER,
]


@settings(max_examples=1000, deadline=None)
@given(slices(), slices())
@example(WEIGHTS_OFF, LESS_OFF)
def test_no_two_slices_contradict_each_other(first: list[Drawn], second: list[Drawn]) -> None:
    run: list[Slice] = []
    for token, drawn in enumerate((first, second)):
        made = make(*(call.call() for call in drawn), coordinates=Coordinates(token=token))
        judged = judge_after([said for _, said in run], made.plan, made.rows, made.measurements)
        for row, said in zip(made.rows, judged.rows, strict=True):
            require_consistent(row, said, None)
        run.append((made.rows, judged))
    require_one_limit(run)


@settings(max_examples=200, deadline=None)
@given(slices())
def test_no_node_is_recovered_and_failing_by_any_rules(drawn: list[Drawn]) -> None:
    made: MadePair = make(*(call.call() for call in drawn))
    for rules in RULES:
        rows = made.judge(rules).said.rows
        assert not any(one.node_class is NodeClass.HEALED and one.verdict is Verdict.ERROR for one in rows)
