"""Values that msprobe saved at single points of a program."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpUnreadableError, FirstdriftError
from firstdrift.model.node import Direction
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice, read_stacks
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "msprobe-debug"
    return read_slice(dump, dump.slices[at])


def write(folder: Path, data: object, **header: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"task": "tensor", "level": "debug", "framework": "pytorch", **header, "data": data}
    (folder / "debug.json").write_text(json.dumps(whole))
    return folder


@pytest.mark.parametrize("archive", ["debug_stat", "debug_tensor"])
def test_each_value_is_a_node_and_gradients_come_last(unpacked: Unpacked, archive: str) -> None:
    path = unpacked(f"msprobe/{archive}") / "golden"
    dump = open_dump(path)
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(step=0), Coordinates(step=1)]
    assert dump.attributes["level"] == "debug"
    slice_ = read(path)
    assert [(node.name, node.path, node.call, node.direction) for node in slice_.nodes] == [
        ("emb.0.debug", "emb", 0, Direction.NONE),
        ("outs.0.debug", "outs", 0, Direction.NONE),
        ("logits.0.debug", "logits", 0, Direction.NONE),
        ("logits.1.debug", "logits", 1, Direction.NONE),
        ("scalar.0.debug", "scalar", 0, Direction.NONE),
        ("str.0.debug", "str", 0, Direction.NONE),
        ("nested.0.debug", "nested", 0, Direction.NONE),
        ("logits_grad.0.debug", "logits", 0, Direction.BACKWARD),
        ("outs_grad.0.debug", "outs", 0, Direction.BACKWARD),
        ("emb_grad.0.debug", "emb", 0, Direction.BACKWARD),
    ]
    labels = {node.name: [record.label for record in node.tensors] for node in slice_.nodes}
    assert labels["emb.0.debug"] == ["output.0"]
    assert labels["emb_grad.0.debug"] == ["gradient.0"]
    assert labels["outs.0.debug"][:4] == ["output.hs.0", "output.hs.1", "output.hs.2", "output.loss"]
    assert labels["nested.0.debug"] == ["output.0", "output.1", "output.2.0", "output.2.1.k"]
    assert not slice_.problems
    assert not read_stacks(dump, dump.slices[0])


def test_saved_values_are_found(unpacked: Unpacked) -> None:
    found = [
        record
        for node in read(unpacked("msprobe/debug_tensor") / "golden").nodes
        for record in node.tensors
        if record.is_tensor
    ]
    assert len(found) == 15
    for record in found:
        assert record.location is not None
        assert load_tensor(record.location).shape == record.shape


@pytest.mark.parametrize("archive", ["debug_stat", "debug_tensor"])
def test_the_first_value_that_differs_is_named(unpacked: Unpacked, archive: str) -> None:
    """The planted fault lies before the last hidden state; what was saved before it is the same."""
    dumps = unpacked(f"msprobe/{archive}")
    report = compare(dumps / "golden", dumps / "target")
    bad = report.findings.first_bad_node
    assert bad is not None
    assert (bad.coordinates.step, bad.golden, bad.tensor) == (0, "outs.0.debug", "output.hs.2")
    assert compare(dumps / "golden", dumps / "golden").counts.error == 0


@pytest.mark.parametrize("below", ["", "step1", "step1/proc21127", "step1/proc21127/debug.json"])
def test_any_level_may_be_named(unpacked: Unpacked, below: str) -> None:
    slice_ = read(unpacked("msprobe/debug_stat") / "golden" / below, -1)
    assert slice_.coordinates.step in (1, None)
    assert len(slice_.nodes) == 10


def test_a_value_called_grad_is_a_value_where_nothing_else_has_its_name(tmp_path: Path) -> None:
    leaf = {"type": "float", "value": 1.5}
    (node,) = read(write(tmp_path, {"clip_grad.0.debug": leaf})).nodes
    assert (node.path, node.direction) == ("clip_grad", Direction.NONE)
    assert [record.scalar for record in node.tensors] == ["1.5"]


def test_files_that_are_missing_spoil_their_tensor_alone(unpacked: Unpacked, tmp_path: Path) -> None:
    dumps = unpacked("msprobe/debug_tensor")
    copy = shutil.copytree(dumps / "golden", tmp_path / "copy")
    (copy / "step0/proc21127/dump_tensor_data/emb.0.debug.pt").unlink(missing_ok=True)
    for file in copy.glob("step0/*/dump_tensor_data/emb.0.debug.pt"):
        file.unlink()
    problems = [record.problem for node in read(copy).nodes for record in node.tensors if record.problem]
    assert problems == [Message.of("dumps.record.file_missing", file="dump_tensor_data/emb.0.debug.pt")]
    report = compare(dumps / "golden", copy)
    assert (report.counts.incomparable, report.counts.error) == (1, 0)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"data": 3}', '{"data": {"a": '])
def test_a_damaged_file_is_a_named_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "debug.json").write_text(text)
    with pytest.raises(DumpUnreadableError) as refused:
        read(tmp_path)
    assert refused.value.path == tmp_path / "debug.json"


def test_a_dump_in_which_nothing_was_saved_says_so(tmp_path: Path) -> None:
    slice_ = read(write(tmp_path, {}))
    assert not slice_.nodes
    assert [problem.reason for problem in slice_.problems] == [Message.of("dumps.msprobe.nothing_saved")]


leaves = st.sampled_from(
    [
        {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1, "data_name": "a.pt"},
        {"type": "int", "value": 3},
        {"type": 3},
        {},
    ]
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.dictionaries(st.text(max_size=12) | st.sampled_from(["a.0.debug", "a_grad.0.debug"]), json_values)
)
def test_whatever_was_saved_is_read_or_refused_with_a_reason(tmp_path: Path, data: dict[str, Any]) -> None:
    with suppress(FirstdriftError):
        assert len(read(write(tmp_path, data)).nodes) == len(data)
