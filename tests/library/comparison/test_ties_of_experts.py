"""A token that goes to another expert by a tie of nearly equal scores is no fault, and hides none."""

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from library.comparison.made_experts import Atb, Model, Run, write_atb, write_msprobe, write_torch
from messages import ids

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


@cache
def runs_of(tie: str, dtype: torch.dtype, wrong: str | None = None) -> list[Run]:
    """Run the model with a tie; a module of a name that is given gives half as much again as it should."""
    model = tied(tie) if wrong is None else tied(tie).scaled(wrong, 1.5)
    return [model.run(tokens, dtype) for tokens in PROMPTS]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes the dump of such a run, each only once."""

    @cache
    def write(way: str, tie: str, dtype: torch.dtype, wrong: str | None = None) -> Path:
        root, runs, like = tmp_path_factory.mktemp("tied") / "dump", runs_of(tie, dtype, wrong), WAYS[way]
        return write_torch(root, runs) if like is None else write_atb(root, runs, like)

    return write


def agree(report: Report) -> None:
    assert report.findings.first_bad_node is None
    assert report.findings.first_bad_token is None
    assert report.findings.suspects == ()
    assert report.counts.error == 0


@pytest.mark.parametrize(
    ("tie", "way", "reverse"),
    [*product(TIES, WAYS, [False]), *product(["a token of many"], WAYS, [True])],
)
def test_another_choice_among_nearly_equal_experts_is_no_finding(
    written: Callable[..., Path], tie: str, way: str, reverse: bool
) -> None:
    golden, target = runs_of(tie, torch.float32), runs_of(tie, torch.bfloat16)
    assert any(
        set(one[:, token].tolist()) != set(other[:, token].tolist())
        for before, after in zip(golden, target, strict=True)
        for one, other in zip(before.experts, after.experts, strict=True)
        for token in range(one.shape[1])
    )
    dumps = written("torch", tie, torch.float32), written(way, tie, torch.bfloat16)
    report = compare(*(dumps[::-1] if reverse else dumps))
    agree(report)
    warnings = [
        tuple(ids(pair.reasons))
        for result in report.slices
        for pair in result.judgement.pairs
        if pair.verdict is Verdict.WARNING
    ]
    assert ("router_tie",) in warnings


@pytest.mark.parametrize("tie", TIES)
def test_two_dumps_of_atb_agree_but_for_the_tie(written: Callable[..., Path], tie: str) -> None:
    agree(compare(written("fused", tie, torch.float32), written("fused", tie, torch.bfloat16)))


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
def test_a_tie_hides_no_fault(written: Callable[..., Path], fault: str, way: str) -> None:
    tie = "a token of many"
    target = written(way, tie, torch.bfloat16, FAULTS[fault])
    report = compare(written("torch", tie, torch.float32), target)
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
    written: Callable[..., Path], expert: int
) -> None:
    tie, wrong = "a token of many", f"layers.0.mlp.experts.{expert}.down_proj"
    target = written("fused", tie, torch.bfloat16, wrong)
    report = compare(written("torch", tie, torch.float32), target)
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.target.startswith("1_Decoder_layer/3_SparseMoe/2_MoeMlp/4_integrated_gmm")
