"""The columns of msit and msprobe, against the reports that the real tools wrote of real dumps."""

import ast
import csv
import gzip
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from library.metrics.tool_columns import MsitColumns, msit_columns, msprobe_columns
from msgspec.structs import astuple

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.metrics.elementwise.measure import measure_elements
from firstdrift.model.tensor import DataLocation

Unpacked = Callable[[str], Path]
EXPECTED = Path(__file__).parents[2] / "expected"
NAN, INF = math.nan, math.inf


def report(name: str) -> list[dict[str, str]]:
    with gzip.open(EXPECTED / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def load(file: Path) -> np.ndarray:
    return load_tensor(DataLocation(file, "pt"))


def msit_pairs(name: str, unpacked: Unpacked) -> list[tuple[dict[str, str], np.ndarray, np.ndarray]]:
    """Return the rows of a report with the tensors they are about."""

    def tensor(path: str) -> np.ndarray:
        dump, _, inner = path.partition("/")
        return load(unpacked(f"msit/{dump}") / inner)

    return [
        (row, tensor(row["golden_data_path"]), tensor(row["my_data_path"])) for row in report(f"msit/{name}")
    ]


MSIT = ["llama12_bad_all", "llama4_bf16_all", "llama4_fp16_all", "llama4_sdpa_all", "llama12_logits_bad"]


def number(cell: str) -> float | None:
    return float(cell) if cell else None


@pytest.mark.parametrize("name", MSIT)
def test_msit_reports_are_reproduced(name: str, unpacked: Unpacked) -> None:
    rows = msit_pairs(name, unpacked)
    assert rows
    for row, golden, target in rows:
        found = msit_columns(golden, target)
        assert found.cmp_fail_reason == row["cmp_fail_reason"]
        if found.cmp_fail_reason:
            assert number(row["cosine_similarity"]) is None
            continue
        assert found.cosine_similarity == pytest.approx(float(row["cosine_similarity"]), abs=1e-9)
        assert found.kl_divergence == pytest.approx(float(row["kl_divergence"]), abs=1e-5)
        for column in (
            "max_relative_error",
            "mean_relative_error",
            "max_absolute_error",
            "mean_absolute_error",
            "relative_euclidean_distance",
        ):
            assert getattr(found, column) == pytest.approx(float(row[column]), rel=1e-5, abs=1e-12), column


@pytest.mark.parametrize("name", MSIT)
def test_our_own_metrics_agree_where_msit_leaves_nothing_out(name: str, unpacked: Unpacked) -> None:
    for row, golden, target in msit_pairs(name, unpacked):
        if row["cmp_fail_reason"]:
            continue
        side, _, errors = measure_elements(golden.reshape(-1), target.reshape(-1))
        assert errors.relative_l2 == pytest.approx(
            float(row["relative_euclidean_distance"]), rel=1e-5, abs=1e-12
        )
        assert errors.cosine_similarity == pytest.approx(float(row["cosine_similarity"]), abs=1e-9)
        assert errors.max_absolute_error >= float(row["max_absolute_error"]) * (1 - 1e-6)
        assert side.maximum == pytest.approx(float(row["golden_max_value"]), rel=1e-6)
        assert side.minimum == pytest.approx(float(row["golden_min_value"]), rel=1e-6)


MSPROBE_COLUMNS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)


def cell(text: str) -> object:
    words = {"unsupported", "N/A", "Nan", "shape unmatched"}
    return text if text in words else pytest.approx(float(text), rel=1e-6, abs=2e-12)


