"""`firstdrift compare --algorithm` and `--postprocess`: what a user adds to a comparison."""

import csv
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from messages import says, titled, titled_within

Run = Callable[..., Any]

ALGORITHMS = """
def mse(golden, target):
    return ((golden - target) ** 2).mean()

def flat(golden, target):
    if golden.ndim > 1:
        raise ValueError("it is not flat")
    return 0, "flat"

def places(golden, target):
    raise ValueError(f"not {len(golden)}")

def of_torch(golden, target):
    return (golden.float() - target.float()).abs().max()
"""


@pytest.fixture
def algorithms(tmp_path: Path) -> Path:
    file = tmp_path / "my.py"
    file.write_text(ALGORITHMS)
    return file


@pytest.fixture
def logits(unpacked: Callable[[str], Path]) -> tuple[Path, Path]:
    return unpacked("msit/llama4_logits_golden"), unpacked("msit/llama4_logits_perturb")


def test_numbers_of_ones_own_are_in_text_json_csv_and_xlsx(
    firstdrift: Run, logits: tuple[Path, Path], algorithms: Path, tmp_path: Path
) -> None:
    table, book = tmp_path / "pairs.csv", tmp_path / "pairs.xlsx"
    own = ("--algorithm", f"{algorithms}:mse", "--algorithm", f"{algorithms}:flat")
    text = firstdrift("compare", *logits, *own, "--csv", table, "--xlsx", book)
    assert titled("algorithm", "mse: 8 numbers, 0 failed\n") in text.out
    assert titled("algorithm", "flat: 0 numbers, 8 failed\n") in text.out
    failed = "root.lm_head output.0 and 7 other pairs: ValueError: it is not flat\n"
    assert titled_within("failed", failed) in text.out
    assert titled_within("hint") not in text.out
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["mse"]) > 0 for row in rows] == [False] * 3 + [True] * 5
    assert {(row["flat"], row["flat_remark"]) for row in rows} == {("", "ValueError: it is not flat")}
    with closing(openpyxl.load_workbook(book, read_only=True)) as opened:
        header, first, *_ = opened.worksheets[0].iter_rows(values_only=True)
    assert header[-4:] == ("mse", "mse_remark", "flat", "flat_remark")
    assert first[-4:] == (0, None, None, "ValueError: it is not flat")
    assert text.status == 1


def test_functions_of_torch_tensors_are_given_these_and_failures_are_told_once_each(
    firstdrift: Run, logits: tuple[Path, Path], algorithms: Path
) -> None:
    own = ("--algorithm", f"{algorithms}:of_torch", "--algorithm", f"{algorithms}:places")
    text = firstdrift("compare", *logits, *own).out
    assert titled("algorithm", "of_torch: 8 numbers, 0 failed\n") in text
    begin = titled_within("failed")
    (failed,) = (line.split(":")[0].split() for line in text.splitlines() if line.startswith(begin))
    assert failed[-3:] == ["7", "other", "pairs"]


def test_json_has_them_among_the_metrics(
    firstdrift: Run, logits: tuple[Path, Path], algorithms: Path
) -> None:
    answer = json.loads(firstdrift("compare", *logits, "--json", "--algorithm", f"{algorithms}:mse").out)
    assert answer["first_bad_token"]["token"] == 3
    assert answer["first_bad_token"]["metrics"]["mse"] > 0
    assert answer["algorithms"] == [
        {"name": "mse", "values": 8, "failed": 0, "failures": [], "not_given": []}
    ]
    assert "algorithms" not in json.loads(firstdrift("compare", *logits, "--json").out)


def test_pairs_that_an_algorithm_was_not_given_are_counted_with_the_reason(
    firstdrift: Run, unpacked: Callable[[str], Path], algorithms: Path
) -> None:
    golden, target = unpacked("msit/atb12_fp32_golden"), unpacked("msit/atb12_bf16_stats")
    own = ("--algorithm", f"{algorithms}:mse")
    text = firstdrift("compare", golden, target, *own).out
    (line,) = (line for line in text.splitlines() if line.startswith(titled("algorithm")))
    answer = json.loads(firstdrift("compare", golden, target, "--json", *own).out)
    pairs = answer["counts"]["pairs"]
    assert line == titled("algorithm", f"mse: 0 numbers, 0 failed, {pairs} not given")
    found = {one["reason"]: one["pairs"] for one in answer["algorithms"][0]["not_given"]}
    assert set(found) == {"no values in the target dump", "a Python argument, no tensor"}
    assert sum(found.values()) == pairs
    assert [titled_within("not_given", f"{number} pairs: {why}") for why, number in found.items()] == [
        line for line in text.splitlines() if line.startswith(titled_within("not_given"))
    ]


def test_a_function_that_cannot_be_run_exits_with_2(
    firstdrift: Run, logits: tuple[Path, Path], algorithms: Path
) -> None:
    done = firstdrift("compare", *logits, "--algorithm", f"{algorithms}:gone")
    assert (done.status, done.out) == (2, "")
    assert says(done.err, "comparison.algorithm.no_function")
    assert "gone" in done.err


def test_a_postprocess_file_is_applied_and_one_that_makes_no_sense_exits_with_2(
    firstdrift: Run, logits: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "matmul.yaml"
    file.write_text("right_matmul: {target_tensor_map: {gone.npy: [output.pth]}}")
    done = firstdrift("compare", *logits, "--postprocess", file)
    assert (done.status, done.out) == (2, "")
    assert says(done.err, "comparison.postprocess.matrix_unreadable")
    assert "gone.npy: " in done.err
    file.write_text("right_matmul: {}")
    assert firstdrift("compare", *logits, "--postprocess", file).status == 1
