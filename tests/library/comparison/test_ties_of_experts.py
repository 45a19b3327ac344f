"""A token that goes to another expert by a tie of nearly equal scores is no fault, and hides none."""

from pathlib import Path

import pytest
import torch
from library.comparison.made_experts import Atb, Model, Run, write_atb, write_msprobe, write_torch

from firstdrift import Report, compare
from firstdrift.verdict.judgement import Verdict

PROMPTS = [[1, 17, 42, 9, 7, 33, 2, 5, 11], [4], [8]]
TIES = {"a token of many": (0, PROMPTS[0], 5), "the last of many": (0, PROMPTS[0], 8), "alone": (0, [4], 0)}
WAYS = {
    "torch": None,
    "fused": Atb(),
    "split": Atb(fused=False),
    "apart": Atb(fused=False, apart=True),
    "each": Atb(each=True),
}


def tied(tie: str) -> Model:
    return Model().tie(*TIES[tie])


def write(root: Path, runs: list[Run], way: str) -> Path:
    like = WAYS[way]
    return write_torch(root, runs) if like is None else write_atb(root, runs, like)


def runs_of(model: Model, dtype: torch.dtype) -> list[Run]:
    return [model.run(tokens, dtype) for tokens in PROMPTS]


def agree(report: Report) -> None:
    assert report.findings.first_bad_node is None
    assert report.findings.first_bad_token is None
    assert report.findings.suspects == ()
    assert report.counts.error == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tie", TIES)
def test_another_choice_among_nearly_equal_experts_is_no_finding(
    tmp_path: Path, tie: str, way: str, reverse: bool
) -> None:
    model = tied(tie)
    golden, target = runs_of(model, torch.float32), runs_of(model, torch.bfloat16)
    assert any(
        set(one[:, token].tolist()) != set(other[:, token].tolist())
        for before, after in zip(golden, target, strict=True)
        for one, other in zip(before.experts, after.experts, strict=True)
        for token in range(one.shape[1])
    )
    dumps = write(tmp_path / "golden", golden, "torch"), write(tmp_path / "target", target, way)
    report = compare(*(dumps[::-1] if reverse else dumps))
    agree(report)
    warnings = [
        pair.reasons
        for result in report.slices
        for pair in result.judgement.pairs
        if pair.verdict is Verdict.WARNING
    ]
    assert ("another expert is chosen among nearly equal ones (a tie within rounding)",) in warnings


@pytest.mark.parametrize("tie", TIES)
def test_two_dumps_of_atb_agree_but_for_the_tie(tmp_path: Path, tie: str) -> None:
    model = tied(tie)
    golden, target = runs_of(model, torch.float32), runs_of(model, torch.bfloat16)
    agree(compare(write(tmp_path / "golden", golden, "fused"), write(tmp_path / "target", target, "fused")))


@pytest.mark.parametrize("tie", TIES)
def test_statistics_alone_show_a_tie_by_the_rows_that_experts_were_given(tmp_path: Path, tie: str) -> None:
    model, tokens = tied(tie), TIES[tie][1]
    golden = write_msprobe(tmp_path / "golden", model.run(tokens, torch.float32))
    agree(compare(golden, write_msprobe(tmp_path / "target", model.run(tokens, torch.bfloat16))))


FAULTS = {
    "before the tie": "layers.0.self_attn.o_proj",
    "the router": "layers.0.mlp.gate",
    "beside the experts": "layers.0.mlp.shared_expert.down_proj",
    "behind it": "layers.1.self_attn.o_proj",
    "an expert behind it": "layers.1.mlp.experts.3.down_proj",
}


@pytest.mark.parametrize("way", ["torch", "fused", "each"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tie_hides_no_fault(tmp_path: Path, fault: str, way: str) -> None:
    golden = runs_of(tied("a token of many"), torch.float32)
    target = runs_of(tied("a token of many").scaled(FAULTS[fault], 1.5), torch.bfloat16)
    report = compare(write(tmp_path / "golden", golden, "torch"), write(tmp_path / "target", target, way))
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.coordinates.token == 0
    names = f"root.model.{FAULTS[fault]} {bad.golden} {bad.target}"
    if "mlp.experts" in FAULTS[fault] and way == "fused":
        assert "layers.1.mlp.experts.3" in names
        assert "2_Decoder_layer/3_SparseMoe" in bad.target
    elif way == "torch":
        assert bad.target == f"root.model.{FAULTS[fault]}"
    else:
        assert bad.target.startswith(f"{1 + int(FAULTS[fault][7])}_Decoder_layer")


@pytest.mark.parametrize("expert", [0, 3])
def test_an_expert_that_is_off_where_the_tie_is_shows_in_its_grouped_product(
    tmp_path: Path, expert: int
) -> None:
    name = f"layers.0.mlp.experts.{expert}.down_proj"
    golden = runs_of(tied("a token of many"), torch.float32)
    target = runs_of(tied("a token of many").scaled(name, 1.5), torch.bfloat16)
    report = compare(write(tmp_path / "golden", golden, "torch"), write(tmp_path / "atb", target, "fused"))
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.target.startswith("1_Decoder_layer/3_SparseMoe/2_MoeMlp/4_integrated_gmm")
