"""Tables that are written column by column are those that are written line by line."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from firstdrift import compare
from firstdrift.comparison.table import COLUMNS, Cell, cells_of, lines_of_slice
from firstdrift.comparison.table_columns import Columns, columns_of_slice
from firstdrift.exports.spreadsheets import csv_of_columns, csv_of_rows


@pytest.fixture(scope="module")
def pairs(unpacked: Callable[[str], Path]) -> Mapping[str, tuple[Path, Path]]:
    statistics, renamed = unpacked("msprobe/llama_stat_mix_perturb"), unpacked("msprobe/d4_renamed")
    return {
        "statistics": (statistics / "golden", statistics / "target"),
        "without partners": (renamed / "golden", renamed / "target"),
        "values": (unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")),
    }


@pytest.mark.parametrize("name", ["statistics", "without partners", "values"])
def test_columns_hold_what_lines_hold(pairs: Mapping[str, tuple[Path, Path]], name: str) -> None:
    for result in compare(*pairs[name]).slices:
        rows = list(map(cells_of, lines_of_slice(result)))
        columns: list[Columns] = list(columns_of_slice(result))
        assert [row for some in columns for row in zip(*some, strict=True)] == rows
        assert "".join(csv_of_columns(COLUMNS, columns)) == "".join(csv_of_rows(COLUMNS, rows))


@pytest.mark.parametrize(
    "number",
    [
        *(1e-5, 9.999999999999999e-6, 1e-9, 9.999999999999999e-10, 1e-10, 1e-4, 9.999999999999999e-5),
        *(1e16, 9999999999999998.0, 1e22, 1e100, 5e-324, 1.7976931348623157e308, 0.0, 123.0, 2.5e-7),
    ],
)
def test_a_number_is_written_as_python_writes_it(number: float) -> None:
    column: list[Cell] = [number, None, -number]
    written = "".join(csv_of_rows(("n",), [[cell] for cell in column]))
    assert written == f"n\r\n{number!r}\r\n\r\n{-number!r}\r\n"