@pytest.mark.parametrize("name", ["llama_tensor_mix_perturb", "zoo_tensor_mix"])
def test_msprobe_reports_are_reproduced(name: str, unpacked: Unpacked) -> None:
    dump = unpacked(f"msprobe/{name}")
    folders = [next((dump / side).glob("**/dump_tensor_data")) for side in ("target", "golden")]
    compared = 0
    for row in report(f"msprobe/{name}"):
        files = ast.literal_eval(row["Data_name"])
        if not all(file.endswith(".pt") for file in files):  # no tensor, or an array of strings
            continue
        target, golden = (load(folder / file) for folder, file in zip(folders, files, strict=True))
        assert astuple(msprobe_columns(golden, target)) == tuple(
            cell(row[name]) for name in MSPROBE_COLUMNS
        ), row
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("golden", "target", "expected"),
    [
        pytest.param(
            [0.0, 0.0], [1.0, 1.0], ("Nan", math.sqrt(2), 1.0, 8388608.0, 0.0, 0.0), id="golden-zero"
        ),
        pytest.param([1.0, 1.0], [0.0, 0.0], ("Nan", math.sqrt(2), 1.0, 1.0, 0.0, 0.0), id="target-zero"),
        pytest.param([0.0, 0.0], [0.0, 0.0], (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), id="both-zero"),
        pytest.param(
            [1.0, NAN, 3.0],
            [1.0, NAN, 3.3],
            (0.999607, 0.3, 0.3, 0.1, 2 / 3, 2 / 3),
            id="nan-at-the-same-place",
        ),
        pytest.param([1.0, NAN], [1.0, 2.0], ("N/A",) * 6, id="nan-on-one-side"),
        pytest.param([1.0, 2.0], [], ("unsupported",) * 6, id="target-empty"),
        pytest.param([], [1.0, 2.0], ("shape unmatched",) * 6, id="golden-empty"),
        pytest.param(
            [NAN],
            [1.0],
            ("unsupported", "unsupported", "Nan", "Nan", "unsupported", "unsupported"),
            id="one-element",
        ),
    ],
)
def test_the_words_of_msprobe(golden: list[float], target: list[float], expected: tuple[object, ...]) -> None:
    found = astuple(msprobe_columns(np.array(golden, np.float32), np.array(target, np.float32)))
    assert found == tuple(
        pytest.approx(value, rel=1e-3) if isinstance(value, float) else value for value in expected
    )


def test_integers_take_the_epsilon_of_float64() -> None:
    assert msprobe_columns(np.array([0, 1]), np.array([1, 1])).max_relative_error == 2.0**52
    assert msprobe_columns(np.array([True, True]), np.array([True, False])).one_thousandth_ratio == 0.5


@pytest.mark.parametrize(
    ("golden", "target", "reason"),
    [
        ([1.0, 2.0], [1.0], "data shape doesn't match."),
        ([NAN, 2.0], [1.0, INF], "golden_data includes NAN or inf. my_data includes NAN or inf."),
        ([INF], [1.0, 2.0], "data shape doesn't match. golden_data includes NAN or inf."),
    ],
)
def test_what_msit_does_not_compare(golden: list[float], target: list[float], reason: str) -> None:
    assert msit_columns(np.array(golden), np.array(target)) == MsitColumns(cmp_fail_reason=reason)


def test_msit_does_not_see_errors_where_golden_is_zero_and_we_do() -> None:
    golden, target = np.array([0.0, 1.0]), np.array([100.0, 1.0])
    assert msit_columns(golden, target).max_absolute_error == 0.0
    assert measure_elements(golden, target)[2].max_absolute_error == 100.0


def test_msit_calls_a_zero_golden_tensor_near_to_everything_and_we_do_not() -> None:
    golden, target = np.zeros(3), np.ones(3)
    assert msit_columns(golden, target).relative_euclidean_distance == 0.0
    assert measure_elements(golden, target)[2].relative_l2 == INF


def test_msprobe_takes_opposite_infinities_for_equal_and_we_do_not() -> None:
    golden, target = np.array([INF, 1.0]), np.array([-INF, 1.0])
    assert msprobe_columns(golden, target).max_absolute_error == 0.0
    assert measure_elements(golden, target)[2].mismatched_nonfinite == 1


def test_msprobe_rounds_small_distances_away_and_we_do_not() -> None:
    random = np.random.default_rng(0)
    golden = random.normal(size=10_000)
    target = golden + 1e-4 * random.normal(size=10_000)
    assert msprobe_columns(golden, target).cosine == 1.0
    distance = measure_elements(golden, target)[2].cosine_distance
    assert distance == pytest.approx(5e-9, rel=0.1)


def test_msprobe_drops_the_imaginary_part_and_we_do_not() -> None:
    golden, target = np.array([1 + 1j, 2]), np.array([1 + 9j, 2])
    assert msprobe_columns(golden, target).max_absolute_error == 0.0
    assert measure_elements(golden, target)[2].max_absolute_error == 8.0


def test_msit_takes_the_softmax_over_the_whole_tensor() -> None:
    golden = np.array([[0.0, 0.0], [50.0, 50.0]])
    target = np.array([[9.0, 0.0], [50.0, 50.0]])
    assert msit_columns(golden, target).kl_divergence == pytest.approx(0.0, abs=1e-12)
