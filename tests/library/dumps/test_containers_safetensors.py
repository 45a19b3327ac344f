"""Safetensors files: every dtype is read, a header that lies is found out."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import refuses
from safetensors.torch import save

from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation

pytestmark = pytest.mark.usefixtures("each_way_of_reading")

DTYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]


def load(file: Path, entry: str) -> Any:  # noqa: ANN401
    return load_tensor(DataLocation(file, "safetensors", entry))


def written(folder: Path, data: bytes) -> Path:
    file = folder / "x.safetensors"
    file.write_bytes(data)
    return file


def with_header(folder: Path, header: object, values: bytes = bytes(8)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return written(folder, len(text).to_bytes(8, "little") + text + values)


def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = {str(dtype): torch.tensor([[0, 1], [2, 3]]).to(dtype) for dtype in DTYPES}
    file = written(tmp_path, save(tensors, metadata={"a": "b"}))
    headers = {header.entry: header for header in read_headers(file, "safetensors")}
    assert headers.keys() == tensors.keys()
    for name, tensor in tensors.items():
        array = load(file, name)
        assert array.dtype.name == headers[name].dtype == name.removeprefix("torch.")
        assert array.shape == headers[name].shape == (2, 2)
        assert array.tobytes() == tensor.view(torch.uint8).numpy().tobytes()
        assert not array.flags.writeable


def test_scalars_empty_tensors_and_large_files_are_read(tmp_path: Path) -> None:
    tensors = {"scalar": torch.tensor(2.5), "empty": torch.empty(2, 0), "large": torch.arange(70_000.0)}
    file = written(tmp_path, save(tensors))
    assert load(file, "scalar").shape == ()
    assert load(file, "empty").shape == (2, 0)
    assert load(file, "large")[69_999] == 69_999


PLACE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def test_a_tensor_that_lies_spoils_only_itself(tmp_path: Path) -> None:
    header = {
        "good": PLACE,
        "unknown dtype": PLACE | {"dtype": "F4"},
        "wrong size": PLACE | {"shape": [3]},
        "behind the end": PLACE | {"data_offsets": [4, 12]},
        "backwards": PLACE | {"data_offsets": [8, 0]},
    }
    file = with_header(tmp_path, header)
    problems = {header.entry: header.problem for header in read_headers(file, "safetensors")}
    assert problems.pop("good") is None
    assert all(problems.values())
    assert load(file, "good").tolist() == [0, 0]
    for name in problems:
        with pytest.raises(TensorUnreadableError):
            load(file, name)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"a": PLACE | {"shape": [-2]}}, id="negative shape"),
        pytest.param({"a": PLACE | {"shape": [2.0]}}, id="fractional shape"),
        pytest.param({"a": PLACE | {"shape": [True, 2]}}, id="boolean shape"),
        pytest.param({"a": PLACE | {"shape": [1] * 65}}, id="too many dimensions"),
        pytest.param({"a": {"dtype": "F32"}}, id="nothing but a dtype"),
        pytest.param({"a": 3}, id="no object"),
        pytest.param([1], id="no object at all"),
        pytest.param({"a" * 2000: PLACE}, id="endless name"),
        pytest.param(b'{"a": {}, "a": {}}', id="same name twice"),
        pytest.param(b"{" * 100_000, id="deep nesting"),
        pytest.param(b'{"a":' * 100_000, id="deep objects"),
        pytest.param(b"\xff{}", id="no text"),
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, header: object) -> None:
    with pytest.raises(TensorUnreadableError):
        read_headers(with_header(tmp_path, header), "safetensors")


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, (2**60).to_bytes(8, "little") + b"{}")
    with refuses(TensorUnreadableError, "dumps.safetensors.not_one"):
        read_headers(file, "safetensors")


def test_half_of_a_surrogate_pair_in_a_name_becomes_text_that_can_be_stored(tmp_path: Path) -> None:
    file = with_header(tmp_path, b'{"\\ud800": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}')
    (header,) = read_headers(file, "safetensors")
    assert header.entry == "\\ud800"
    assert load(file, header.entry).shape == (2,)


SEED = save({"a": torch.ones(2, 3), "b": torch.zeros(4).bfloat16()})


def test_a_file_cut_at_any_length_loses_no_more_than_what_is_cut(tmp_path: Path) -> None:
    for length in range(len(SEED)):
        file = written(tmp_path, SEED[:length])
        with suppress(TensorUnreadableError):
            assert any(header.problem for header in read_headers(file, "safetensors"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=8)
)
def test_a_damaged_file_gives_values_or_the_one_error(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(SEED)
    for at, value in changes:
        data[at] = value
    file = written(tmp_path, bytes(data))
    with suppress(TensorUnreadableError):
        for header in read_headers(file, "safetensors"):
            assert load(file, header.entry).shape == header.shape
