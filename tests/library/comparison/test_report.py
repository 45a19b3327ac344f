"""What `firstdrift.compare` gives a notebook: findings, plan, rows."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from library.dumps.msprobe_samples import module, write_dump
from messages import gaps_of, ids_of, outline

import firstdrift
from firstdrift import FirstdriftError, Options, Report
from firstdrift.comparison.from_dumps import Progress
from firstdrift.comparison.table import COLUMNS
from firstdrift.errors import DumpNotFoundError, SettingsError
from firstdrift.exports.report_json import dump_object
from firstdrift.exports.text import report_text
from firstdrift.matching.plan import MatchingRules
from firstdrift.model.slice import Coordinates

Compared = Callable[..., Report]
Unpacked = Callable[[str], Path]


@pytest.fixture(scope="module")
def zoo(compared: Compared) -> Report:
    return compared("msprobe/zoo_tensor_mix/golden", "msprobe/zoo_tensor_mix/target")


def test_paths_may_be_text_or_paths(unpacked: Unpacked) -> None:
    dump = unpacked("msit/nested")
    assert firstdrift.compare(str(dump), dump).counts == firstdrift.compare(dump, str(dump)).counts


def test_every_value_has_one_measurement_one_verdict_and_one_row(zoo: Report) -> None:
    (result,) = zoo.slices
    assert len(result.plan.pairs) == len(result.measurements) == len(result.judgement.pairs)
    assert len(result.rows) == len(result.judgement.rows)
    assert zoo.counts.pairs == len(result.plan.pairs)
    assert zoo.counts.values()[1:5] == tuple(
        sum(pair.verdict == verdict for pair in result.judgement.pairs)
        for verdict in ("pass", "warning", "error", "incomparable")
    )


def test_the_frame_has_a_row_for_each_pair_and_for_what_is_left_over(zoo: Report) -> None:
    frame = zoo.frame()
    assert isinstance(frame, pd.DataFrame)
    assert tuple(frame.columns) == COLUMNS
    plan = zoo.slices[0].plan
    left_over = (
        plan.unmatched_golden,
        plan.unmatched_target,
        plan.unmatched_golden_tensors,
        plan.unmatched_target_tensors,
    )
    assert len(frame) == len(plan.pairs) + sum(map(len, left_over))
    assert (frame["verdict"] == "error").sum() == zoo.counts.error
    (bad,) = frame[
        (frame["class"] == "weights differ")
        & (frame["target_node"] == "Functional.linear.0.forward")
        & (frame["target_tensor"] == "output.0")
    ].to_dict("records")
    assert bad["module"] == "w.lin"
    assert bad["measured_from"] == "data"
    assert bad["relative_l2"] > 0.1


def test_the_frame_tells_the_slices_apart(compared: Compared) -> None:
    frame = compared("msprobe/dp2_stat_mix/golden", "msprobe/dp2_stat_mix/target").frame()
    assert set(zip(frame["step"], frame["rank"], strict=True)) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_what_could_not_be_compared_is_listed_with_its_reason(zoo: Report) -> None:
    found = {(pair.target_node, pair.target.label): reason for _, pair, reason in zoo.incomparable()}
    assert len(found) == zoo.counts.incomparable == 3
    assert "dumps.npy.unknown_dtype" in ids_of(found["Module.w.Weird.forward.0", "input.strs"])
    shapes = [told for told in map(ids_of, found.values()) if any("shapes_differ" in id_ for id_ in told)]
    assert len(shapes) == 2


def test_nobody_is_shown_progress_who_did_not_ask(
    capsys: pytest.CaptureFixture[str], unpacked: Unpacked
) -> None:
    dump = unpacked("msit/nested")
    firstdrift.compare(dump, dump)
    assert capsys.readouterr() == ("", "")


def test_progress_comes_to_an_end(unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/dp2_stat_mix")
    seen: list[Progress] = []
    firstdrift.compare(dump / "golden", dump / "target", progress=seen.append)
    assert seen[-1] == Progress("done", 4, 4)
    assert {at.stage for at in seen} == {"reading", "measuring", "done"}
    assert all(at.slices_done <= at.slices_total == 4 for at in seen)
    assert all(at.pairs_done <= at.pairs_total for at in seen)


def test_the_time_of_each_stage_is_told(zoo: Report) -> None:
    assert zoo.seconds.keys() == {"index", "match", "measure", "total"}
    assert 0 < sum(zoo.seconds[stage] for stage in ("index", "match", "measure")) <= zoo.seconds["total"]


@pytest.mark.parametrize("options", [Options(rules="mine"), Options(level="layers")])
def test_options_that_make_no_sense_are_refused(unpacked: Unpacked, options: Options) -> None:
    dump = unpacked("msit/nested")
    with pytest.raises(SettingsError, match=r"mine|layers"):
        firstdrift.compare(dump, dump, options)


def test_a_missing_dump_is_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(FirstdriftError) as caught:
        firstdrift.compare(tmp_path / "a", tmp_path / "b")
    assert isinstance(caught.value, DumpNotFoundError)
    assert caught.value.path == tmp_path / "a"


def test_slices_that_do_not_pair_say_so(unpacked: Unpacked) -> None:
    tokens, steps = unpacked("msit/llama4_logits_golden"), unpacked("msprobe/dp2_stat_mix") / "golden"
    report = firstdrift.compare(tokens, steps)
    assert report.slices == ()
    assert report.findings.summary.id == "summary.no_slices"
    assert report.pairing.notes


def test_nothing_else_is_public() -> None:
    words = {"compare", "match", "unmatch"}
    assert set(firstdrift.__all__) == {"FirstdriftError", "MatchingRules", "Options", "Report"} | words
    with pytest.raises(AttributeError, match="has no attribute 'comparison_of'"):
        _ = firstdrift.comparison_of


def test_differing_digests_are_said_to_tell_no_amount(tmp_path: Path) -> None:
    def hashed(digest: str) -> dict[str, object]:
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "md5": digest}

    for side, output in (("golden", "0000000a"), ("target", "0000000b")):
        data = {
            "Functional.gelu.0.forward": module(hashed("00000001")) | {"output": [hashed("00000002")]},
            "Functional.relu.0.forward": module(hashed("00000002")) | {"output": [hashed(output)]},
        }
        write_dump(tmp_path / side / "step0" / "rank0", data, construct=dict.fromkeys(data), task="md5")
    found = firstdrift.compare(tmp_path / "golden", tmp_path / "target").findings.first_bad_node
    assert found is not None
    assert found.target == "Functional.relu.0.forward"
    assert [outline(reason) for reason in found.reasons] == ["equal_inputs digests_differ"]


def test_what_statistics_tell_is_a_lower_bound(compared: Callable[[str, str], Report]) -> None:
    name = "msprobe/llama_stat_mix_perturb"
    found = compared(f"{name}/golden", f"{name}/target").findings.first_bad_node
    assert found is not None
    told = set(ids_of(found.reasons[0]))
    assert told >= {
        "reason.weights_equal_inputs",
        "reason.weight_differs_by",
        "reason.inputs_equal_statistics",
    }
    assert outline(found.reasons[0]).count("at_least 2") == len(("parameter", "output"))


def test_two_different_models_are_said_to_be_so(compared: Callable[[str, str], Report]) -> None:
    findings = compared("msit/llama4_golden_fp32", "msit/llama12_golden_fp32").findings
    assert gaps_of(findings.summary, "summary.other_model")["where"] == Coordinates(token=0).name()
    assert gaps_of(findings.summary, "mismatch.shapes") == {"count": 108, "pairs": 113}
    assert gaps_of(findings.summary, "mismatch.hidden_size") == {"golden": 64, "target": 32}
    assert gaps_of(findings.summary, "mismatch.layers") == {"golden": 4, "target": 12}


def test_no_error_begins_where_two_different_models_happen_to_have_one_shape(
    compared: Callable[[str, str], Report],
) -> None:
    report = compared("msit/llama12_golden_fp32", "msit/llama4_golden_fp32")
    findings = report.findings
    assert (findings.first_bad_token, findings.first_bad_node, findings.suspects) == (None, None, ())
    assert findings.unlike is not None
    assert gaps_of(findings.summary, "summary.other_model")["facts"] == findings.unlike
    assert report.counts.error > 0, "what differs is still counted"
    assert not any(result.judgement.origins for result in report.slices)


@pytest.mark.parametrize("target", ["llama4_perturb_L2_T3", "llama4_bf16"])
def test_runs_of_one_model_are_not_unlike(compared: Callable[[str, str], Report], target: str) -> None:
    assert compared("msit/llama4_golden_fp32", f"msit/{target}").findings.unlike is None


@pytest.mark.parametrize(
    ("golden", "target"),
    [("llama12_golden_fp32", "atb12_bf16"), ("llama4_golden_fp32", "llama4_twoprompts")],
)
def test_a_prompt_of_another_length_or_another_framework_is_no_other_model(
    compared: Callable[[str, str], Report], golden: str, target: str
) -> None:
    assert compared(f"msit/{golden}", f"msit/{target}").findings.summary.id != "summary.other_model"


def test_arguments_are_counted_as_tensors_wherever_tensors_are_counted(
    compared: Callable[[str, str], Report],
) -> None:
    report = compared("msit/llama12_golden_fp32", "msit/atb12_bf16")
    for side in ("golden", "target"):
        left = [getattr(result.plan, f"unmatched_{side}_tensors") for result in report.slices]
        assert sum(map(len, left)) == getattr(report.counts, f"unmatched_{side}_tensors")
        assert sum(map(len, left)) <= getattr(report, side).tensors
    alone = compared("msprobe/llama_stat_mix_perturb/golden", "msprobe/llama_stat_mix_perturb/golden")
    counts = alone.counts
    for side in (alone.golden, alone.target):
        assert side.tensors == counts.pairs
    assert any(not pair.golden.is_tensor for pair in alone.slices[0].plan.pairs)


def test_slices_and_nodes_are_counted_of_what_was_compared(
    compared: Callable[[str, str], Report], unpacked: Callable[[str], Path]
) -> None:
    whole = compared("msit/llama4_golden_fp32", "msit/llama4_fp16")
    assert (whole.golden.slices, whole.golden.compared) == (8, 8)
    dumps = [unpacked(f"msit/{name}") for name in ("llama4_golden_fp32", "llama4_fp16")]
    one = firstdrift.compare(*dumps, Options(matching=MatchingRules(token=2)))
    assert (one.golden.slices, one.golden.compared) == (8, 1)
    assert one.golden.nodes * 8 == whole.golden.nodes
    text = report_text(one)
    assert f"msit-torch, 1 of 8 slices compared, {one.golden.nodes} nodes" in text
    assert "of 8 slices compared" not in report_text(whole)
    assert dump_object(one.golden)["compared"] == 1
