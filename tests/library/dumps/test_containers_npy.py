"""Files of numpy.save: every number type is read, objects are refused."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import refuses

from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation

pytestmark = pytest.mark.usefixtures("each_way_of_reading")

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def saved(folder: Path, array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> Path:
    file = folder / "saved.npy"
    with file.open("wb") as opened:
        np.lib.format.write_array(opened, array, version)
    return file


def load(file: Path, entry: str = "") -> np.ndarray[Any, Any]:
    return load_tensor(DataLocation(file, "npy", entry))


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_numpy_comes_back_in_native_order(tmp_path: Path, dtype: str, byteorder: str) -> None:
    array = np.array([[0, 1, 2], [3, 1, 0]]).astype(byteorder + dtype)
    file = saved(tmp_path, array)
    loaded = load(file)
    assert loaded.dtype == np.dtype(dtype)
    assert np.array_equal(loaded, array)
    assert not loaded.flags.writeable
    (header,) = read_headers(file, "npy")
    assert (header.entry, header.dtype, header.shape) == ("", np.dtype(dtype).name, (2, 3))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_the_ml_dtypes_that_numpy_leaves_a_trace_of_are_read(tmp_path: Path, dtype: type) -> None:
    array = np.array([0.5, -2.0, np.inf], dtype)
    loaded = load(saved(tmp_path, array))
    assert loaded.dtype == array.dtype
    assert loaded.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.array(2.5), id="scalar"),
        pytest.param(np.empty((2, 0, 3), "f4"), id="empty"),
        pytest.param(np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), id="fortran order"),
        pytest.param(np.arange(24.0).reshape(2, 3, 4)[:, ::2], id="view"),
        pytest.param(np.arange(70_000.0), id="large"),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_layout_and_version_comes_back(
    tmp_path: Path, array: np.ndarray[Any, Any], version: tuple[int, int]
) -> None:
    loaded = load(saved(tmp_path, array, version))
    assert loaded.shape == array.shape
    assert np.array_equal(loaded, array)
    assert not loaded.flags.writeable


def with_header(folder: Path, header: str, values: bytes = bytes(64)) -> Path:
    file = folder / "made.npy"
    text = header.encode()
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + values)
    return file


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "dumps.npy.unknown_dtype"),
        ("{'descr': '<U8', 'fortran_order': False, 'shape': (1,)}", "dumps.npy.unknown_dtype"),
        ("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", "dumps.npy.unknown_dtype"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "dumps.npy.structured"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (10**12,)}", "dumps.npy.header_damaged"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
            "dumps.file.values_cut_short",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}",
            "dumps.npy.impossible_shape",
        ),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "dumps.npy.header_damaged"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}", "dumps.npy.header_damaged"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': 3}", "dumps.npy.header_damaged"),
        ("{'descr': '<f4', 'fortran_order': False}", "dumps.npy.header_damaged"),
        ("[1, 2]", "dumps.npy.header_damaged"),
        ("__import__('os')", "dumps.npy.header_damaged"),
        ("(" * 5000, "dumps.npy.header_damaged"),
    ],
)  # fmt: skip
def test_a_header_that_no_tensor_has_says_why(tmp_path: Path, header: str, reason: str) -> None:
    file = with_header(tmp_path, header)
    with refuses(TensorUnreadableError, reason) as refused:
        load(file)
    assert refused.value.path == file


def test_an_array_of_objects_runs_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Canary:
        def __reduce__(self) -> tuple[object, ...]:
            return (open, (str(canary), "w"))

    file = tmp_path / "x.npy"
    np.save(file, np.array([Canary()], dtype=object), allow_pickle=True)
    with refuses(TensorUnreadableError, "dumps.npy.unknown_dtype"):
        load(file)
    assert not canary.exists()


def test_a_name_inside_the_file_is_refused(tmp_path: Path) -> None:
    with refuses(TensorUnreadableError, "dumps.npy.has_no_names"):
        load(saved(tmp_path, np.ones(2)), "a")


def seed_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6, dtype="<f4").reshape(2, 3))
    return buffer.getvalue()


SEED = seed_file()


def test_a_file_cut_at_any_length_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cut.npy"
    for length in range(len(SEED)):
        file.write_bytes(SEED[:length])
        with pytest.raises(TensorUnreadableError):
            read_headers(file, "npy")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=8)
)
def test_a_damaged_file_gives_values_or_the_one_error(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(SEED)
    for at, value in changes:
        data[at] = value
    file = tmp_path / "damaged.npy"
    file.write_bytes(data)
    with suppress(TensorUnreadableError):
        (header,) = read_headers(file, "npy")
        assert load(file).shape == header.shape
