"""What was planted in ATB dumps is found, token by token, and nothing is found in healthy ones."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import gaps_of, ids, ids_of, outline

from firstdrift import Options, Report, compare
from firstdrift.matching.plan import MatchingRules
from firstdrift.wording.text import text_of

Compared = Callable[[str, str], Report]

HEALTHY = [
    ("atb12_fp32_golden", "atb12_bf16_3tok"),
    ("atb12_bf16", "atb12_bf16_nowarm"),
    ("atb12_fp32_golden", "atb12_bf16_stats"),
    ("msprobe_atb_golden", "msprobe_atb_bf16"),
    ("msprobe_atb_golden", "msprobe_atb_bf16_alias"),
    ("msprobe_atb_golden", "atb12_bf16_nowarm"),
]
ACROSS_FRAMEWORKS = [
    ("llama12_golden_fp32", "atb12_bf16", 6, 12),
    ("llama12_bf16", "atb12_bf16", 6, 12),
    ("atb12_bf16", "llama12_golden_fp32", 6, 12),
    ("llama12_golden_fp32", "atb12_fp32_golden", 3, 12),
    ("llama12_golden_fp32", "atb12_bf16_nowarm", 4, 12),
    ("llama12_perturb_L7_T2", "atb12_fp32_perturb_io", 3, 12),
    ("llama12_bf16", "atb12_bf16_stats", 3, 12),
    ("llama12_stats_golden", "atb12_bf16_stats", 3, 12),
    ("llama12_golden_fp32", "msprobe_atb_golden", 3, 12),
    ("llama12_golden_fp32", "atb12_bf16_tp2", 3, 12),
    ("llama4_golden_fp32", "atb4_bf16", 4, 4),
]
FAULTS = [
    ("atb12_fp32_golden", "atb12_fp32_perturb_io"),
    ("atb12_bf16", "atb12_bf16_bad"),
    ("atb12_fp32_golden", "atb12_bf16_bad"),
]


@pytest.mark.parametrize(("golden", "target"), HEALTHY)
def test_a_healthy_run_has_no_finding_and_every_tensor_is_compared(
    compared: Compared, golden: str, target: str
) -> None:
    report = compared(f"msit/{golden}", f"msit/{target}")
    assert report.findings.first_bad_token is None
    assert report.findings.first_bad_node is None
    counts = report.counts
    assert counts.passed == counts.pairs > 2000
    assert counts.unmatched_golden_nodes == counts.unmatched_target_nodes == 0


@pytest.mark.parametrize(("golden", "target"), FAULTS)
def test_a_fault_is_found_in_its_token_and_layer(compared: Compared, golden: str, target: str) -> None:
    findings = compared(f"msit/{golden}", f"msit/{target}").findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 2
    # The dumps hold the noise of the feed-forward block from the residual add on.
    assert findings.first_bad_node.target == "25_Decoder_layer/3_ElewiseOperation"
    assert findings.first_bad_node.module == "Decoder_layer.7"
    # A layer holds more than one sum: the operator is named with it.
    place = gaps_of(findings.summary, "finding.operator_in")
    assert place == {"operator": "3_ElewiseOperation", "module": "Decoder_layer.7"}


def without_classes(dump: Path, to: Path) -> Path:
    shutil.copytree(dump, to)
    for file in to.rglob("model_tree.json"):
        file.unlink()
    return to


def test_a_fault_is_found_where_the_torch_dump_tells_no_classes(
    unpacked: Callable[[str], Path], compared: Compared, tmp_path: Path
) -> None:
    golden = without_classes(unpacked("msit/llama12_golden_fp32"), tmp_path / "golden")
    healthy = compare(golden, unpacked("msit/atb12_bf16"))
    assert healthy.findings.first_bad_token is healthy.findings.first_bad_node is None
    assert healthy.counts == compared("msit/llama12_golden_fp32", "msit/atb12_bf16").counts
    findings = compare(golden, unpacked("msit/atb12_bf16_bad")).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "25_Decoder_layer/3_ElewiseOperation"
    assert findings.first_bad_node.coordinates.token == 2
    assert findings.summary == compared("msit/llama12_golden_fp32", "msit/atb12_bf16_bad").findings.summary


def test_another_prompt_is_no_fault_where_no_dump_tells_classes(
    unpacked: Callable[[str], Path], compared: Compared, tmp_path: Path
) -> None:
    expected = compared("msit/llama4_golden_fp32", "msit/llama4_twoprompts").findings
    sides = [
        without_classes(unpacked(f"msit/{name}"), tmp_path / name)
        for name in ("llama4_golden_fp32", "llama4_twoprompts")
    ]
    found = compare(*sides).findings
    assert found.first_bad_token is None
    assert found.input_differs == expected.input_differs
    assert len(found.input_differs) > 0


@pytest.mark.parametrize("offset", [-5, -1, 1, 2, 5])
def test_tokens_that_do_not_belong_together_were_given_other_inputs(
    unpacked: Callable[[str], Path], offset: int
) -> None:
    dumps = unpacked("msit/llama12_golden_fp32"), unpacked("msit/atb12_bf16")
    for sides in (dumps, dumps[::-1]):
        report = compare(*sides, Options(matching=MatchingRules(token_offset=offset)))
        findings = report.findings
        assert findings.first_bad_token is findings.first_bad_node is None
        assert findings.input_differs[0].coordinates.token == max(offset, 0)
        assert findings.input_differs[0].reason.id == "input.other_length"
        assert findings.summary.id == "summary.other_inputs"
        assert len(findings.input_differs) == len(report.slices)
        assert report.counts.error == 0


@pytest.mark.parametrize(("token", "module"), [(3, "PositionalEmbeddingGather"), (4, "WordEmbedding")])
def test_an_embedding_whose_ids_were_not_recorded_says_that_another_token_would_explain_it(
    unpacked: Callable[[str], Path], token: int, module: str
) -> None:
    dumps = unpacked("msit/llama12_golden_fp32"), unpacked("msit/atb12_bf16")
    rules = MatchingRules(token=token, token_offset=1)
    bad = compare(*dumps, Options(matching=rules)).findings.first_bad_node
    assert bad is not None
    assert (bad.module or "").startswith(module)
    assert ids(bad.reasons) == ["first_to_differ_looked_up"]


def test_what_was_added_is_named_as_the_torch_model_has_it_too(compared: Compared) -> None:
    findings = compared("msit/llama12_golden_fp32", "msit/atb12_bf16_bad").findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    assert "2_MlpGateUpWeightPack/4_LinearNoQuant = root.model.layers.7.mlp.down_proj" in text_of(
        findings.summary
    )


def test_a_token_that_is_compared_alone_shows_which_sum_is_off(unpacked: Callable[[str], Path]) -> None:
    dumps = unpacked("msit/atb12_fp32_golden"), unpacked("msit/atb12_bf16_bad")
    findings = compare(*dumps, Options(matching=MatchingRules(token=2))).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "25_Decoder_layer/3_ElewiseOperation"
    assert set(ids_of(findings.summary)) >= {"summary.bad_token_and_node", "finding.only_token"}
    place = gaps_of(findings.summary, "finding.operator_in")
    assert place == {"operator": "3_ElewiseOperation", "module": "Decoder_layer.7"}
    assert "2_MlpGateUpWeightPack/4_LinearNoQuant" in text_of(findings.summary)


@pytest.mark.parametrize(("golden", "target", "tokens", "layers"), ACROSS_FRAMEWORKS)
def test_across_frameworks_a_healthy_run_has_no_finding_and_every_layer_is_compared(
    compared: Compared, golden: str, target: str, tokens: int, layers: int
) -> None:
    report = compared(f"msit/{golden}", f"msit/{target}")
    assert report.findings.first_bad_token is None
    assert report.findings.first_bad_node is None
    assert report.findings.suspects == ()
    assert report.counts.passed == report.counts.pairs
    assert len(report.slices) == tokens
    for result in report.slices:
        both = [pair.golden_node + pair.target_node for pair in result.plan.pairs]
        of_layers = {name for name in both if re.search(r"root\.model\.layers\.\d+(?!\.)", name)}
        assert sum("_layer" in name and "/" not in name for name in of_layers) == layers


@pytest.mark.parametrize("golden", ["llama12_golden_fp32", "llama12_bf16"])
@pytest.mark.parametrize("reverse", [False, True])
def test_across_frameworks_the_sum_that_differs_beyond_what_it_adds_is_named(
    compared: Compared, golden: str, reverse: bool
) -> None:
    dumps = (f"msit/{golden}", "msit/atb12_bf16_bad")
    findings = compared(*(dumps[::-1] if reverse else dumps)).findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    found = findings.first_bad_node
    assert found is not None
    assert found.coordinates.token == 2
    names = ("root.model.layers.7", "25_Decoder_layer/3_ElewiseOperation")
    assert (found.golden, found.target) == (names[::-1] if reverse else names)
    # Within the module that the finding names, names are those in it.
    assert f" {'25_Decoder_layer/' if reverse else ''}1_ElewiseOperation " in outline(found.reasons[0])
    assert found.reasons[0].id == "reason.sum"
    assert ("mlp.down_proj" if reverse else "MlpGateUpWeightPack") in text_of(findings.summary)
    assert found.module is not None
    assert found.module.endswith("ayers.7" if reverse else "layer.7")


@pytest.fixture
def golden_outputs(unpacked: Callable[[str], Path], tmp_path: Path) -> Path:
    """The golden torch run as it is dumped where only outputs are asked for."""
    return Path(
        shutil.copytree(
            unpacked("msit/llama12_golden_fp32"), tmp_path / "golden", ignore=shutil.ignore_patterns("input*")
        )
    )


@pytest.mark.parametrize("target", ["atb12_bf16", "atb12_bf16_nowarm", "atb12_bf16_tp2", "atb12_fp32_golden"])
def test_of_outputs_alone_a_healthy_run_has_no_finding(
    unpacked: Callable[[str], Path], golden_outputs: Path, target: str
) -> None:
    report = compare(golden_outputs, unpacked(f"msit/{target}"))
    assert report.findings.first_bad_token is None
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 1000


def test_of_outputs_alone_the_sum_is_held_against_all_three_that_it_adds(
    unpacked: Callable[[str], Path], golden_outputs: Path
) -> None:
    findings = compare(golden_outputs, unpacked("msit/atb12_bf16_bad")).findings
    found = findings.first_bad_node
    assert found is not None
    assert (found.coordinates.token, found.target) == (2, "25_Decoder_layer/3_ElewiseOperation")
    (reason,) = found.reasons
    assert reason.id == "reason.sum"
    sizes = [
        (part.arguments["name"], text_of(part.arguments["size"])) for part in reason.arguments["addends"]
    ]
    assert sizes == [
        ("24_Decoder_layer/3_ElewiseOperation", "1.35 %"),
        ("0_Attention/4_LinearNoQuant = root.model.layers.7.self_attn.o_proj", "1.45 %"),
        ("2_MlpGateUpWeightPack/4_LinearNoQuant = root.model.layers.7.mlp.down_proj", "2.95 %"),
    ]
    assert text_of(reason.arguments["output"]) == "8.80 %"


def test_across_frameworks_operators_alone_show_the_sum(unpacked: Callable[[str], Path]) -> None:
    dumps = [unpacked(f"msit/{name}") for name in ("llama12_golden_fp32", "atb12_bf16_bad")]
    found = compare(*dumps, Options(level="api", matching=MatchingRules(token=2))).findings.first_bad_node
    assert found is not None
    assert found.target == "25_Decoder_layer/3_ElewiseOperation"


def test_across_frameworks_of_a_damaged_dump_one_tensor_is_incomparable(compared: Compared) -> None:
    report = compared("msit/llama12_golden_fp32", "msit/corrupt")
    assert report.counts.incomparable == 1
    assert report.counts.passed == report.counts.pairs - 1 > 1000
    assert report.findings.first_bad_node is None


@pytest.mark.parametrize(("target", "token"), [("atb12_bf16_logits", None), ("atb12_bad_logits", 2)])
def test_across_frameworks_logits_alone_show_the_token(
    compared: Compared, target: str, token: int | None
) -> None:
    report = compared("msit/llama12_logits_golden", f"msit/{target}")
    bad = report.findings.first_bad_token
    assert report.counts.pairs == 6
    assert (bad.coordinates.token if bad else None) == token


def test_logits_alone_show_the_token(compared: Compared) -> None:
    findings = compared("msit/atb12_bf16_logits", "msit/atb12_bad_logits").findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    assert findings.first_bad_node is None


def test_of_a_damaged_dump_one_tensor_is_incomparable_and_the_rest_is_compared(compared: Compared) -> None:
    report = compared("msit/atb12_bf16_3tok", "msit/corrupt")
    assert report.counts.incomparable == 1
    assert report.counts.passed == report.counts.pairs - 1
    assert report.findings.first_bad_node is None
