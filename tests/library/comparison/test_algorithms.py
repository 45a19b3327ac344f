"""Algorithms of the user's own: what they are given, and what becomes of what they return."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from messages import refuses

import firstdrift
from firstdrift.comparison.algorithms import load_algorithms
from firstdrift.comparison.table import COLUMNS
from firstdrift.errors import SettingsError

Pair = tuple[Path, Path]


def write(folder: Path, **tensors: Any) -> Path:  # noqa: ANN401
    folder.mkdir(parents=True)
    for name, values in tensors.items():
        np.save(folder / f"{name}.npy", values)
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    values = np.arange(6, dtype="f4").reshape(2, 3)
    golden = write(tmp_path / "golden", a=values, b=values[None], only=values)
    return golden, write(tmp_path / "target", a=values + 2, b=values)


def mse(golden: np.ndarray, target: np.ndarray) -> np.float32:
    return ((golden - target) ** 2).mean()


def rows(report: firstdrift.Report) -> dict[str, dict[str, Any]]:
    return {str(row["target_node"]): row for row in report.frame().to_dict("records")}


def test_what_a_function_returns_is_a_column(pair: Pair) -> None:
    report = firstdrift.compare(*pair, algorithms=[mse])
    found = rows(report)
    assert list(report.frame().columns) == [*COLUMNS, "mse", "mse_remark"]
    assert (found["a"]["mse"], found["b"]["mse"]) == (4.0, 0.0)
    assert len(report.frame()) == 3, "what is left over has a row of the same columns"


def test_a_number_may_come_with_a_remark(pair: Pair) -> None:
    def ranked(golden: np.ndarray, target: np.ndarray) -> tuple[int, str]:
        return int(golden.argmax() == target.argmax()), "by the largest"

    found = rows(firstdrift.compare(*pair, algorithms=[ranked]))
    assert (found["a"]["ranked"], found["a"]["ranked_remark"]) == (1.0, "by the largest")


def test_the_arrays_have_one_shape_and_cannot_be_written_to(pair: Pair) -> None:
    seen = []

    def look(golden: np.ndarray, target: np.ndarray) -> int:
        seen.append((golden.shape == target.shape, golden.flags.writeable, target.flags.writeable))
        return 0

    firstdrift.compare(*pair, algorithms=[look])
    assert seen == [(True, False, False)] * 2


def test_bfloat16_comes_as_float32(unpacked: Callable[[str], Path]) -> None:
    dtypes = set()

    def look(_golden: np.ndarray, target: np.ndarray) -> int:
        dtypes.add(target.dtype.name)
        return 0

    firstdrift.compare(
        unpacked("msit/llama4_logits_golden"), unpacked("msit/llama4_logits_bf16"), algorithms=[look]
    )
    assert dtypes == {"float32"}


def fail(golden: np.ndarray, _target: np.ndarray) -> float:
    if golden.ndim == 2:
        raise RuntimeError("not of two dimensions")
    return 0.5


def nothing(_golden: np.ndarray, _target: np.ndarray) -> None:
    return None


def triple(_golden: np.ndarray, _target: np.ndarray) -> tuple[int, int, int]:
    return (1, 2, 3)


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        (fail, "RuntimeError: not of two dimensions"),
        (nothing, "TypeError: "),
        (triple, "ValueError: "),
        (lambda _: 0, "TypeError: "),
    ],
)
def test_what_fails_says_so_on_its_pair_and_changes_nothing_else(
    pair: Pair, algorithm: Callable[..., Any], said: str
) -> None:
    algorithm.__name__ = "own"
    report = firstdrift.compare(*pair, algorithms=[algorithm, mse])
    found = rows(report)["a"]
    assert pd.isna(found["own"])
    assert found["own_remark"].startswith(said)
    assert found["mse"] == 4.0
    assert report.counts == firstdrift.compare(*pair).counts


def test_statistics_have_no_values_to_run_on(unpacked: Callable[[str], Path]) -> None:
    dump = unpacked("msit/llama4_stats1_golden")
    report = firstdrift.compare(dump, dump, algorithms=[mse])
    frame = report.frame()
    assert frame["mse"].isna().all()
    assert set(frame["mse_remark"]) == {"no values in either dump"}


def test_a_finding_has_the_number_among_its_metrics(compared: Callable[..., Any]) -> None:
    plain = compared("msprobe/zoo_tensor_mix/golden", "msprobe/zoo_tensor_mix/target")
    report = firstdrift.compare(plain.golden.path, plain.target.path, algorithms=[mse])
    node = report.findings.first_bad_node
    assert node is not None
    assert node.metrics["mse"] > 0
    assert {**node.metrics, "mse": None} == {**plain.findings.first_bad_node.metrics, "mse": None}


def test_a_match_by_hand_runs_them_on_what_is_new(pair: Pair) -> None:
    np.save(pair[1] / "renamed.npy", np.ones((2, 3), "f4"))
    matching = firstdrift.MatchingRules(structure=False)
    report = firstdrift.compare(*pair, firstdrift.Options(matching=matching), algorithms=[mse])
    assert rows(report.match("only", "renamed"))["renamed"]["mse"] == pytest.approx(31 / 6)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["relative_l2"], "relative_l2"),
        (["own", "own"], "own"),
        (["own", "own_remark"], "own_remark"),
    ],
)
def test_a_name_stands_for_one_column(pair: Pair, names: list[str], taken: str) -> None:
    def named(name: str) -> Callable[..., float]:
        def algorithm(*_: np.ndarray) -> float:
            return 0.0

        algorithm.__name__ = name
        return algorithm

    with refuses(SettingsError, "comparison.algorithm.name_taken", name=taken):
        firstdrift.compare(*pair, algorithms=[named(name) for name in names])


@pytest.mark.parametrize(
    ("text", "wanted", "said"),
    [
        ("", "my.py", "names_no_function"),
        ("", "my.py:", "names_no_function"),
        ("", "my.py:f", "no_function"),
        ("f = 3", "my.py:f", "no_function"),
        ("def f(: pass", "my.py:f", "cannot_run"),
        ("import sys; sys.exit(3)", "my.py:f", "cannot_run"),
        ("", "other.py:f", "no_file"),
        ("", ".:f", "no_file"),
    ],
)
def test_a_function_that_is_not_there_is_an_error_of_ours(
    tmp_path: Path, text: str, wanted: str, said: str
) -> None:
    (tmp_path / "my.py").write_text(text)
    with refuses(SettingsError, f"comparison.algorithm.{said}"):
        load_algorithms([f"{tmp_path}/{wanted}"])
