"""Every real dump that the tests have, counted: what is read, and what is not, does not change unnoticed."""

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift.comparison.inspection import inspect_dump

Unpacked = Callable[[str], Path]

TABLE = Path(__file__).parents[2] / "expected" / "archives.tsv"


def rows_by_archive() -> dict[str, list[dict[str, str]]]:
    with TABLE.open(newline="") as file:
        found: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in csv.DictReader(file, delimiter="\t"):
            found[row["archive"]].append(row)
    return found


ROWS = rows_by_archive()


@pytest.mark.parametrize("archive", ROWS)
def test_what_an_archive_holds_is_read(unpacked: Unpacked, archive: str) -> None:
    for row in ROWS[archive]:
        found = inspect_dump(unpacked(archive) / row["below"])
        problems = [*found.dump.problems, *(problem for one in found.slices for problem in one.problems)]
        counted = {
            "format": found.dump.format,
            "slices": len(found.slices) + len(found.damaged),
            "nodes": sum(one.modules + one.operators for one in found.slices),
            "tensors": sum(one.tensors for one in found.slices),
            "with_data": sum(one.with_data for one in found.slices),
            "unreadable": sum(one.unreadable for one in found.slices),
            "problems": len(problems) + len(found.damaged),
        }
        assert {name: str(value) for name, value in counted.items()} == {name: row[name] for name in counted}
        assert all(problem.file and problem.reason for problem in problems)
