"""Experts that torch runs one by one are held against the grouped products of ATB, and a bad one is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from library.comparison.made_experts import (
    EXPERTS,
    LAYERS,
    Atb,
    Fault,
    Model,
    write_atb,
    write_msprobe,
    write_torch,
)
from messages import gaps_of, ids

from firstdrift import Report, compare
from firstdrift.matching.plan import Joining, TensorPair

PROMPTS = [[1, 17, 42, 9, 7, 33, 2, 5, 11], [4], [8]]
MODEL = Model()

Compare = Callable[..., Report]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [MODEL.run(tokens, torch.float32) for tokens in PROMPTS]
    return write_torch(tmp_path_factory.mktemp("golden"), runs)


@pytest.fixture
def compare_with_atb(golden: Path, tmp_path: Path) -> Compare:
    def run(
        dtype: torch.dtype = torch.float32,
        fault: Fault | None = None,
        like: Atb | None = None,
        *,
        reverse: bool = False,
        other_golden: Path | None = None,
    ) -> Report:
        runs = [MODEL.run(tokens, dtype, fault if at == 0 else None) for at, tokens in enumerate(PROMPTS)]
        dumps = other_golden or golden, write_atb(tmp_path / "atb", runs, like or Atb())
        return compare(*(dumps[::-1] if reverse else dumps))

    return run


def of_experts(report: Report, at: int = 0) -> list[TensorPair]:
    return [pair for pair in report.slices[at].plan.pairs if pair.joining is Joining.OF_EXPERTS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("like", "reverse"),
    [
        (Atb(), False),
        (Atb(), True),
        (Atb(fused=False), False),
        (Atb(fused=False, apart=True, shared_first=True), False),
        (Atb(around=False, shared_first=True), True),
    ],
    ids=str,
)
def test_a_healthy_run_has_no_finding_and_every_product_of_experts_is_compared(
    compare_with_atb: Compare, dtype: torch.dtype, like: Atb, reverse: bool
) -> None:
    report = compare_with_atb(dtype, like=like, reverse=reverse)
    assert report.findings.first_bad_node is None
    assert report.findings.first_bad_token is None
    assert report.counts.passed == report.counts.pairs
    for at in range(len(PROMPTS)):
        plan = report.slices[at].plan
        left = {*plan.unmatched_golden, *plan.unmatched_target}
        assert not any("Grouped" in name or "gmm" in name for name in left)
        # Of a gate that is multiplied at once nothing is known alone.
        assert sum("MoeMlp/" in name and "Activation" in name for name in left) == 0
        assert not any("SharedExpert/" in name for name in left)


def test_rows_are_compared_in_the_order_of_the_experts_that_were_given_some(
    compare_with_atb: Compare,
) -> None:
    report = compare_with_atb()
    pairs = {(pair.target_node, pair.target.label): pair for pair in of_experts(report, 1)}
    routed = "1_Decoder_layer/3_SparseMoe/2_MoeMlp"
    experts = "root.model.layers.0.mlp.experts"
    both = pairs[f"{routed}/2_integrated_gmm", "output.0"]
    assert both.part_nodes == tuple(
        f"{experts}.{number}.{name}" for name in ("gate_proj", "up_proj") for number in (0, 2)
    )
    assert both.golden.shape == both.target.shape == (2, 48)
    assert ids(both.transform) == ["transform.rows_by_expert", "transform.arranged_by_values"]
    assert both.transform[0].arguments == {"experts": (0, 2)}
    product = pairs[f"{routed}/3_ActivationOperation", "output.0"]
    assert product.golden.label == "input.0"
    assert product.part_nodes == (f"{experts}.0.down_proj", f"{experts}.2.down_proj")
    given = {pair.target_node for pair in of_experts(report) if pair.golden.label == "input.0"}
    assert f"{routed}/0_MoeInitRoutingOperation" in given


def test_what_holds_the_chosen_experts_alone_is_not_what_adds_the_shared_one(
    compare_with_atb: Compare,
) -> None:
    pairs = [pair for result in compare_with_atb().slices for pair in result.plan.pairs]
    blocks = {f"root.model.layers.{layer}.mlp" for layer in range(LAYERS)}
    assert not any(pair.golden_node in blocks and pair.golden.label == "output.0" for pair in pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("layer", "expert"), [(0, 4), (1, 3)])
def test_an_expert_that_is_off_is_named(
    compare_with_atb: Compare, dtype: torch.dtype, reverse: bool, layer: int, expert: int
) -> None:
    findings = compare_with_atb(dtype, Fault(layer, expert), reverse=reverse).findings
    bad = findings.first_bad_node
    assert bad is not None
    assert bad.coordinates.token == 0
    names = (
        f"root.model.layers.{layer}.mlp.experts.{expert}.down_proj",
        f"{layer + 1}_Decoder_layer/3_SparseMoe/2_MoeMlp/4_integrated_gmm/0_GroupedMatmulOperation",
    )
    assert (bad.golden, bad.target) == (names[::-1] if reverse else names)
    if reverse:
        named = gaps_of(findings.summary, "finding.node")["bad_node"]
        assert named == f"model.layers.{layer}.mlp.experts.{expert}.down_proj"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("step", ["gate_proj", "up_proj"])
@pytest.mark.parametrize("apart", [False, True])
def test_of_gate_and_up_the_one_that_is_off_is_named_side_by_side_as_well(
    compare_with_atb: Compare, step: str, reverse: bool, apart: bool
) -> None:
    like = Atb(fused=False, apart=apart)
    findings = compare_with_atb(fault=Fault(1, 3, step=step), like=like, reverse=reverse).findings
    bad = findings.first_bad_node
    assert bad is not None
    own = f"root.model.layers.1.mlp.experts.3.{step}"
    assert (bad.target if reverse else bad.golden) == own
    if reverse:
        assert bad.module == own.removeprefix("root.")


@pytest.mark.parametrize("name", ["gate_proj", "down_proj"])
def test_where_rows_of_an_expert_are_missing_nothing_is_held_to_be_the_whole(
    compare_with_atb: Compare, golden: Path, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(golden, copy)
    (gone,) = copy.rglob(f"0/root.model.layers.0.mlp.experts.{EXPERTS - 1}.{name}")
    shutil.rmtree(gone)
    report = compare_with_atb(other_golden=copy)
    of_layer = [pair for pair in of_experts(report) if pair.target_node.startswith("1_")]
    assert not any(name in node for pair in of_layer for node in pair.part_nodes)
    assert report.counts.passed == report.counts.pairs
    assert report.findings.first_bad_node is None


def test_a_damaged_file_of_an_expert_spoils_its_product_alone(
    compare_with_atb: Compare, golden: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(golden, copy)
    (file,) = copy.rglob("0/root.model.layers.0.mlp.experts.1.down_proj/output.pth")
    file.write_bytes(file.read_bytes()[:-40])
    report = compare_with_atb(other_golden=copy)
    assert report.findings.first_bad_node is None
    assert report.counts.passed + report.counts.incomparable == report.counts.pairs
    downs = [pair for pair in of_experts(report) if "4_integrated_gmm" in pair.target_node]
    assert {pair.target_node[0] for pair in downs if pair.incomparable is None} == {"2"}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shared_first", [False, True])
@pytest.mark.parametrize("fault", [None, Fault(1, 3)], ids=str)
def test_experts_that_run_one_by_one_on_both_sides_are_matched_one_by_one(
    compare_with_atb: Compare, fault: Fault | None, shared_first: bool, reverse: bool
) -> None:
    like = Atb(each=True, shared_first=shared_first)
    report = compare_with_atb(fault=fault, like=like, reverse=reverse)
    for at in range(len(PROMPTS)):
        plan = report.slices[at].plan
        left = {*plan.unmatched_golden, *plan.unmatched_target}
        assert not any("Mlp/" in name or "SharedExpert/" in name for name in left)
        # All experts run in the first pass, of the others those alone that the token chose.
        assert at or not any("_proj" in name for name in left)
    bad = report.findings.first_bad_node
    if fault is None:
        assert bad is None
        assert report.counts.passed == report.counts.pairs
    else:
        assert bad is not None
        assert "root.model.layers.1.mlp.experts.3.down_proj" in (bad.golden, bad.target)


@pytest.mark.parametrize("shared", ["shared_experts.0", "common_experts.0"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_shared_expert_in_a_list_of_one_is_no_list_of_chosen_ones(
    compare_with_atb: Compare, tmp_path: Path, shared: str, reverse: bool
) -> None:
    runs = [MODEL.run(tokens, torch.float32) for tokens in PROMPTS]
    golden = write_torch(tmp_path / "listed", runs, shared)
    report = compare_with_atb(other_golden=golden, reverse=reverse)
    assert report.findings.first_bad_node is None
    for at in range(len(PROMPTS)):
        plan = report.slices[at].plan
        left = {*plan.unmatched_golden, *plan.unmatched_target}
        assert not any("SharedExpert/" in name or f"{shared}.gate_proj" in name for name in left)
        assert not any("gmm" in name for name in left)


def test_a_prompt_that_is_repeated_has_no_finding(tmp_path: Path) -> None:
    runs = [MODEL.run(2 * PROMPTS[0] + [3, 3, 3, 3], torch.float32)]
    golden, target = write_torch(tmp_path / "golden", runs), write_atb(tmp_path / "atb", runs, Atb())
    report = compare(golden, target)
    assert of_experts(report)
    assert report.counts.passed == report.counts.pairs


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_head_that_gives_one_number_is_compared(tmp_path: Path, factor: float, reverse: bool) -> None:
    golden, target = (Model(head=1).run([4], torch.float32) for _ in range(2))
    target.made["lm_head"] *= factor
    dumps = write_torch(tmp_path / "golden", [golden]), write_atb(tmp_path / "atb", [target], Atb())
    report = compare(*(dumps[::-1] if reverse else dumps))
    heads = {pair.golden_node for pair in report.slices[0].plan.pairs if pair.golden.shape == (1, 1)}
    assert any(name.endswith(("lm_head", "LmHead")) for name in heads)
    # What gives one number beside experts may be what is left of large ones that cancel.
    assert not any("layer" in name for name in heads)
    bad = report.findings.first_bad_node
    assert (bad is None) is (factor == 1.0)
    assert bad is None or {"root.lm_head", bad.golden, bad.target} == {bad.golden, bad.target}


@pytest.mark.parametrize("fault", [None, Fault(1, 3, 4.0)], ids=str)
def test_statistics_of_experts_by_msprobe_are_held_against_the_grouped_products_too(
    tmp_path: Path, fault: Fault | None
) -> None:
    golden = write_msprobe(tmp_path / "golden", MODEL.run(PROMPTS[0], torch.float32))
    target = write_atb(tmp_path / "atb", [MODEL.run(PROMPTS[0], torch.float32, fault)], Atb())
    report = compare(golden, target)
    products = {pair.target_node for pair in of_experts(report) if "Grouped" in pair.target_node}
    assert len(products) == 2 * LAYERS
    bad = report.findings.first_bad_node
    if fault is None:
        assert bad is None
        assert report.counts.passed == report.counts.pairs
    else:
        assert bad is not None
        assert bad.target.startswith("2_Decoder_layer/3_SparseMoe/2_MoeMlp/4_integrated_gmm")
