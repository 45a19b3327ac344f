"""One rank of a model that is spread over several is compared with its part of the whole model."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from messages import ids, outline, says

from firstdrift import Report
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options
from firstdrift.errors import SettingsError
from firstdrift.matching.plan import MatchingRules
from firstdrift.model.slice import Layout
from firstdrift.verdict.judgement import NodeClass
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape, side_named
from firstdrift.wording.text import text_of

Array = np.ndarray
Tensors = Mapping[str, Array]
Unpacked = Callable[[str], Path]

RANDOM = np.random.default_rng(11)
NO_VALUES = text_of(Message.of("matching.incomparable.part_without_values", rank=1))
ADDEND = text_of(Message.of("metrics.addend", rank=1, ranks="0+1"))


def values(*shape: int) -> Array:
    return RANDOM.standard_normal(shape or (6, 32)).astype(np.float32)


def of_rank(golden: Path, target: Path, rank: int = 1, **rules: Layout) -> Report:
    return compare(golden, target, Options(matching=MatchingRules(rank=rank, **rules)))


def write(folder: Path, whole: Tensors, *ranks: Tensors) -> tuple[Path, Path]:
    """Write a golden dump of one rank and a target dump of several."""
    parts = {"golden": whole} | {f"target/rank{rank}": tensors for rank, tensors in enumerate(ranks)}
    for name, tensors in parts.items():
        (folder / name).mkdir(parents=True)
        for tensor, array in tensors.items():
            np.save(folder / name / f"{tensor}.npy", array)
    return folder / "golden", folder / "target"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_holds_chunks_of_layers_is_its_part_of_the_model(unpacked: Unpacked, rank: int) -> None:
    dumps = unpacked("msprobe/ranks")
    report = of_rank(dumps / "whole", dumps / "chunks", rank)
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 100
    (result,) = report.slices
    assert all(name.startswith("Distributed.") for name in result.plan.unmatched_target)


def reasons(report: Report) -> list[str]:
    return [text_of(reason) for _, _, reason in report.incomparable()]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_an_atb_dump_is_its_part_of_the_torch_model(unpacked: Unpacked, rank: int) -> None:
    dumps = unpacked("msit/llama12_golden_fp32"), unpacked("msit/atb12_bf16_tp2")
    report = of_rank(*dumps, rank)
    assert report.findings.first_bad_node is report.findings.first_bad_token is None
    assert report.counts.passed == report.counts.pairs > 1000
    assert {result.judgement.coordinates.rank for result in report.slices} == {rank}


def test_a_rank_of_the_golden_dump_is_its_part_of_the_target(unpacked: Unpacked) -> None:
    report = of_rank(unpacked("msit/atb12_bf16_tp2"), unpacked("msit/atb12_bf16_3tok"))
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 2000


@pytest.mark.parametrize(
    "node",
    [
        "2_MlpGateUpWeightPack/3_ElewiseOperation",
        "2_MlpGateUpWeightPack/0_NormLinear/0_RmsNormOperation",
    ],
    ids=["part", "copy"],
)
def test_a_fault_of_the_chosen_rank_is_named_and_the_other_rank_is_clean(
    unpacked: Unpacked, tmp_path: Path, node: str
) -> None:
    target = tmp_path / "target"
    shutil.copytree(unpacked("msit/atb12_bf16_tp2"), target)
    (run,) = target.glob("**/1_4243/2")
    tensor = f"{node}/after/outtensor0.bin"
    shutil.copyfile(run / "20_Decoder_layer" / tensor, run / "23_Decoder_layer" / tensor)
    golden = unpacked("msit/llama12_golden_fp32")
    bad = of_rank(golden, target).findings.first_bad_node
    assert bad is not None
    assert (bad.target, bad.coordinates.rank, bad.coordinates.token) == (f"23_Decoder_layer/{node}", 1, 2)
    assert of_rank(golden, target, rank=0).findings.first_bad_node is None


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("whole", "spread"),
    [
        ("ranks/whole", "ranks/tensor"),
        ("ranks/whole_data", "ranks/tensor_data"),
        ("ranks/whole", "ranks/stages"),
        ("ranks/whole_data", "ranks_sequence/sequence_data"),
        ("ranks_llama/one", "ranks_llama/both"),
        ("ranks_experts/one", "ranks_experts/spread"),
    ],
)
def test_a_rank_of_a_healthy_torch_model_has_no_finding(
    unpacked: Unpacked, whole: str, spread: str, rank: int
) -> None:
    golden, target = (
        unpacked(f"msprobe/{name.partition('/')[0]}") / name.partition("/")[2] for name in (whole, spread)
    )
    for dumps in ((golden, target), (target, golden)):
        report = of_rank(*dumps, rank)
        assert report.findings.first_bad_node is None
        assert report.counts.error == report.counts.warning == 0
        assert report.counts.passed > 100


def test_the_layers_of_a_later_stage_are_those_that_it_has_in_the_model(unpacked: Unpacked) -> None:
    dumps = unpacked("msprobe/ranks")
    (result,) = of_rank(dumps / "whole", dumps / "stages").slices
    layers = {row.path for row in result.rows if row.type_name == "Layer" and row.target and row.golden}
    assert layers == {"model.layers.2", "model.layers.3"}


def test_the_wrong_weight_of_a_rank_is_found_on_that_rank(unpacked: Unpacked) -> None:
    dumps = unpacked("msprobe/ranks")
    bad = of_rank(dumps / "whole_data", dumps / "fault_in_shard_data", rank=0).findings.first_bad_node
    assert bad is not None
    assert bad.module == "model.layers.1.mlp.up"


def test_what_one_rank_adds_to_a_sum_is_said_and_no_error(tmp_path: Path) -> None:
    total, part, same = values(), values(), values()
    whole = {"partial.output.0": total, "same.output.0": same}
    ranks = [{**whole, "partial.output.0": part}, {**whole, "partial.output.0": total - part}]
    report = of_rank(*write(tmp_path, whole, *ranks))
    assert reasons(report) == [ADDEND]
    assert report.counts.passed == 1


def test_a_part_is_compared_with_its_part_however_the_whole_was_fused(tmp_path: Path) -> None:
    whole = values()  # queries 16, keys 8, values 8
    queries, keys, rest = np.split(whole, [16, 24], axis=1)
    shards = [
        np.concatenate([queries[:, 8 * rank : 8 * rank + 8], keys[:, 4 * rank : 4 * rank + 4],
                        rest[:, 4 * rank : 4 * rank + 4]], axis=1)
        for rank in range(2)
    ]  # fmt: skip
    shards[0] = shards[0] * 2  # the other rank's fault is not this one's
    report = of_rank(*write(tmp_path, {"qkv.output.0": whole}, *({"qkv.output.0": one} for one in shards)))
    (pair,) = report.slices[0].plan.pairs
    assert report.slices[0].measurements[0].equal
    assert (pair.golden.shape, pair.target.shape) == ((6, 32), (6, 16))
    assert pair.transform == (Message.of("matching.transform.part_of_rank", rank=1, ranks="0+1", axis=1),)


def test_a_part_that_is_off_is_an_error_by_the_size_of_that_part(tmp_path: Path) -> None:
    whole = values()
    first, second = np.split(whole, 2, axis=1)
    ranks = {"a.output.0": first}, {"a.output.0": second * 1.5}
    report = of_rank(*write(tmp_path, {"a.output.0": whole}, *ranks))
    errors = report.slices[0].measurements[0].errors
    assert report.findings.first_bad_node is not None
    assert errors is not None
    assert errors.relative_l2 == pytest.approx(0.5)


def test_values_of_other_ranks_that_cannot_be_read_leave_open_what_a_rank_holds(tmp_path: Path) -> None:
    total, part = values(), values()
    ranks = {"a.output.0": part}, {"a.output.0": total - part}
    golden, target = write(tmp_path, {"a.output.0": total}, *ranks)
    damaged = target / "rank0" / "a.output.0.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    report = of_rank(golden, target)
    (reason,) = reasons(report)
    assert says(reason, "metrics.ranks_unreadable", "metrics.of_rank")
    assert report.findings.first_bad_node is None


def test_statistics_of_a_part_are_said_not_to_follow_from_those_of_the_whole(unpacked: Unpacked) -> None:
    dumps = unpacked("msprobe/ranks")
    said = set(reasons(of_rank(dumps / "whole", dumps / "tensor")))
    assert said == {ADDEND, NO_VALUES}


@pytest.mark.parametrize("rank", [0, 1])
def test_what_one_rank_alone_cannot_tell_is_said_and_blames_nobody(unpacked: Unpacked, rank: int) -> None:
    dumps = unpacked("msprobe/tp2_vs_tp1")
    report = of_rank(dumps / "golden", dumps / "target", rank)
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.module == "0.module.module.decoder.layers.1.mlp.linear_fc2"
    assert report.findings.suspects == ()
    first, missing, why = bad.reasons
    assert outline(first).startswith("first_to_differ at_least 1.5")
    assert outline(missing) == "not_compared_inside_more tensor_of output.0 Tensor.t.7.forward 1"
    assert text_of(why) == NO_VALUES.replace("1", str(rank))
    classes = {row.node_class for result in report.slices for row in result.judgement.rows}
    assert NodeClass.STRUCTURE_DIFFERS not in classes
    assert Message.of("matching.note.parts_of_one_rank", parts=240, pairs=647) in report.notes()
    merged = compare(dumps / "golden", dumps / "target")
    assert "note.parts_of_one_rank" not in ids(merged.notes())


def test_a_rank_is_chosen_of_the_dump_that_has_more(unpacked: Unpacked) -> None:
    dumps = unpacked("msprobe/ranks")
    with pytest.raises(SettingsError) as refused:
        of_rank(dumps / "whole", dumps / "tensor", rank=2)
    assert refused.value.message.id == "matching.choice.not_in_target"
    assert of_rank(dumps / "whole", dumps / "tensor").slices


def alone(dump: Path, rank: int, folder: Path) -> Path:
    """Copy a dump of msprobe without the other ranks."""
    shutil.copytree(dump, folder)
    for other in folder.glob("step*/rank*"):
        if other.name != f"rank{rank}":
            shutil.rmtree(other)
    return folder


@pytest.mark.parametrize("process", ["0_4242", "1_4243"])
def test_the_folder_of_one_atb_rank_alone_is_no_finding(unpacked: Unpacked, process: str) -> None:
    (folder,) = unpacked("msit/atb12_bf16_tp2").glob(f"*/tensors/{process}")
    whole = unpacked("msit/llama12_golden_fp32")
    for dumps, side in (((whole, folder), "target"), ((folder, whole), "golden")):
        report = compare(*dumps)
        assert report.findings.first_bad_node is report.findings.first_bad_token is None
        assert report.counts.error == report.counts.warning == report.unreadable == 0
        assert report.counts.pairs > 1000
        assert report.counts.passed > 300
        for result in report.slices:
            note = result.plan.notes[0]
            assert (note.id, note.arguments["side"]) == ("matching.note.one_rank_alone", side_named(side))


def test_the_steps_of_one_atb_rank_alone_correspond_to_those_of_the_whole(unpacked: Unpacked) -> None:
    (folder,) = unpacked("msit/atb12_bf16_tp2").glob("*/tensors/1_4243")
    plan = compare(unpacked("msit/llama12_golden_fp32"), folder).slices[0].plan
    layer, golden = "2_Prefill_layer", "root.model.layers.0"
    matches = {match.target: match.golden for match in plan.matches if match.golden}
    assert matches[f"{layer}/0_Attention/4_LinearNoQuant",] == (f"{golden}.self_attn.o_proj",)
    fused = f"{layer}/0_Attention/0_QKVLinearSplitPack/0_NormLinear/1_LinearNoQuant"
    assert matches[fused,] == tuple(f"{golden}.self_attn.{name}_proj" for name in "qkv")
    of_fused = next(pair for pair in plan.pairs if pair.target_node == fused)
    shapes = {"golden": shape((1, 6, 64)), "target": shape((6, 32))}
    assert of_fused.incomparable == Message.of(
        "matching.incomparable.one_of_parts", side=side_named("target"), parts=2, **shapes
    )


def test_a_fault_of_a_rank_alone_is_named_where_it_has_what_all_have(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(unpacked("msit/atb12_bf16_tp2"), target)
    (run,) = target.glob("**/1_4243/2")
    norm = "2_MlpGateUpWeightPack/0_NormLinear/0_RmsNormOperation"
    tensor = f"{norm}/after/outtensor0.bin"
    shutil.copyfile(run / "20_Decoder_layer" / tensor, run / "23_Decoder_layer" / tensor)
    golden = unpacked("msit/llama12_golden_fp32")
    bad = compare(golden, run.parent).findings.first_bad_node
    assert bad is not None
    assert (bad.target, bad.coordinates.token) == (f"23_Decoder_layer/{norm}", 2)
    findings = compare(golden, target).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == f"23_Decoder_layer/{norm}"
    assert findings.rank_finding == Message.of("rank.began", rank=1)


def test_numbers_of_heads_that_are_dealt_out_are_no_warning(unpacked: Unpacked) -> None:
    (folder,) = unpacked("msit/atb12_bf16_tp2").glob("*/tensors/0_4242")
    report = compare(unpacked("msit/atb12_bf16_3tok"), folder)
    assert report.counts.error == report.counts.warning == 0
    assert report.counts.passed > 1500


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("whole", "spread"),
    [
        ("ranks/whole", "ranks/tensor"),
        ("ranks/whole_data", "ranks/tensor_data"),
        ("ranks/whole", "ranks_sequence/sequence"),
        ("ranks/whole_data", "ranks_sequence/sequence_data"),
        ("ranks_llama/one", "ranks_llama/both"),
    ],
)
def test_one_torch_rank_alone_is_no_finding(
    unpacked: Unpacked, tmp_path: Path, whole: str, spread: str, rank: int
) -> None:
    golden, target = (
        unpacked(f"msprobe/{name.partition('/')[0]}") / name.partition("/")[2] for name in (whole, spread)
    )
    lone = alone(target, rank, tmp_path / "lone")
    for dumps in ((golden, lone), (lone, golden)):
        report = compare(*dumps)
        assert report.findings.first_bad_node is None
        assert report.counts.error == report.counts.warning == report.unreadable == 0
        assert report.counts.passed > 50


def test_the_wrong_weight_of_a_rank_alone_is_found_where_its_sum_goes(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    dumps = unpacked("msprobe/ranks")
    lone = alone(dumps / "fault_in_shard", 1, tmp_path / "lone")
    bad = compare(dumps / "whole", lone).findings.first_bad_node
    assert bad is not None
    assert bad.module == "model.layers.2.mlp"


def test_another_model_is_not_held_to_be_one_rank(unpacked: Unpacked) -> None:
    report = compare(unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama4_golden_fp32"))
    assert "note.one_rank_alone" not in ids(report.notes())
    assert report.findings.summary.id == "summary.other_model"
