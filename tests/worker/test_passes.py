"""Passes that are compared as one go through the catalogue like any other slice, and their rows by token."""

from pathlib import Path

from library.matching.test_token_coordinates import FAULT, runs
from messages import place
from working import compare_with_worker

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.dumps.records import slices_of_dump
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.comparison.compare import compare


def test_chunks_of_a_prompt_are_stored_as_one_slice_beside_themselves(
    tmp_path: Path, sqlite_url: str
) -> None:
    golden, target = runs(tmp_path, "chunked-prefill-against-padded", FAULT)
    compared = compare_with_worker(sqlite_url, golden, target)
    expected = compare(golden, target)
    assert compared.findings == expected.findings
    assert compared.counts == expected.counts
    assert compared.target_dump_id is not None
    engine = open_engine(sqlite_url)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, compared.id)
        places = [place(each.coordinates) for each in slices_of_dump(session, compared.target_dump_id)]
        assert places == ["step 0", "step 1", "step 2", "step 0"]
        rows = tree.rows_at(session, pair.id, range(pair.rows))
        row = next(row for row in rows if row.tree.target == ("model.layers.1.down_proj",))
        (kept,) = [each.plan for each in tree.pairs_of_row(session, pair.id, row.tree.index)]
    engine.dispose()
    assert kept.tokens
    assert kept.target.location is not None
    assert len(kept.target.location.shards) == 3
