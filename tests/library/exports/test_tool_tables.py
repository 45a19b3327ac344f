"""Tables in the columns of msit and msprobe, sheets included, and why what is left over is."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import ml_dtypes
import numpy as np
import openpyxl
import pytest
from library.dumps.msprobe_samples import module, tensor, write_dump

from firstdrift import Report, compare
from firstdrift.exports import workbook
from firstdrift.exports.advisor import advice_text
from firstdrift.exports.spreadsheets import write_csv, write_xlsx
from firstdrift.exports.tool_tables import LAYOUTS, MSIT_COLUMNS, MSIT_SHEETS, layout_of_report
from firstdrift.metrics.logits import flat_divergence

Compared = Callable[..., Report]
EXPECTED = Path(__file__).parents[2] / "expected" / "msit"


def rows_of(report: Report, name: str, folder: Path) -> list[dict[str, str]]:
    file = folder / f"{name}.csv"
    write_csv(report, file, layout_of_report(name, report))
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def place(path: str, token: str) -> tuple[str, ...]:
    """Name a tensor by the end of its path, as dumps lie elsewhere."""
    return token, *PurePath(path).parts[-2:]


@pytest.mark.parametrize(
    ("expected", "target"), [("llama4_bf16_all", "llama4_bf16"), ("llama4_fp16_all", "llama4_fp16")]
)
def test_the_kl_divergence_of_each_row_is_that_of_msit(
    compared: Compared, tmp_path: Path, expected: str, target: str
) -> None:
    report = compared("msit/llama4_golden_fp32", f"msit/{target}")
    ours = {place(row["my_data_path"], row["token_id"]): row for row in rows_of(report, "msit", tmp_path)}
    with gzip.open(EXPECTED / f"{expected}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        theirs = {place(row["my_data_path"], row["token_id"]): row for row in csv.DictReader(file)}
    compared_rows = [(ours[key], row) for key, row in theirs.items() if key in ours]
    assert len(compared_rows) > 400
    for own, row in compared_rows:
        assert float(own["kl_divergence"]) == pytest.approx(float(row["kl_divergence"]), abs=5e-6)


def test_msit_s_workbook_has_a_sheet_for_layers_modules_and_operators(
    compared: Compared, tmp_path: Path
) -> None:
    report = compared("msprobe/llama_tensor_mix_perturb/golden", "msprobe/llama_tensor_mix_perturb/target")
    write_xlsx(report, tmp_path / "msit.xlsx", layout_of_report("msit", report))
    book = openpyxl.load_workbook(tmp_path / "msit.xlsx", read_only=True)
    assert tuple(book.sheetnames) == MSIT_SHEETS
    sheets: dict[str, list[tuple[Any, ...]]] = {}
    for name in MSIT_SHEETS:
        head, *sheets[name] = book[name].iter_rows(values_only=True)
        assert head == MSIT_COLUMNS
    named = {name: {PurePath(str(row[9] or row[2])).name for row in rows} for name, rows in sheets.items()}
    assert all(".LlamaDecoderLayer." in one for one in named["layer"])
    assert named["module"]
    assert all(one.startswith("Module.") for one in named["module"])
    assert not any(".LlamaDecoderLayer." in one for one in named["module"])
    assert not any(one.startswith("Module.") for one in named["api"])
    ids = [row[1] for rows in sheets.values() for row in rows]
    assert sorted(ids) == list(range(report.counts.pairs))


def test_all_sheets_are_there_if_nothing_is_in_them(tmp_path: Path) -> None:
    for side in ("golden", "target"):
        write_dump(tmp_path / side / "step0" / "rank0", {}, construct={})
    report = compare(tmp_path / "golden", tmp_path / "target")
    write_xlsx(report, tmp_path / "msit.xlsx", layout_of_report("msit", report))
    assert tuple(openpyxl.load_workbook(tmp_path / "msit.xlsx").sheetnames) == MSIT_SHEETS


def test_what_does_not_fit_in_a_sheet_goes_on_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "ROWS", 2)
    rows = [("api", [number]) for number in range(5)] + [("layer", [9])]
    (tmp_path / "book.xlsx").write_bytes(b"".join(workbook.workbook(("number",), rows, ("layer", "api"))))
    book = openpyxl.load_workbook(tmp_path / "book.xlsx")
    assert book.sheetnames == ["layer", "api", "api 2", "api 3"]
    assert [row[0] for row in book["api 3"].iter_rows(values_only=True)] == ["number", 4]


@pytest.mark.parametrize(
    ("golden", "target", "expected"),
    [
        pytest.param(np.array([1.0, 2.0]), np.array([1.0, 2.0]), 0.0, id="equal"),
        pytest.param(np.log([[0.5], [0.5]]), np.log([[0.25], [0.75]]), 0.5 * np.log(4 / 3), id="any-shape"),
        pytest.param(np.array([1e6, 0.0]), np.array([0.0, 1e6]), 1e6, id="far-apart"),
        pytest.param(np.array([np.nan]), np.array([1.0]), None, id="nan"),
        pytest.param(np.array([np.inf]), np.array([np.inf]), None, id="infinite"),
        pytest.param(np.zeros(0), np.zeros(0), None, id="empty"),
        pytest.param(np.array([1]), np.array([1]), None, id="whole-numbers"),
        pytest.param(np.array([1.0]), np.array([1.0, 2.0]), None, id="other-size"),
        pytest.param(np.zeros(2, ml_dtypes.bfloat16), np.zeros(2), 0.0, id="bfloat16"),
    ],
)
def test_where_the_divergence_is_defined(
    golden: np.ndarray, target: np.ndarray, expected: float | None
) -> None:
    found = flat_divergence(golden, target)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.fixture
def left_over(tmp_path: Path) -> Report:
    """Operators of which one side has further arguments."""
    plain, other = tensor(), tensor(shape=[7])
    golden = {"Torch.add.0.forward": module(plain, plain), "Torch.mul.0.forward": module(plain, other)}
    target = {"Torch.add.0.forward": module(plain), "Torch.mul.0.forward": module(plain, plain, plain)}
    for side, data in (("golden", golden), ("target", target)):
        write_dump(tmp_path / side / "step0" / "rank0", data, construct=dict.fromkeys(data))
    return compare(tmp_path / "golden", tmp_path / "target")


def test_each_tensor_that_is_left_over_has_a_reason_in_every_table(left_over: Report, tmp_path: Path) -> None:
    own, msit, msprobe = (rows_of(left_over, name, tmp_path) for name in LAYOUTS)
    left = [row for row in own if row["verdict"] == "unmatched"]
    tensors = [row for row in left if row["golden_tensor"] or row["target_tensor"]]
    assert tensors
    assert all(row["reasons"] for row in left)
    assert all("Torch." in row["reasons"] for row in tensors)
    told = [row["cmp_fail_reason"] for row in msit if row["cmp_fail_reason"].startswith("only ")]
    assert [row["reasons"] in one for row, one in zip(left, told, strict=True)] == [True] * len(left)
    assert sum(row["Result"] == "unmatched" for row in msprobe) == len(left)


def test_the_advice_names_the_first_bad_node_and_its_line_in_the_table(
    compared: Compared, tmp_path: Path
) -> None:
    report = compared("msprobe/llama_tensor_mix_perturb/golden", "msprobe/llama_tensor_mix_perturb/target")
    line, suspect, advice = advice_text(report).splitlines()
    bad = report.findings.first_bad_node
    assert bad is not None
    assert suspect == f"Suspect Nodes: {bad.target}.{bad.tensor}"
    assert advice.startswith("Expert Advice: ")
    write_csv(report, tmp_path / "pairs.csv", layout_of_report("firstdrift", report))
    text = (tmp_path / "pairs.csv").read_text(encoding="utf-8").splitlines()
    row = text[int(line.removeprefix("Line: ")) - 1]
    assert bad.target in row
    assert str(bad.tensor) in row


def test_where_nothing_is_bad_the_advice_says_what_was_found(compared: Compared) -> None:
    sides = (f"msprobe/llama_stat_mix_identical/{side}" for side in ("golden", "target"))
    text = advice_text(compared(*sides))
    assert text.startswith("Expert Advice: ")
    assert text.count("\n") == 1
