"""Results of Polygraphy, as it saved them and as it would save others."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from messages import ids_of, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError, TensorUnreadableError
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_slice

Unpacked = Callable[[str], Path]


def encoded(value: np.ndarray | torch.Tensor) -> dict[str, Any]:
    """Return what Polygraphy writes of an output."""
    file = io.BytesIO()
    if isinstance(value, torch.Tensor):
        torch.save(value, file)
    else:
        np.save(file, value, allow_pickle=False)
    text = base64.b64encode(file.getvalue()).decode()
    is_torch = isinstance(value, torch.Tensor)
    inner = {"tensor" if is_torch else "array": text, "polygraphy_class": "Tensor" if is_torch else "ndarray"}
    return {"values": inner, "polygraphy_class": "LazyArray"}


def iteration(outputs: dict[str, Any]) -> dict[str, Any]:
    written = {name: value if isinstance(value, dict) else encoded(value) for name, value in outputs.items()}
    return {"outputs": written, "runtime": 0.1, "runner_name": "r", "polygraphy_class": "IterationResult"}


def save(file: Path, *iterations: dict[str, Any], more: tuple[str, ...] = ()) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    each = [iteration(outputs) for outputs in iterations]
    runs = [[runner, each] for runner in ("onnxrt", *more)]
    file.write_text(json.dumps({"lst": runs, "polygraphy_class": "RunResults"}, indent=4))
    return file


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "polygraphy"
    return read_slice(dump, dump.slices[at])


def records(slice_: Slice) -> list[TensorRecord]:
    return [record for node in slice_.nodes for record in node.tensors]


def test_a_fault_is_found_at_the_output_where_it_was_planted(unpacked: Unpacked) -> None:
    folder = unpacked("engines/polygraphy")
    dump = open_dump(folder / "golden.json")
    assert [message.id for message in dump.evidence] == ["dumps.polygraphy.results"]
    assert dump.attributes["runner"].startswith("onnxrt-runner")
    report = compare(folder / "golden.json", folder / "target.json")
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.1.down_proj.MatMul"
    assert compare(folder / "golden.json", folder / "golden.json").counts.error == 0


def test_paths_of_onnx_are_modules_and_end_in_the_operator(unpacked: Unpacked) -> None:
    nodes = {node.name: node for node in read(unpacked("engines/polygraphy") / "golden.json").nodes}
    product = nodes["model.layers.1.up_proj.MatMul"]
    assert (product.type_name, product.parent) == ("MatMul", "model.layers.1.up_proj")
    assert [record.label for record in product.tensors] == ["output.0"]
    assert [record.shape for record in nodes["logits"].tensors] == [(2, 8)]


def test_iterations_are_steps(tmp_path: Path) -> None:
    ones = np.ones((2, 3), np.float32)
    dump = open_dump(save(tmp_path / "a.json", {"x": ones}, {"x": ones * 2}))
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(0), Coordinates(1)]
    (second,) = records(read_slice(dump, dump.slices[1]))
    assert second.location is not None
    assert load_tensor(second.location).tolist() == (ones * 2).tolist()


def test_a_folder_of_iterations_is_one_dump(tmp_path: Path) -> None:
    for step in range(3):
        save(tmp_path / "out" / f"{step:010}.json", {"x": np.full(2, step, np.float32)})
    dump = open_dump(tmp_path / "out")
    assert [listing.coordinates.step for listing in dump.slices] == [0, 1, 2]
    (last,) = records(read_slice(dump, dump.slices[2]))
    assert last.location is not None
    assert load_tensor(last.location).tolist() == [2, 2]
    save(tmp_path / "out" / "other.json", {"x": np.ones(2)})
    with refuses(DumpNotRecognisedError, "dumps.several"):
        open_dump(tmp_path / "out")


def test_tensors_of_torch_are_read_without_running_their_pickles(tmp_path: Path) -> None:
    (record,) = records(read(save(tmp_path / "a.json", {"y": torch.ones(3, dtype=torch.bfloat16)})))
    assert (record.dtype, record.shape) == ("bfloat16", (3,))
    assert record.location is not None
    assert load_tensor(record.location).astype(float).tolist() == [1, 1, 1]


def test_only_one_runner_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    dump = open_dump(save(tmp_path / "a.json", {"x": np.ones(2)}, more=("trt",)))
    assert [
        problem.reason for problem in dump.problems if problem.reason.id == "dumps.polygraphy.other_runners"
    ]
    assert len(dump.slices) == 1


def test_results_of_before_are_read(tmp_path: Path) -> None:
    legacy = "polygraphy_serialized_json_type"
    array = encoded(np.ones(2))["values"]["array"]
    outputs = {"x": {"array": array, "__polygraphy_encoded_ndarray": legacy}}
    value = {"lst": [["r", [{"outputs": outputs}]]], "__polygraphy_encoded_RunResults": legacy}
    (tmp_path / "a.json").write_text(json.dumps(value))
    (record,) = records(read(tmp_path / "a.json"))
    assert (record.dtype, record.shape) == ("float64", (2,))


OBJECTS = b"\x93NUMPY\x01\x00\x40\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(74)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"values": 3}, "dumps.polygraphy.no_array"),
        ({"values": {"array": "AAA"}}, "dumps.base64_json.no_base64"),
        ({"values": {"array": "AAAA"}}, "dumps.npy.not_one"),
        ({"values": {"array": "array:0:99"}}, "dumps.base64_json.no_base64"),
        ({"values": {"array": "array:0:999999999"}}, "dumps.file.values_past_end"),
        ({"values": {"tensor": "AAAA"}}, "dumps.pt.not_one"),
        ({"values": {"array": base64.b64encode(OBJECTS).decode()}}, "dumps.npy.unknown_dtype"),
    ],
)
def test_what_is_damaged_spoils_its_own_output_only(tmp_path: Path, value: object, problem: str) -> None:
    bad, good = records(read(save(tmp_path / "a.json", {"bad": value, "good": np.ones(2)})))
    assert good.problem is None
    assert bad.problem is not None
    assert problem in ids_of(bad.problem)


def test_an_array_that_is_cut_short_is_said_to_be(tmp_path: Path) -> None:
    value = encoded(np.ones(100))
    value["values"]["array"] = value["values"]["array"][:400]
    (record,) = records(read(save(tmp_path / "a.json", {"x": value})))
    assert "dumps.file.values_cut_short" in ids_of(record.problem)


@pytest.mark.parametrize("length", [700, 1500, -3])
def test_a_file_that_is_cut_short_is_refused_by_name(unpacked: Unpacked, tmp_path: Path, length: int) -> None:
    whole = (unpacked("engines/polygraphy") / "golden.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(whole[:length])
    with pytest.raises(DumpUnreadableError) as caught:
        open_dump(tmp_path / "cut.json")
    assert caught.value.path == tmp_path / "cut.json"


@pytest.mark.parametrize("text", ["", "[]", '{"lst": 3}', '{"data": {}}', '{"lst": [["a", "RunResults"]]}'])
def test_other_json_is_no_dump(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert recognise(tmp_path / "a.json") is None


def test_a_file_that_has_changed_gives_no_other_values(tmp_path: Path) -> None:
    file = save(tmp_path / "a.json", {"x": np.ones(2)})
    (record,) = records(read(file))
    file.write_text("{}")
    assert record.location is not None
    with pytest.raises(TensorUnreadableError):
        load_tensor(record.location)


outputs = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    some.arrays(
        st.sampled_from(["f2", "f4", "f8", "i4", "i8", "?", "c8"]), some.array_shapes(max_dims=3, max_side=4)
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(outputs)
def test_what_was_saved_is_read_again(saved: dict[str, np.ndarray]) -> None:
    with TemporaryDirectory() as folder:
        found = records(read(save(Path(folder) / "a.json", saved)))
        assert len(found) == len(saved)
        wanted = sorted((str(value.dtype), value.shape, value.tobytes()) for value in saved.values())
        loaded = [load_tensor(record.location) for record in found if record.location is not None]
        assert sorted((str(value.dtype), value.shape, value.tobytes()) for value in loaded) == wanted
