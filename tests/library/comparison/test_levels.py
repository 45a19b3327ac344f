"""Comparing only layers, modules, operators or logits."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift import Options, Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.verdict.judgement import Remedy

Unpacked = Callable[[str], Path]


def nodes_of(report: Report) -> set[str]:
    return {pair.target_node for result in report.slices for pair in result.plan.pairs}


@pytest.fixture(scope="module")
def at(unpacked: Unpacked) -> Callable[[str], Report]:
    """Return a function that compares a training step, modules and operators, at one level."""
    dump = unpacked("msprobe/llama_stat_mix_perturb")
    return lambda level: compare(dump / "golden", dump / "target", Options(level=level))


def test_layers_are_the_numbered_modules(at: Callable[[str], Report]) -> None:
    report = at("layer")
    assert nodes_of(report) == {
        f"Module.model.layers.{layer}.LlamaDecoderLayer.{direction}.0"
        for layer in range(4)
        for direction in ("forward", "backward")
    }
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.2"


def test_modules_and_operators_share_out_what_there_is(
    at: Callable[[str], Report], compared: Callable[..., Report]
) -> None:
    modules, operators = at("module"), at("api")
    dump = "msprobe/llama_stat_mix_perturb"
    everything = compared(f"{dump}/golden", f"{dump}/target")
    assert nodes_of(modules) | nodes_of(operators) == nodes_of(everything)
    assert not nodes_of(modules) & nodes_of(operators)
    assert all(re.match(r"Module\.|optimizer|clip_grad", node) for node in nodes_of(modules))
    for report in (modules, operators):
        assert report.findings.first_bad_node is not None
        assert report.findings.first_bad_node.module == "model.layers.2.mlp.down_proj"
        assert report.findings.first_bad_node.node_class == "weights differ"


def test_logits_are_the_output_of_the_head(unpacked: Unpacked) -> None:
    dumps = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_bf16_bad_L7_T2")
    report = compare(*dumps, Options(level="logits"))
    assert nodes_of(report) == {"root.lm_head"}
    assert report.counts.pairs == 6
    assert report.findings.first_bad_token is not None
    assert report.findings.first_bad_token.coordinates.token == 2


def test_one_node_of_a_head_that_runs_others_tells_its_logits(unpacked: Unpacked) -> None:
    dumps = unpacked("msit/atb12_fp32_golden"), unpacked("msit/atb12_bf16_logits")
    report = compare(*dumps, Options(level="logits"))
    assert report.findings.not_judged is None
    assert exit_status(report) == 0


def test_a_dump_of_logits_alone_is_told_so_whatever_else_it_names(unpacked: Unpacked) -> None:
    report = compare(unpacked("msit/llama12_golden_fp32"), unpacked("msit/atb12_bf16_logits"))
    assert report.findings.not_judged is not None
    assert report.findings.not_judged.remedy is Remedy.LEVEL


def test_what_is_left_over_stays_listed(unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/d4_renamed")
    report = compare(dump / "golden", dump / "target", Options(level="layer"))
    assert report.counts.unmatched_golden_nodes + report.counts.unmatched_target_nodes > 0
