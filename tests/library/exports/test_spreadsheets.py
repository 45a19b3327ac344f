"""CSV and XLSX: every pair is there, as it was, and no cell runs."""

import csv
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from library.dumps.hostile_names import KEY, NAMES, write_hostile_dumps
from library.dumps.msprobe_samples import module, tensor, write_dump
from openpyxl.utils import get_column_letter

from firstdrift import Report, compare
from firstdrift.comparison.table import COLUMNS
from firstdrift.exports import workbook
from firstdrift.exports.spreadsheets import write_csv, write_xlsx
from firstdrift.exports.tool_tables import LAYOUTS, layout_of_report
from firstdrift.processes.copies import allow_copies
from firstdrift.wording.text import text_of


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return compare(*write_hostile_dumps(tmp_path_factory.mktemp("hostile")))


def csv_rows(report: Report, folder: Path) -> list[dict[str, str]]:
    write_csv(report, folder / "pairs.csv")
    with (folder / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        rows = list(reader)
    assert tuple(reader.fieldnames or ()) == COLUMNS
    return rows


def xlsx_rows(report: Report, folder: Path) -> list[dict[str, Any]]:
    write_xlsx(report, folder / "pairs.xlsx")
    sheet = openpyxl.load_workbook(folder / "pairs.xlsx").active
    head, *rows = sheet.iter_rows(values_only=True)
    assert head == COLUMNS
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def test_relative_errors_of_xlsx_are_fractions_that_show_as_percentages(tmp_path: Path) -> None:
    dumps = (tmp_path / "golden", tmp_path / "target")
    for folder, minimum in zip(dumps, (-1.0, -1.5), strict=True):
        data = {KEY: module(tensor(Min=minimum))}
        write_dump(folder / "step0" / "rank0", data, construct=dict.fromkeys(data))
    write_xlsx(compare(*dumps), tmp_path / "pairs.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "pairs.xlsx").active
    cells = {name: sheet.cell(2, place) for place, name in enumerate(COLUMNS, 1)}
    shown = {name for name, cell in cells.items() if "%" in cell.number_format}
    assert cells["relative_minimum"].value == pytest.approx(0.5)
    assert "relative_minimum" in shown
    assert "golden_minimum" not in shown
    assert cells["golden_minimum"].number_format == "General"


def test_no_cell_of_a_csv_file_is_taken_for_a_formula(hostile: Report, tmp_path: Path) -> None:
    rows = csv_rows(hostile, tmp_path)
    for row in rows:
        for column, cell in row.items():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or is_number(cell), column
    assert '\'=HYPERLINK("http://example.org","click").forward.0' in {row["target_node"] for row in rows}


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_names_in_a_csv_file_are_whole(hostile: Report, tmp_path: Path) -> None:
    named = {row["target_node"].removeprefix("'") for row in csv_rows(hostile, tmp_path)}
    assert named == set(NAMES), "control characters and line ends included"
    assert {row["target_tensor"] for row in csv_rows(hostile, tmp_path)} == {
        "input.0",
        f"input.{KEY}",
        "output.0",
    }


def test_xlsx_holds_names_as_text_and_numbers_as_numbers(hostile: Report, tmp_path: Path) -> None:
    write_xlsx(hostile, tmp_path / "pairs.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "pairs.xlsx").active
    cells = [cell for row in sheet.iter_rows(min_row=2) for cell in row if cell.value is not None]
    assert {cell.data_type for cell in cells} == {"s", "n"}, "no formula among them"
    rows = xlsx_rows(hostile, tmp_path)
    assert {row["target_node"] for row in rows} >= {name for name in NAMES if name.isprintable()}
    assert {row["error"] for row in rows} == {0, 2}
    assert len(rows) == hostile.counts.pairs


@pytest.fixture
def not_finite(tmp_path: Path) -> Report:
    """A target with NaN, infinities, an operator more, and one less."""
    plain, nan = tensor(), tensor(Max=math.nan, Min=math.nan, Mean=math.nan, Norm=math.nan)
    infinite = tensor(Max=math.inf, Min=-math.inf, Mean=math.nan, Norm=math.inf)
    golden = {
        "Torch.add.0.forward": module(plain),
        "Torch.mul.0.forward": module(plain) | {"output": [plain]},
        "Torch.sub.0.forward": module(plain),
    }
    target = {
        "Torch.add.0.forward": module(plain) | {"output": [nan]},
        "Torch.mul.0.forward": module(plain) | {"output": [infinite]},
        "Torch.div.0.forward": module(plain, plain, tensor(shape=[7])),
    }
    for side, data in (("golden", golden), ("target", target)):
        write_dump(tmp_path / side / "step0" / "rank0", data, construct=dict.fromkeys(data))
    return compare(tmp_path / "golden", tmp_path / "target")


def test_nan_and_infinities_are_words(not_finite: Report, tmp_path: Path) -> None:
    for rows in (csv_rows(not_finite, tmp_path), xlsx_rows(not_finite, tmp_path)):
        outputs = {row["target_node"]: row for row in rows if row["target_tensor"] == "output.0"}
        assert outputs["Torch.add.0.forward"]["target_maximum"] == "NaN"
        assert outputs["Torch.mul.0.forward"]["target_maximum"] == "Infinity"
        assert outputs["Torch.mul.0.forward"]["target_minimum"] == "-Infinity"
        assert outputs["Torch.mul.0.forward"]["error"] == "Infinity"
        assert outputs["Torch.mul.0.forward"]["verdict"] == "error"
        assert outputs["Torch.mul.0.forward"]["class"] == "non-finite"


def test_what_has_no_partner_is_listed_on_its_own_side(not_finite: Report, tmp_path: Path) -> None:
    for rows in (csv_rows(not_finite, tmp_path), xlsx_rows(not_finite, tmp_path)):
        left = [row for row in rows if row["verdict"] == "unmatched"]
        named = {(row["golden_node"] or None, row["target_node"] or None) for row in left}
        assert {("Torch.sub.0.forward", None), (None, "Torch.div.0.forward")} <= named
        assert all(not row["golden_node"] or not row["target_node"] for row in left)


def test_an_empty_report_still_has_its_columns(tmp_path: Path) -> None:
    for side in ("golden", "target"):
        write_dump(tmp_path / side / "step0" / "rank0", {}, construct={})
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert csv_rows(report, tmp_path) == []
    assert xlsx_rows(report, tmp_path) == []


def test_a_text_too_long_for_a_cell_says_that_it_was_cut(tmp_path: Path) -> None:
    long, wide, fits = "x" * 40_000, "\U0001f600" * 20_000, "y" * 32_767
    data = {name: module(tensor()) for name in (long, wide, fits)}
    for side in ("golden", "target"):
        write_dump(tmp_path / side / "step0" / "rank0", data, construct=dict.fromkeys(data))
    report = compare(tmp_path / "golden", tmp_path / "target")
    names = {row["target_node"] for row in xlsx_rows(report, tmp_path)}
    assert fits in names
    cut = sorted(names - {fits})
    assert [name[-25:] for name in cut] == [
        "\u2026 (cut; 40000 characters)",
        "\u2026 (cut; 20000 characters)",
    ]
    for name, whole in zip(cut, (long, wide), strict=True):
        assert len(name.encode("utf-16-le")) // 2 in (32_766, 32_767)
        assert whole.startswith(name.partition("\u2026")[0])
    assert {long, wide} <= {row["target_node"] for row in csv_rows(report, tmp_path)}


def test_csv_xlsx_and_frame_tell_the_same(compared: Callable[[str, str], Report], tmp_path: Path) -> None:
    report = compared("msprobe/zoo_tensor_mix/golden", "msprobe/zoo_tensor_mix/target")
    frame, text, sheet = report.frame(), csv_rows(report, tmp_path), xlsx_rows(report, tmp_path)
    assert len(frame) == len(text) == len(sheet)
    for column in ("target_node", "target_tensor", "verdict", "class"):
        told = [value if isinstance(value, str) else "" for value in frame[column]]
        assert [row[column] for row in text] == told
        assert [row[column] or "" for row in sheet] == told


def test_a_workbook_that_is_given_up_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workbook, "BEAT", 5)
    pieces = workbook.workbook(("number",), (("Sheet1", [number]) for number in range(1000)), ("Sheet1",))
    assert [next(pieces), next(pieces)] == [b"", b""]
    assert open_files_below(tmp_path)
    pieces.close()
    assert not open_files_below(tmp_path)
    assert not any(tmp_path.iterdir())


def open_files_below(folder: Path) -> list[str]:
    """Files that this process has open; one may have no name any more."""
    links = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return [link for link in map(os.readlink, links) if link.startswith(str(folder))]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_csv_file_is_the_same_whoever_writes_its_slices(
    compared: Callable[[str, str], Report], tmp_path: Path, layout: str
) -> None:
    report = compared("msit/llama4_golden_fp32", "msit/llama4_fp16")
    assert len(report.slices) > 2
    write_csv(report, tmp_path / "alone.csv", layout_of_report(layout, report))
    allow_copies(1)
    try:
        write_csv(report, tmp_path / "shared.csv", layout_of_report(layout, report))
    finally:
        allow_copies(0)
    assert (tmp_path / "alone.csv").read_bytes() == (tmp_path / "shared.csv").read_bytes()


def test_a_workbook_has_filters_widths_colours_and_a_summary(
    compared: Callable[[str, str], Report], tmp_path: Path
) -> None:
    report = compared("msprobe/llama_stat_mix_perturb/golden", "msprobe/llama_stat_mix_perturb/target")
    write_xlsx(report, tmp_path / "book.xlsx")
    book = openpyxl.load_workbook(tmp_path / "book.xlsx")
    table, summary = book["Sheet1"], book["Summary"]
    assert book.sheetnames[0] == "Sheet1", "whoever reads the first sheet gets the table"
    assert table.auto_filter.ref == table.dimensions
    headings = [cell.value for cell in table[1]]
    verdicts = get_column_letter(headings.index("verdict") + 1)
    node = headings.index("target_node") + 1
    widths = [each.width for each in table.column_dimensions.values() if each.min <= node <= each.max]
    assert widths[0] > 40
    coloured = [str(found.sqref) for found in table.conditional_formatting]
    assert coloured == [f"{verdicts}2:{verdicts}{table.max_row}"]
    said = {row[0]: row[1] for row in summary.iter_rows(values_only=True)}
    assert said["finding"] == text_of(report.findings.summary)
    assert (said["golden"], said["rules"]) == (report.golden.path, "firstdrift")
    in_table = Counter(cell.value for cell in table[verdicts][1:])
    assert {name: said.get(name) for name in in_table} == in_table
