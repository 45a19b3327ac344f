"""Slices merged from ranks go through the catalogue like any other."""

import shutil
from collections.abc import Callable
from pathlib import Path

from messages import place
from working import compare_with_worker, wait_for_comparison, worker

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.records import compare_again
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.dumps.records import get_dump, load_dump, load_slice, slices_of_dump
from firstdrift.catalogue.engine import open_engine, reading, writing
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options
from firstdrift.matching.plan import MatchingRules
from firstdrift.model.tensor import Sharding


def test_merged_ranks_are_stored_as_one_slice_beside_those_they_came_from(
    unpacked: Callable[[str], Path], sqlite_url: str
) -> None:
    dumps = unpacked("msprobe/tp2_vs_tp1")
    for _ in range(2):
        compared = compare_with_worker(sqlite_url, dumps / "golden", dumps / "target")
    engine = open_engine(sqlite_url)
    assert compared.findings == compare(dumps / "golden", dumps / "target").findings
    assert compared.target_dump_id is not None
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, compared.id)
        slices = slices_of_dump(session, compared.target_dump_id)
        assert [place(each.coordinates) for each in slices] == [
            "step 0, rank 0",
            "step 0, rank 1",
            "step 0, rank 0+1",
        ]
        assert get_dump(session, compared.target_dump_id).slices == 2
        assert len(load_dump(session, compared.target_dump_id).slices) == 2
        assert len(load_slice(session, slices[2].id).nodes) == len(load_slice(session, slices[0].id).nodes)
        assert place(pair.target) == "step 0, rank 0+1"
        rows = tree.rows_at(session, pair.id, range(pair.rows))
        row = next(row for row in rows if row.tree.target == ("Torch.matmul.0.forward",))
        weight = tree.pairs_of_row(session, pair.id, row.tree.index)[1].plan.target
    assert weight.shape == (64, 128)
    assert weight.shards is not None
    assert weight.shards.sharding is Sharding.CONCATENATED
    assert [shard.shape for shard in weight.shards.records] == [(64, 64), (64, 64)]
    engine.dispose()


def test_one_rank_with_what_the_others_tell_of_it_is_a_slice_of_its_own(
    unpacked: Callable[[str], Path], sqlite_url: str
) -> None:
    dumps = unpacked("msprobe/ranks")
    golden, target = dumps / "whole_data", dumps / "fault_in_shard_data"
    options = Options(matching=MatchingRules(rank=0))
    merged = compare_with_worker(sqlite_url, golden, target)
    alone = compare_with_worker(sqlite_url, golden, target, options)
    expected = compare(golden, target, options)
    assert alone.findings == expected.findings != merged.findings
    assert alone.counts == expected.counts
    engine = open_engine(sqlite_url)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, alone.id)
        assert place(pair.target) == "step 0, rank 0"
        assert alone.target_dump_id is not None
        assert [place(each.coordinates) for each in slices_of_dump(session, alone.target_dump_id)] == [
            "step 0, rank 0",
            "step 0, rank 1",
            "step 0, rank 0+1",
            "step 0, rank 0",
        ]
        assert len(load_dump(session, alone.target_dump_id).slices) == 2
    engine.dispose()


def test_which_ranks_are_compared_is_found_out_from_the_catalogue_though_the_dumps_are_gone(
    unpacked: Callable[[str], Path], sqlite_url: str, tmp_path: Path
) -> None:
    whole, kept = tmp_path / "whole", tmp_path / "kept"
    shutil.copytree(unpacked("msprobe/ranks") / "tensor", whole)
    shutil.copytree(whole / "step0" / "rank1", kept / "step0" / "rank1")
    first = compare_with_worker(sqlite_url, whole, kept)
    shutil.rmtree(whole)
    shutil.rmtree(kept)
    engine = open_engine(sqlite_url)
    with writing(engine) as session:
        compare_again(session, first.id)
    with worker(sqlite_url):
        again = wait_for_comparison(engine, first.id)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, first.id)
    engine.dispose()
    assert again.state is JobState.DONE
    assert (pair.golden.rank, pair.target.rank) == (1, 1)
    assert again.counts == first.counts
    assert again.counts is not None
    assert again.counts.passed == again.counts.pairs > 200
