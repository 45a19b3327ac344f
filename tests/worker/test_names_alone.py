"""Folders of which names alone tell, compared by a worker: what was indexed is matched as what was read."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from working import compare_with_worker

from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import all_rows
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.comparison.compare import compare

OUTPUT = re.compile(r"Module\.(?P<path>.+)\.\w+\.forward\.0\.output\.0\.pt")


def bare(file: Path) -> str | None:
    return file.name


def named(file: Path) -> str | None:
    match = OUTPUT.fullmatch(file.name)
    return None if match is None else f"{match['path']}.pt"


@pytest.mark.parametrize("name_of", [bare, named])
@pytest.mark.parametrize("side", ["golden", "target"])
def test_the_worker_finds_what_the_library_finds(
    unpacked: Callable[[str], Path],
    sqlite_url: str,
    tmp_path: Path,
    side: str,
    name_of: Callable[[Path], str | None],
) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    folder = tmp_path / "files"
    folder.mkdir()
    for file in min((dump / side).rglob("dump_tensor_data")).iterdir():
        if name := name_of(file):
            shutil.copyfile(file, folder / name)
    paths = (folder, dump / "target") if side == "golden" else (dump / "golden", folder)
    report, comparison = compare(*paths), compare_with_worker(sqlite_url, *paths)
    assert comparison.findings == report.findings
    assert comparison.counts == report.counts
    bad = report.findings.first_bad_node
    assert bad is not None
    assert bad.module == "model.layers.2.mlp.down_proj"
    engine = open_engine(sqlite_url)
    with reading(engine) as session:
        (pair,) = slice_pairs_of(session, comparison.id)
        assert pair.notes == report.slices[0].plan.notes
        rows = list(all_rows(session, pair.id))
    engine.dispose()
    assert [row.tree for row in rows] == list(report.slices[0].rows)
