"""Ranks that share a model are compared with one that has it whole, and the rank that is off is named."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from messages import gaps_of, ids, outline, place

from firstdrift import Report
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options
from firstdrift.matching.plan import MatchingRules
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Layout, Slice, SliceListing
from firstdrift.model.tensor import Role, Sharding, TensorRecord
from firstdrift.parallel.merge_ranks import merge_ranks
from firstdrift.verdict.judgement import Verdict
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape, side_named
from firstdrift.wording.text import text_of

Array = np.ndarray
Tensors = Mapping[str, Array]
Compared = Callable[[str, str], Report]

RANDOM = np.random.default_rng(7)
ROWS, WIDTH = 6, 32


def values(*shape: int) -> Array:
    return RANDOM.standard_normal(shape or (ROWS, WIDTH)).astype(np.float32)


@pytest.fixture
def compare_ranks(tmp_path: Path) -> Callable[..., Report]:
    """Write a golden dump of one rank and a target dump of several as files of arrays, and compare them."""

    def run(golden: Tensors, *ranks: Tensors) -> Report:
        write(tmp_path / "golden", golden)
        for rank, tensors in enumerate(ranks):
            write(tmp_path / "target" / f"rank{rank}", tensors)
        return compare(tmp_path / "golden", tmp_path / "target")

    return run


def write(folder: Path, tensors: Tensors) -> None:
    folder.mkdir(parents=True)
    for name, array in tensors.items():
        np.save(folder / f"{name}.npy", array)


def sharding_of(report: Report) -> dict[str, Sharding | None]:
    (result,) = report.slices
    return {
        pair.target_node: pair.target.shards.sharding if pair.target.shards else None
        for pair in result.plan.pairs
    }


def halves(array: Array, axis: int = -1) -> list[Array]:
    return np.split(array, 2, axis=axis)


def test_shards_are_laid_side_by_side_along_the_dimension_that_gives_the_whole(
    compare_ranks: Callable[..., Report],
) -> None:
    whole = {"column.output.0": values(), "row.output.0": values(), "head.output.0": values(2, 4, 16, 8)}
    parts = [
        halves(whole["column.output.0"]),
        halves(whole["row.output.0"], 0),
        halves(whole["head.output.0"], 1),
    ]
    report = compare_ranks(
        whole, *(dict(zip(whole, shards, strict=True)) for shards in zip(*parts, strict=True))
    )
    assert report.counts.pairs == report.counts.passed == 3
    assert set(sharding_of(report).values()) == {Sharding.CONCATENATED}
    assert [place(result.judgement.coordinates) for result in report.slices] == ["rank 0+1"]


def test_shards_without_batch_dimension_are_the_whole_that_has_one(
    compare_ranks: Callable[..., Report],
) -> None:
    whole = values(1, ROWS, WIDTH)
    first, second = halves(whole[0])
    report = compare_ranks({"a.output.0": whole}, {"a.output.0": first}, {"a.output.0": second})
    assert report.counts.passed == 1


def test_a_sum_over_ranks_is_added_up_and_what_is_the_same_is_not(
    compare_ranks: Callable[..., Report],
) -> None:
    total, same = values(), values()
    part = values()
    golden = {"partial.output.0": total, "same.output.0": same}
    report = compare_ranks(
        golden,
        {"partial.output.0": part, "same.output.0": same},
        {"partial.output.0": total - part, "same.output.0": same},
    )
    assert report.counts.passed == 2
    assert report.findings.first_bad_node is None


def test_queries_keys_and_values_are_sharded_each_by_itself(compare_ranks: Callable[..., Report]) -> None:
    whole = values()  # queries 16, keys 8, values 8
    queries, keys, rest = np.split(whole, [16, 24], axis=1)
    shards = [
        np.concatenate([queries[:, 8 * rank : 8 * rank + 8], keys[:, 4 * rank : 4 * rank + 4],
                        rest[:, 4 * rank : 4 * rank + 4]], axis=1)
        for rank in range(2)
    ]  # fmt: skip
    report = compare_ranks({"qkv.output.0": whole}, *({"qkv.output.0": shard} for shard in shards))
    (measured,) = report.slices[0].measurements
    assert measured.equal
    assert gaps_of(measured.reason, "metrics.by_fused_parts") == {"sizes": (8, 4, 4)}


@pytest.mark.parametrize("culprit", [0, 1])
def test_the_rank_whose_shard_is_off_is_named(compare_ranks: Callable[..., Report], culprit: int) -> None:
    whole, after = values(), values()
    shards = halves(whole)
    shards[culprit] = shards[culprit] * 1.5
    ranks = [{"a.output.0": shard, "b.output.0": after} for shard in shards]
    report = compare_ranks({"a.output.0": whole, "b.output.0": after}, *ranks)
    bad = report.findings.first_bad_node
    assert bad is not None
    assert (bad.target, bad.on_rank) == ("a", culprit)
    assert report.findings.rank_finding == Message.of("rank.began", rank=culprit)


def test_a_rank_that_is_off_in_what_all_should_have_is_named(compare_ranks: Callable[..., Report]) -> None:
    same, after = values(), values()
    ranks = [{"a.output.0": same * scale, "b.output.0": after} for scale in (1, 1, 1.5)]
    report = compare_ranks({"a.output.0": same, "b.output.0": after}, *ranks)
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.on_rank == 2


def test_a_shard_that_does_not_fit_is_said_with_all_shapes(compare_ranks: Callable[..., Report]) -> None:
    report = compare_ranks(
        {"a.output.0": values(6, 32)}, {"a.output.0": values(6, 10)}, {"a.output.0": values(6, 10)}
    )
    ((_, _, said),) = report.incomparable()
    shapes = {"golden": (shape((6, 32)),), "target": (shape((6, 10)),) * 2}
    assert said == Message.of("matching.incomparable.shards_do_not_join", ranks=("0+1",), **shapes)


def test_a_shard_that_is_missing_is_said_with_its_rank(compare_ranks: Callable[..., Report]) -> None:
    first, _ = halves(whole := values())
    report = compare_ranks(
        {"a.output.0": whole, "a.output.1": whole},
        {"a.output.0": first, "a.output.1": whole},
        {"a.output.1": whole},
    )
    ((_, _, said),) = report.incomparable()
    assert said == Message.of("matching.incomparable.lost", missing=(1,), ranks=(0,))


def test_a_shard_that_is_damaged_spoils_its_tensor_alone(
    compare_ranks: Callable[..., Report], tmp_path: Path
) -> None:
    first, second = halves(whole := values())
    compare_ranks(
        {"a.output.0": whole, "b.output.0": whole},
        {"a.output.0": first, "b.output.0": whole},
        {"a.output.0": second, "b.output.0": whole},
    )
    damaged = tmp_path / "target" / "rank1" / "a.output.0.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    report = compare(tmp_path / "golden", tmp_path / "target")
    ((_, pair, said),) = report.incomparable()
    assert pair.target_node == "a"
    assert (said.id, said.arguments["rank"]) == ("matching.incomparable.on_rank", 1)
    assert report.counts.passed == 1


def test_two_ranks_of_an_atb_dump_are_the_run_of_one(compared: Compared) -> None:
    report = compared("msit/atb12_bf16_3tok", "msit/atb12_bf16_tp2")
    assert report.counts.passed == report.counts.pairs > 2000
    assert report.counts.unmatched_golden_nodes == report.counts.unmatched_target_nodes == 0
    assert report.findings.first_bad_node is report.findings.first_bad_token is None
    joined = {pair.transform for result in report.slices for pair in result.plan.pairs}
    assert (Message.of("matching.transform.ranks_joined", ranks="0+1", axis=1),) in joined


def test_two_ranks_of_an_atb_dump_are_the_torch_model_that_they_run(compared: Compared) -> None:
    report = compared("msit/llama12_golden_fp32", "msit/atb12_bf16_tp2")
    assert report.counts.passed == report.counts.pairs > 1000
    assert report.findings.first_bad_node is report.findings.first_bad_token is None


def test_the_rank_of_an_atb_dump_with_a_wrong_shard_is_named(
    unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(unpacked("msit/atb12_bf16_tp2"), target)
    (run,) = target.glob("**/1_4243/2")
    tensor = "2_MlpGateUpWeightPack/3_ElewiseOperation/after/outtensor0.bin"
    shutil.copyfile(run / "20_Decoder_layer" / tensor, run / "23_Decoder_layer" / tensor)
    findings = compare(unpacked("msit/atb12_bf16_3tok"), target).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "23_Decoder_layer/2_MlpGateUpWeightPack/3_ElewiseOperation"
    assert findings.first_bad_node.coordinates.token == 2
    assert findings.rank_finding == Message.of("rank.began", rank=1)


def test_two_ranks_of_statistics_are_the_run_of_one_up_to_the_fault_of_rank_1(compared: Compared) -> None:
    report = compared("msprobe/tp2_vs_tp1/golden", "msprobe/tp2_vs_tp1/target")
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.module == "0.module.module.decoder.layers.1.mlp.linear_fc2"
    assert bad.node_class == "weights differ"
    assert report.findings.rank_finding == Message.of("rank.began", rank=1)
    assert report.counts.incomparable == 0


def test_the_sum_of_ranks_is_taken_from_the_all_reduce_that_made_it(compared: Compared) -> None:
    report = compared("msprobe/tp2_vs_tp1/golden", "msprobe/tp2_vs_tp1/target")
    (result,) = report.slices
    summed = [
        (judged.verdict, measured.kind)
        for pair, judged, measured in zip(
            result.plan.pairs, result.judgement.pairs, result.measurements, strict=True
        )
        if ids(pair.transform) == ["transform.all_reduced"]
    ]
    assert len(summed) > 3
    assert set(summed[:3]) == {(Verdict.PASS, MeasurementKind.STATISTICS)}


def test_one_rank_alone_can_be_chosen(unpacked: Callable[[str], Path]) -> None:
    dumps = unpacked("msprobe/tp2_vs_tp1")
    report = compare(dumps / "golden", dumps / "target", Options(matching=MatchingRules(rank=0)))
    assert [result.judgement.coordinates.rank for result in report.slices] == [0]


SPREAD = ["tensor", "stages", "chunks"]


@pytest.mark.parametrize("target", SPREAD)
def test_a_healthy_model_is_the_same_however_it_is_spread(compared: Compared, target: str) -> None:
    report = compared("msprobe/ranks/whole", f"msprobe/ranks/{target}")
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 500
    assert report.counts.unmatched_golden_nodes == report.counts.unmatched_golden_tensors == 0
    only_spread = (
        "Distributed.",
        "Tensor.view_as.",
    )  # what ranks tell each other, and what autograd adds to it
    assert all(name.startswith(only_spread) for name in report.slices[0].plan.unmatched_target)


def test_stages_are_one_tree_of_all_layers_and_micro_steps(compared: Compared) -> None:
    for target in ("stages", "chunks"):
        (result,) = compared("msprobe/ranks/whole", f"msprobe/ranks/{target}").slices
        layers = [
            (row.path, row.golden[0].rpartition(".")[2], row.target != ())
            for row in result.rows
            if row.type_name == "Layer" and row.direction == "forward"
        ]
        assert sorted(layers) == [
            (f"{'0.' if target == 'chunks' else ''}model.layers.{layer}", str(step), True)
            for layer in range(4)
            for step in range(2)
        ]


@pytest.mark.parametrize(
    ("target", "module", "rank"),
    [("fault_in_shard", "model.layers.2.mlp.up", 1), ("fault_in_stage", "model.layers.3.mlp.down", 1)],
)
def test_a_wrong_weight_is_found_and_its_rank_named(
    compared: Compared, target: str, module: str, rank: int
) -> None:
    findings = compared("msprobe/ranks/whole", f"msprobe/ranks/{target}").findings
    assert findings.first_bad_node is not None
    assert (findings.first_bad_node.module, findings.first_bad_node.on_rank) == (module, rank)
    assert findings.rank_finding == Message.of("rank.began", rank=rank)


def test_shards_with_values_are_joined_and_added_up(compared: Compared) -> None:
    report = compared("msprobe/ranks/whole_data", "msprobe/ranks/tensor_data")
    assert report.counts.passed == report.counts.pairs > 200
    kinds = {measured.kind for measured in report.slices[0].measurements}
    assert kinds == {MeasurementKind.DATA, MeasurementKind.SCALAR}


def test_the_wrong_shard_is_named_by_its_values(compared: Compared) -> None:
    findings = compared("msprobe/ranks/whole_data", "msprobe/ranks/fault_in_shard_data").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.1.mlp.up"
    assert findings.rank_finding == Message.of("rank.began", rank=0)


def test_as_many_ranks_that_share_a_model_otherwise_are_merged_where_that_is_said(
    unpacked: Callable[[str], Path],
) -> None:
    dumps = unpacked("msprobe/ranks")
    rules = MatchingRules(golden_layout=Layout(pipeline=2), target_layout=Layout(pipeline=2, virtual=2))
    report = compare(dumps / "stages", dumps / "chunks", Options(matching=rules))
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 500


def test_ranks_that_share_stages_are_merged_within_them(
    unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    dumps = unpacked("msprobe/ranks")
    for rank in range(4):
        shutil.copytree(dumps / "stages" / "step0" / f"rank{rank // 2}", tmp_path / "step0" / f"rank{rank}")
    layouts = {"golden_layout": Layout(), "target_layout": Layout(tensor=2, pipeline=2)}
    report = compare(dumps / "whole", tmp_path, Options(matching=MatchingRules(**layouts)))
    assert [place(result.judgement.coordinates) for result in report.slices] == ["step 0, rank 0+1+2+3"]
    assert report.counts.passed == report.counts.pairs > 500
    assert report.counts.unmatched_golden_nodes == 0


def test_one_wrong_rank_of_two_is_named_rank_against_rank(compared: Compared) -> None:
    findings = compared("msprobe/ranks/tensor", "msprobe/ranks/fault_in_shard").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.2.mlp.up"
    assert findings.rank_finding == Message.of("rank.began", rank=1)


SUM_UNKNOWN = text_of(Message.of("matching.incomparable.addends_without_values", ranks="0+1"))


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("ranks/whole", "ranks/tensor"),
        ("ranks/whole", "ranks/stages"),
        ("ranks/whole_data", "ranks_sequence/sequence_data"),
        ("ranks_llama/one", "ranks_llama/both"),
        ("tp2_vs_tp1/golden", "tp2_vs_tp1/target"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_node_that_only_a_spread_run_has_says_why(
    compared: Compared, golden: str, target: str, reverse: bool
) -> None:
    sides = [f"msprobe/{golden}", f"msprobe/{target}"]
    report = compared(*(sides[::-1] if reverse else sides))
    names = ("golden", "target") if reverse else ("target", "golden")
    for result in report.slices:
        for row, judged in zip(result.rows, result.judgement.rows, strict=True):
            if row.match is not None:
                continue
            if row.type_name.startswith("Distributed."):
                assert ids(judged.reasons) == ["communication"]
            else:
                calls_none, spread = map(outline, judged.reasons)
                assert {"not_called", row.type_name, names[1]} <= set(calls_none.split())
                assert spread == f"only_side_with_ranks {names[0]}"
    assert report.counts.unmatched_golden_nodes + report.counts.unmatched_target_nodes > 0


def test_a_model_whose_sequence_is_spread_too_is_the_one_of_one_rank(compared: Compared) -> None:
    report = compared("msprobe/ranks/whole_data", "msprobe/ranks_sequence/sequence_data")
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 250
    assert report.counts.unmatched_golden_nodes == report.counts.unmatched_golden_tensors == 0
    (result,) = report.slices
    norms = [pair for pair in result.plan.pairs if pair.target_node.endswith("norm.LayerNorm.forward.0")]
    rows = {(pair.target.role, pair.transform) for pair in norms if pair.target.role is not Role.PARAMETER}
    joined = Message.of("matching.transform.ranks_joined", ranks="0+1", axis=0)
    assert rows == {(role, (joined,)) for role in (Role.INPUT, Role.OUTPUT)}
    gradients = [
        pair.transform for pair in result.plan.pairs if "norm.LayerNorm.parameters" in pair.target_node
    ]
    assert set(gradients) == {(Message.of("matching.transform.ranks_summed", ranks="0+1"),)}


def test_of_statistics_of_a_spread_sequence_only_sums_that_nothing_recorded_are_left(
    compared: Compared,
) -> None:
    report = compared("msprobe/ranks/whole", "msprobe/ranks_sequence/sequence")
    assert report.findings.first_bad_node is None
    assert report.counts.passed + report.counts.incomparable == report.counts.pairs > 500
    assert {text_of(reason) for _, _, reason in report.incomparable()} == {
        f"{text_of(side_named('target'))}: {SUM_UNKNOWN}"
    }
    # What a norm's weights are due is added up after the pass.
    assert all("norm" in pair.target_node.lower() for _, pair, _ in report.incomparable())
    scattered = Message.of("matching.transform.reduce_scattered", ranks="0+1")
    assert any(pair.transform == (scattered,) for pair in report.slices[0].plan.pairs)


def test_a_spread_sequence_is_held_against_shards_alone_where_that_is_said(
    unpacked: Callable[[str], Path],
) -> None:
    dumps = unpacked("msprobe/ranks") / "tensor", unpacked("msprobe/ranks_sequence") / "sequence"
    rules = MatchingRules(golden_layout=Layout(tensor=2), target_layout=Layout(tensor=2))
    report = compare(*dumps, Options(matching=rules))
    assert report.findings.first_bad_node is None
    assert report.counts.passed + report.counts.incomparable == report.counts.pairs > 500


def test_a_wrong_weight_of_a_spread_sequence_is_found_and_its_rank_named(compared: Compared) -> None:
    findings = compared("msprobe/ranks/whole", "msprobe/ranks_sequence/fault_in_sequence").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.2.mlp.up"
    assert findings.rank_finding == Message.of("rank.began", rank=1)


@pytest.mark.parametrize("said", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "one"])
def test_a_peer_that_is_no_rank_links_no_stages(said: str) -> None:
    peer = TensorRecord(Role.INPUT, "dst", "int", (), scalar=said)
    parts = []
    for rank in (0, 1):
        send = Node(
            *("Distributed.send.0.forward", "Distributed.send", NodeKind.API, "Distributed.send"),
            *(Direction.FORWARD, 0, 0, None, (peer,)),
        )
        parts.append(Slice(SliceListing(Coordinates(rank=rank), Path()), (send,)))
    merged = merge_ranks(SliceListing(Coordinates(merged=(0, 1)), Path()), parts)
    assert [node.tensors[0].scalar for node in merged.nodes] == [said]


# --- tensor and pipeline parallel at once, and experts of which each rank has some -------------------------


def test_a_llama_on_two_stages_of_two_shards_is_the_same(compared: Compared) -> None:
    report = compared("msprobe/ranks_llama/one", "msprobe/ranks_llama/both")
    assert report.findings.first_bad_node is None
    assert (report.counts.error, report.counts.unmatched_golden_nodes) == (0, 0)
    assert report.counts.passed > 580
    note = Message.of("matching.note.communication", nodes=20, side=side_named("target"))
    assert note in report.notes()
    (result,) = report.slices
    talking = {
        row.target[0]: tuple(ids(judged.reasons))
        for row, judged in zip(result.rows, result.judgement.rows, strict=True)
        if row.match is None and row.type_name.startswith("Distributed.")
    }
    assert set(talking.values()) == {("communication",)}
    assert len(talking) == 20


@pytest.mark.parametrize("reverse", [False, True])
def test_the_shard_and_the_layer_of_a_later_stage_that_are_off_are_named(
    compared: Compared, reverse: bool
) -> None:
    dumps = ["msprobe/ranks_llama/one", "msprobe/ranks_llama/fault"]
    findings = compared(*(dumps[::-1] if reverse else dumps)).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.3.mlp.gate"
    assert findings.rank_finding == (
        Message.of("rank.of_golden", rank=3) if reverse else Message.of("rank.began", rank=3)
    )
    assert findings.first_bad_node.on_rank == 3
    assert findings.first_bad_node.golden_ranks == ((0, 1, 2, 3) if reverse else None)


@pytest.mark.parametrize("spread", ["spread", "numbered"])
@pytest.mark.parametrize("reverse", [False, True])
def test_experts_of_which_each_rank_has_half_are_those_of_the_model(
    compared: Compared, spread: str, reverse: bool
) -> None:
    dumps = ["msprobe/ranks_experts/one", f"msprobe/ranks_experts/{spread}"]
    report = compared(*(dumps[::-1] if reverse else dumps))
    assert report.findings.first_bad_node is None
    counts = report.counts
    assert (counts.error, counts.warning) == (0, 0)
    assert (counts.unmatched_target_nodes if reverse else counts.unmatched_golden_nodes) == 0
    (result,) = report.slices
    sides = ("target_node", "golden_node") if reverse else ("golden_node", "target_node")
    experts = {
        tuple(getattr(pair, side) for side in sides)
        for pair, judged in zip(result.plan.pairs, result.judgement.pairs, strict=True)
        if ".layers.0.mlp.experts." in pair.golden_node and judged.verdict is Verdict.PASS
    }
    last = "3.Expert.forward.0" if spread == "numbered" else "1.Expert.forward.0 (rank 1)"
    assert (
        "Module.model.layers.0.mlp.experts.3.Expert.forward.0",
        f"Module.model.layers.0.mlp.experts.{last}",
    ) in experts
    reasons = {pair.incomparable for pair in result.plan.pairs if pair.incomparable}
    side = "golden" if reverse else "target"
    assert reasons == {Message.of("matching.incomparable.own_experts", side=side_named(side))}


def test_the_expert_that_is_off_on_its_rank_is_named(compared: Compared) -> None:
    findings = compared("msprobe/ranks_experts/one", "msprobe/ranks_experts/fault").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.2.mlp.experts.3.down"
    assert findings.rank_finding == Message.of("rank.began", rank=1)
