"""A dump of some ranks of a model is compared with those ranks of a dump of all of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firstdrift import Report
from firstdrift.comparison import in_memory
from firstdrift.comparison.compare import compare
from firstdrift.model.slice import Dump, Slice, SliceListing
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]


def only_rank(dump: Path, rank: int, folder: Path) -> Path:
    """Copy what one rank wrote of a dump of msprobe."""
    shutil.copytree(dump / "step0" / f"rank{rank}", folder / "step0" / f"rank{rank}")
    return folder


def assert_healthy(report: Report) -> None:
    assert report.findings.first_bad_node is None
    assert report.findings.input_differs == ()
    assert report.counts.passed == report.counts.pairs > 200
    assert report.counts.unmatched_golden_nodes == report.counts.unmatched_target_nodes == 0


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("spread", ["tensor", "tensor_data", "stages", "chunks"])
def test_the_rank_that_was_kept_is_compared_with_itself(
    unpacked: Unpacked, tmp_path: Path, spread: str, rank: int
) -> None:
    whole = unpacked("msprobe/ranks") / spread
    kept = only_rank(whole, rank, tmp_path / "kept")
    for report, left in (
        (compare(whole, kept), "unmatched_golden"),
        (compare(kept, whole), "unmatched_target"),
    ):
        assert_healthy(report)
        assert [at.rank for at in getattr(report.pairing, left)] == [1 - rank]
        (note,) = report.pairing.notes[:1]
        assert (note.id, note.arguments["held"]) == ("matching.note.missing_ranks", str(rank))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_of_many_that_says_no_rank_is_known_by_its_values(
    unpacked: Unpacked, tmp_path: Path, rank: int
) -> None:
    whole = unpacked("msit/atb12_bf16_tp2")
    kept = tmp_path / "kept"
    shutil.copytree(whole, kept)
    for folder in [*kept.glob(f"*/*/{1 - rank}_*"), *kept.glob(f"*/*/{4243 - rank}")]:
        shutil.rmtree(folder)
    report = compare(whole, kept)
    assert_healthy(report)
    assert {result.judgement.coordinates.rank for result in report.slices} == {None}
    assert {result.plan.golden.coordinates.rank for result in report.slices} == {rank}
    assert {at.rank for at in report.pairing.unmatched_golden} == {1 - rank}


def test_a_fault_of_the_rank_that_is_lacking_comes_with_what_the_ranks_tell_each_other(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    dumps = unpacked("msprobe/ranks")
    findings = compare(only_rank(dumps / "tensor", 0, tmp_path), dumps / "fault_in_shard").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "Distributed.all_reduce.2.forward"


def test_a_fault_of_the_rank_that_was_kept_is_named(unpacked: Unpacked, tmp_path: Path) -> None:
    dumps = unpacked("msprobe/ranks")
    findings = compare(only_rank(dumps / "tensor", 1, tmp_path), dumps / "fault_in_shard").findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.2.mlp.up"


@pytest.mark.parametrize("kept", [None, 0])
def test_a_whole_model_is_compared_with_all_ranks_though_each_has_tensors_as_large(
    tmp_path: Path, kept: int | None
) -> None:
    values = np.random.default_rng(3).standard_normal((3, 6, 32)).astype(np.float32)
    copy, addends = values[0], values[1:]
    off = copy * np.float32(1.5)
    whole = {"norm.output.0": copy, "proj.output.0": addends.sum(0)}
    own = tmp_path / "golden" / ("" if kept is None else f"rank{kept}")
    dumps = {own: whole} | {
        tmp_path / "target" / f"rank{rank}": {"norm.output.0": norm, "proj.output.0": addends[rank]}
        for rank, norm in enumerate((copy, off))
    }
    for folder, tensors in dumps.items():
        folder.mkdir(parents=True)
        for name, array in tensors.items():
            np.save(folder / f"{name}.npy", array)
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert (report.counts.passed, report.counts.error) == (1, 1)
    assert report.findings.rank_finding == Message.of("rank.began", rank=1)


@pytest.mark.parametrize(
    ("golden", "target"),
    [("tensor", "stages"), ("stages", "tensor"), ("tensor", "chunks"), ("stages", "chunks")],
)
def test_as_many_ranks_over_which_a_model_is_spread_otherwise_are_merged(
    unpacked: Unpacked, golden: str, target: str
) -> None:
    dumps = unpacked("msprobe/ranks")
    report = compare(dumps / golden, dumps / target)
    assert report.findings.first_bad_node is None
    assert report.findings.input_differs == ()
    assert report.counts.passed == report.counts.pairs > 500


def test_as_many_ranks_that_hold_the_same_are_not_merged_whatever_the_size_of_the_batch(
    tmp_path: Path,
) -> None:
    values = np.random.default_rng(5).standard_normal((2, 4, 8)).astype(np.float32)
    for side, rows in (("golden", 4), ("target", 2)):
        for rank in range(2):
            folder = tmp_path / side / f"rank{rank}"
            folder.mkdir(parents=True)
            np.save(folder / "fc.parameter.weight.npy", values[rank])
            np.save(folder / "fc.output.0.npy", values[rank][:rows])
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert len(report.slices) == 2
    assert (report.counts.passed, report.counts.incomparable) == (2, 2)


def write_layers(dump: Path, shards: list[tuple[int, int]], copies: list[int]) -> None:
    """Write a run of three layers: each rank has one of so many shards, and a batch."""
    values = np.random.default_rng(7)
    weights = values.standard_normal((3, 16, 8)).astype(np.float32)
    batches = values.standard_normal((2, 4, 8)).astype(np.float32)
    for rank, ((number, shard), copy) in enumerate(zip(shards, copies, strict=True)):
        folder = dump / f"rank{rank}"
        folder.mkdir(parents=True)
        hidden = batches[copy]
        for layer, weight in enumerate(weights):
            held = np.split(weight, number)[shard]
            np.save(folder / f"layers.{layer}.up.parameter.weight.npy", held)
            np.save(folder / f"layers.{layer}.up.output.0.npy", hidden @ held.T)
            hidden = hidden + np.tanh(hidden @ weight.T) @ weight / 16
            np.save(folder / f"layers.{layer}.output.0.npy", hidden)


def test_shards_against_copies_of_a_model_of_more_shards_are_not_taken_for_one_model(tmp_path: Path) -> None:
    write_layers(tmp_path / "golden", [(2, 0), (2, 1), (2, 0), (2, 1)], [0, 0, 1, 1])
    write_layers(tmp_path / "target", [(4, rank) for rank in range(4)], [0, 0, 1, 1])
    for golden, target in (("golden", "target"), ("target", "golden")):
        report = compare(tmp_path / golden, tmp_path / target)
        assert report.findings.first_bad_node is None
        assert len(report.slices) == 4
        assert report.counts.error == 0
        assert report.counts.passed > 8


def test_layers_that_are_numbered_first_are_no_chunks(tmp_path: Path) -> None:
    values = np.random.default_rng(8).standard_normal((2, 3, 4)).astype(np.float32)
    for side, wrapper in (("golden", ""), ("target", "module.")):
        for rank in range(2):
            folder = tmp_path / side / f"rank{rank}"
            folder.mkdir(parents=True)
            for layer in range(2):
                np.save(folder / f"{wrapper}{layer}.0.output.0.npy", values[rank] + layer)
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert len(report.slices) == 2
    assert report.counts.passed == report.counts.pairs == 4


def test_a_rank_that_is_off_from_its_beginning_is_known_by_its_parameters(tmp_path: Path) -> None:
    write_layers(tmp_path / "golden", [(2, 0), (2, 1)], [0, 0])
    write_layers(tmp_path / "target", [(2, 0)], [0])
    for file in (tmp_path / "target" / "rank0").glob("*.output.0.npy"):
        np.save(file, np.load(file) * np.float32(-3))
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert [at.rank for at in report.pairing.unmatched_golden] == [1]


@pytest.mark.parametrize(("target", "reads"), [("tensor", 4), ("stages", 4), ("kept", 3)])
def test_what_was_read_to_find_out_which_ranks_are_compared_is_not_read_again(
    unpacked: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, reads: int
) -> None:
    dumps = unpacked("msprobe/ranks")
    other = only_rank(dumps / "tensor", 1, tmp_path) if target == "kept" else dumps / target
    read: list[SliceListing] = []

    def counted(dump: Dump, listing: SliceListing) -> Slice:
        read.append(listing)
        return read_slice(dump, listing)

    monkeypatch.setattr(in_memory, "read_slice", counted)
    assert compare(dumps / "tensor", other).findings.first_bad_node is None
    assert len(read) == reads


@pytest.mark.parametrize(("whole", "kept"), [("golden", "target"), ("target", "golden")])
def test_a_copy_of_a_model_with_a_fault_of_its_first_layer_is_known_by_what_ran_before(
    unpacked: Unpacked, tmp_path: Path, whole: str, kept: str
) -> None:
    dumps = unpacked("msprobe/dp2_stat_mix")
    findings = compare(dumps / whole, only_rank(dumps / kept, 1, tmp_path)).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "model.layers.0.mlp.down_proj"


def test_a_rank_of_which_less_was_recorded_is_compared_with_itself_all_the_same(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    dumps = unpacked("msprobe/ranks_sequence")
    for whole, kept in (("sequence", "sequence_data"), ("sequence_data", "sequence")):
        report = compare(dumps / whole, only_rank(dumps / kept, 1, tmp_path / kept))
        assert report.findings.first_bad_node is None
        assert report.counts.passed == report.counts.pairs > 200
        assert [at.rank for at in report.pairing.unmatched_golden] == [0]
