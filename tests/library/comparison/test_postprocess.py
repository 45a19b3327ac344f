"""Tensors that are multiplied by matrices before they are compared, as msprobe's file says."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from messages import outlines, refuses, says
from msgspec.structs import replace

import firstdrift
from firstdrift.comparison.postprocess import read_postprocess
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.dumps.storage.views import LEFT, RIGHT
from firstdrift.errors import SettingsError
from firstdrift.matching.tensors import shapes_differ
from firstdrift.model.tensor import DataLocation, ViewStep
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape, side_named
from firstdrift.wording.text import text_of

NAMES = ("a", "b", "c")


@pytest.fixture
def rotated(tmp_path: Path) -> Path:
    """Three nodes in a row; the target holds the second one rotated: b @ Q."""
    random = np.random.default_rng(3)
    rotation = np.linalg.qr(random.normal(size=(8, 8)))[0]
    for side in ("golden", "target"):
        (tmp_path / side).mkdir()
    for name in NAMES:
        values = random.normal(size=(2, 4, 8)).astype("f4")
        np.save(tmp_path / "golden" / f"{name}.npy", values)
        np.save(tmp_path / "target" / f"{name}.npy", values @ rotation if name == "b" else values)
    np.save(tmp_path / "back.npy", rotation.T)
    torch.save(torch.from_numpy(rotation), tmp_path / "there.pt")
    np.save(tmp_path / "unit.npy", np.eye(4))
    np.save(tmp_path / "narrow.npy", np.ones((8, 3)))
    np.save(tmp_path / "vector.npy", np.ones(8))
    return tmp_path


def compare(folder: Path, said: dict[str, object]) -> firstdrift.Report:
    file = folder / "matmul.yaml"
    file.write_text(json.dumps(said))
    return firstdrift.compare(folder / "golden", folder / "target", postprocess=read_postprocess(file))


def pair_of(report: firstdrift.Report, node: str) -> dict[str, object]:
    (row,) = [row for row in report.frame().to_dict("records") if row["target_node"] == node]
    return row


@pytest.mark.parametrize(
    ("said", "transform"),
    [
        (
            {"right_matmul": {"target_tensor_map": {"back.npy": ["b.npy"]}}},
            "from_right target back.npy",
        ),
        (
            {"right_matmul": {"golden_tensor_map": {"there.pt": ["b.output.0"]}, "target_tensor_map": None}},
            "from_right golden there.pt",
        ),
        (
            {
                "left_right_matmul": {
                    "left_target_tensor_map": {"unit.npy": ["b.npy"]},
                    "right_target_tensor_map": {"back.npy": ["b.npy"]},
                },
            },
            "from_left target unit.npy; from_right target back.npy",
        ),
    ],
)
def test_a_tensor_is_compared_as_the_file_says_and_the_pair_states_it(
    rotated: Path, said: dict[str, object], transform: str
) -> None:
    assert firstdrift.compare(rotated / "golden", rotated / "target").counts.error
    report = compare(rotated, said)
    row = pair_of(report, "b")
    assert report.counts.passed == len(NAMES)
    (pair,) = [pair for pair in report.slices[0].plan.pairs if pair.target_node == "b"]
    assert "; ".join(outlines(pair.transform)) == transform
    assert row["relative_l2"] < 1e-6
    assert pair_of(report, "a")["transform"] == ""


def test_both_sides_may_be_multiplied_to_another_shape(rotated: Path) -> None:
    np.save(rotated / "narrower.npy", np.load(rotated / "back.npy") @ np.load(rotated / "narrow.npy"))
    maps = {"golden_tensor_map": {"narrow.npy": ["b.npy"]}, "target_tensor_map": {"narrower.npy": ["b.npy"]}}
    row = pair_of(compare(rotated, {"right_matmul": maps}), "b")
    assert (row["golden_shape"], row["target_shape"]) == ("[2, 4, 3]", "[2, 4, 3]")
    assert row["verdict"] == "pass"


def test_what_does_not_fit_is_incomparable_and_says_the_shapes(rotated: Path) -> None:
    report = compare(rotated, {"left_matmul": {"target_tensor_map": {"back.npy": ["b.npy"]}}})
    shapes = shape((8, 8)), shape((2, 4, 8))
    why = Message.of("matching.postprocess.do_not_fit", side=side_named("target"), shapes=shapes)
    assert pair_of(report, "b")["reasons"] == text_of(why)
    report = compare(rotated, {"right_matmul": {"target_tensor_map": {"narrow.npy": ["b.npy"]}}})
    assert pair_of(report, "b")["reasons"] == text_of(shapes_differ((2, 4, 8), (2, 4, 3)))
    assert report.counts.incomparable == 1


def test_a_name_that_nothing_has_is_a_note(rotated: Path) -> None:
    report = compare(rotated, {"right_matmul": {"target_tensor_map": {"back.npy": ["b.npy", "d.npy"]}}})
    (note,) = report.notes()
    assert (note.id, note.arguments["names"]) == ("matching.postprocess.unused", ("d.npy",))


def test_recorded_statistics_cannot_be_multiplied(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.eye(64))
    file = tmp_path / "matmul.yaml"
    name = "root.model.norm.output.0"
    file.write_text(json.dumps({"right_matmul": {"golden_tensor_map": {"m.npy": [name]}}}))
    dump = unpacked("msit/llama4_stats1_golden")
    report = firstdrift.compare(dump, dump, postprocess=read_postprocess(file))
    found = [reason.id for _, _, reason in report.incomparable()]
    assert found == ["matching.postprocess.not_saved"] * 3


def test_files_of_msprobe_are_named_as_in_its_dump(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    dump = unpacked("msprobe/zoo_tensor_mix")
    name = "Functional.linear.0.forward.output.0.pt"
    size = torch.load(dump / "golden/step0/rank0/dump_tensor_data" / name).shape[-1]
    np.save(tmp_path / "twice.npy", 2 * np.eye(size))
    file = tmp_path / "matmul.yaml"
    file.write_text(f"right_matmul:\n  target_tensor_map:\n    '{tmp_path}/twice.npy':\n      - '{name}'\n")
    golden = dump / "golden"
    report = firstdrift.compare(golden, golden, postprocess=read_postprocess(file))
    rows = [
        row
        for row in report.frame().to_dict("records")
        if says(row["transform"], "matching.postprocess.from_right")
    ]
    assert [row["relative_l2"] for row in rows] == [1.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "file_no_mapping"),
        ("middle_matmul: {}", "no_section"),
        ("right_matmul: {tensor_map: {}}", "no_key"),
        ("right_matmul: {target_tensor_map: {back.npy: b.npy}}", "no_names"),
        ("right_matmul: {target_tensor_map: {gone.npy: [b.npy]}}", "matrix_unreadable"),
        ("right_matmul: {target_tensor_map: {vector.npy: [b.npy]}}", "no_matrix"),
        ("right_matmul: {target_tensor_map: {matmul.yaml: [b.npy]}}", "no_tensor_file"),
        (
            "right_matmul: {target_tensor_map: {back.npy: [b.npy], narrow.npy: [b.npy]}}",
            "two_matrices",
        ),
        ("right_matmul: [", "no_yaml_at"),
        ("2021-13-45: {}", "no_yaml"),
        ("right_matmul: &a {target_tensor_map: *a}", "aliases"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_the_place(rotated: Path, text: str, said: str) -> None:
    file = rotated / "matmul.yaml"
    file.write_text(text)
    with refuses(SettingsError, f"comparison.postprocess.{said}"):
        read_postprocess(file)


def test_a_file_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with refuses(SettingsError, "comparison.postprocess.unreadable"):
        read_postprocess(tmp_path / "gone.yaml")


def test_a_complex_matrix_makes_a_real_tensor_complex(tmp_path: Path) -> None:
    values, matrix = np.arange(4.0).reshape(2, 2), np.array([[1j, 2], [3, 4j]])
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "m.npy", matrix)
    tensor, factor = (DataLocation(tmp_path / f"{name}.npy", "npy") for name in "am")
    left, right = (ViewStep(side, other=(factor,)) for side in (LEFT, RIGHT))
    np.testing.assert_array_equal(load_tensor(replace(tensor, view=(left,))), matrix @ values)
    np.testing.assert_array_equal(load_tensor(replace(tensor, view=(right,))), values @ matrix)
    both = load_tensor(replace(tensor, view=(ViewStep(LEFT, other=(tensor,)), right)))
    np.testing.assert_array_equal(both, values @ values @ matrix)
