"""Pairs of real dumps that an earlier version answered wrongly, of architectures that no rule was tuned on.

`unseen/NAME.tar.xz` holds NAME/golden and NAME/target, as the real msprobe wrote them; names that begin with
"h_" are healthy. `unseen/expected.json` says of the others which modules hold the fault (an empty path is the
whole model, no path where the optimizer made it), which classes are right, and in which step it begins;
that the runs were given other inputs.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from messages import ids_of, titled

from firstdrift import compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.exports.report_json import report_object
from firstdrift.exports.text import report_text
from firstdrift.verdict.confidence import Quantity
from firstdrift.wording.message import Message

HERE = Path(__file__).with_name("unseen")
EXPECTED: dict[str, dict[str, Any]] = json.loads(HERE.joinpath("expected.json").read_text("utf-8"))


def compared(name: str, folder: Path) -> Any:  # noqa: ANN401 (a report)
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return compare(folder / name / "golden", folder / name / "target")


@pytest.mark.parametrize("name", [name for name, truth in EXPECTED.items() if truth["healthy"]])
def test_a_healthy_pair_has_no_finding(name: str, tmp_path: Path) -> None:
    report = compared(name, tmp_path)
    found = report.findings
    assert (found.first_bad_node, found.first_bad_token, found.input_differs) == (None, None, ())
    assert exit_status(report) == 0


@pytest.mark.parametrize("name", [name for name, truth in EXPECTED.items() if truth.get("input")])
def test_another_input_is_no_fault_of_the_model(name: str, tmp_path: Path) -> None:
    report = compared(name, tmp_path)
    assert report.findings.input_differs
    assert report.findings.first_bad_node is None
    assert exit_status(report) == 2


@pytest.mark.parametrize("name", [name for name, truth in EXPECTED.items() if truth.get("systematic")])
def test_what_a_whole_run_has_is_said_once(name: str, tmp_path: Path) -> None:
    report = compared(name, tmp_path)
    found = report.findings
    assert [one.rule for one in found.systematic] == [f"systematic.{EXPECTED[name]['systematic']}"]
    assert (found.first_bad_node, found.first_bad_token, found.suspects) == (None, None, ())
    assert exit_status(report) == 1


FAULTS = [name for name, truth in EXPECTED.items() if "modules" in truth]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_where_it_is(name: str, tmp_path: Path) -> None:
    report, truth = compared(name, tmp_path), EXPECTED[name]
    found = report.findings.first_bad_node
    assert found is not None
    assert exit_status(report) == 1
    assert found.node_class in truth["classes"]
    assert found.coordinates.step == truth.get("step", found.coordinates.step)
    places = truth["modules"]
    assert not places or any(is_at(found.module, place) for place in places)


def is_at(module: str | None, place: str) -> bool:
    """Tell whether a module is another, or lies in it; the whole model has no path."""
    return (module or "") == place or (bool(place) and (module or "").startswith(f"{place}."))


def test_each_pair_is_expected_to_be_something() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz")} == set(EXPECTED)
    assert len(EXPECTED) > 20


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bw_kernel.whisper.train.stat.mix", "finding.backward_of"),
        ("frozen.xglm.train.stat.mix", "reason.one_sided_gradient_tensor_golden"),
        ("softcap_missing.gemma2.train.stat.mix", "reason.runs_alone_golden"),
        ("router_topk_off.deepseek_v2.fwd.stat.mix", "reason.argument"),
        ("loss_sum.gru.train.stat.mix.180001003", "reason.argument"),
        ("opt_betas.xglm.steps.stat.L0", "finding.optimizer_of_others"),
        ("dropout_on.modernbert.fwd.stat.L0.160001014", "hint.dropout_by_statistics"),
        ("untied.flaubert.train.stat.L1.160001013", "cause.tied"),
        ("weight_sign.biogpt.gen.stat.L1.161001101", "hint.signs_by_statistics"),
    ],
)
def test_the_first_sentence_says_what_is_done_otherwise(name: str, said: str, tmp_path: Path) -> None:
    findings = compared(name, tmp_path).findings
    assert said in ids_of(findings.summary)
    sure = findings.first_bad_node.confidence
    assert sure.margin is None or (sure.margin > 1 and sure.limit > 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("module_in_fp16.gpt_neox.gen.stat.mix.161001059", "hint.like_rounding_by_statistics"),
        ("weight_transposed.minicpm3.fwd.stat.mix.161001047", "reason.order_of_weights"),
    ],
)
def test_what_statistics_leave_open_is_evidence_and_no_cause(name: str, said: str, tmp_path: Path) -> None:
    found = compared(name, tmp_path).findings.first_bad_node
    assert said in {one for reason in found.reasons for one in ids_of(reason)}
    assert found.cause == ()


def test_an_input_in_another_order_is_said(tmp_path: Path) -> None:
    (differs,) = compared("batch_permuted.deberta.fwd.tens.L0.133001003", tmp_path).findings.input_differs
    assert {"input.first_mismatch", "hint.reversed"} <= set(ids_of(differs.reason))


def test_exchanged_weights_are_the_only_origins_and_named(tmp_path: Path) -> None:
    report = compared("swapped_weights.dpt.fwd.stat.mix.bf16", tmp_path)
    (judged,) = (one.judgement for one in report.slices)
    dense = ["encoder.layer.0.intermediate.dense", "encoder.layer.2.intermediate.dense"]
    assert [origin.module for origin in judged.origins] == dense
    assert [origin.cause for origin in judged.origins] == [
        (Message.of("cause.exchanged", node=other),) for other in reversed(dense)
    ]
    assert report.findings.first_bad_node.confidence.of is Quantity.END


def test_what_weights_hide_is_said(tmp_path: Path) -> None:
    found = compared("weights_scaled.unispeech.train.stat.mix", tmp_path).findings
    assert found.summary.arguments["rest"] == Message.of("summary.bound_to_differ")


def test_ties_are_counted_once_with_what_follows_from_them(tmp_path: Path) -> None:
    report = compared("h_bf16.mixtral.fwd.stat.mix.128", tmp_path)
    assert report.findings.ties.arguments == {"nodes": 1, "tensors": 36}
    assert report.findings.summary == Message.of("summary.agree")
    assert report_object(report)["incomparable"] == []
    assert report_text(report).count(titled("incomparable")) == 1


def test_what_a_fault_makes_choose_otherwise_is_no_tie(tmp_path: Path) -> None:
    report = compared("router_topk_off.deepseek_v2.fwd.stat.mix", tmp_path)
    assert report.findings.ties is None
    assert len(report_object(report)["incomparable"]) == 100
