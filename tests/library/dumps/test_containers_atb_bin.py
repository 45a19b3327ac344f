"""ATB's `.bin` files: every dtype is read, and a file without values says what it is instead."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library.dumps.atb_samples import container, description
from messages import ids_of, refuses

from firstdrift.dumps.containers.atb_bin import Description, describe
from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation, Statistics
from firstdrift.wording.message import Message

pytestmark = pytest.mark.usefixtures("each_way_of_reading")

CODES = {
    0: "float32",
    1: "float16",
    2: "int8",
    3: "int32",
    4: "uint8",
    6: "int16",
    7: "uint16",
    8: "uint32",
    9: "int64",
    10: "uint64",
    11: "float64",
    12: "bool",
    16: "complex64",
    17: "complex128",
    27: "bfloat16",
    35: "float8_e5m2",
    36: "float8_e4m3fn",
    37: "float8_e8m0fnu",
}


def written(folder: Path, data: bytes) -> Path:
    file = folder / "outtensor0.bin"
    file.write_bytes(data)
    return file


def load(file: Path) -> Any:  # noqa: ANN401
    return load_tensor(DataLocation(file, "bin"))


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, code: int, name: str) -> None:
    numbers = np.array([[0, 1], [2, 3], [1, 0]])
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    values = numbers.astype(dtype)
    file = written(tmp_path, container(code, "3,2", values.tobytes()))
    (header,) = read_headers(file, "bin")
    assert (header.dtype, header.shape, header.problem) == (name, (3, 2), None)
    array = load(file)
    assert array.dtype == dtype
    assert array.tobytes() == values.tobytes()
    assert array.flags.aligned
    assert not array.flags.writeable


def test_int4_is_unpacked_low_half_first_and_an_odd_count_leaves_half_a_byte(tmp_path: Path) -> None:
    file = written(tmp_path, container(29, "5", bytes([0x21, 0x87, 0x0F])))
    array = load(file)
    assert array.dtype == ml_dtypes.int4
    assert array.astype(int).tolist() == [1, 2, 7, -8, -1]
    assert read_headers(file, "bin")[0].dtype == "int4"


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        (13, "string"),
        (30, "uint1"),
        (33, "complex32"),
        (34, "hifloat8"),
        (40, "float4_e2m1"),
        (99, "code 99"),
    ],
)
def test_a_dtype_that_cannot_be_read_is_named_and_its_shape_is_known(
    tmp_path: Path, code: int, dtype: str
) -> None:
    file = written(tmp_path, container(code, "4", bytes(4)))
    (header,) = read_headers(file, "bin")
    assert (header.dtype, header.shape) == (dtype, (4,))
    assert header.problem == Message.of("dumps.file.unreadable_dtype", dtype=dtype)
    with refuses(TensorUnreadableError, "dumps.file.unreadable_dtype", dtype=dtype):
        load(file)


def test_scalars_empty_tensors_and_large_files_are_read(tmp_path: Path) -> None:
    assert load(written(tmp_path, container(0, "", bytes(4)))).shape == ()
    assert load(written(tmp_path, container(0, "2,0", b""))).shape == (2, 0)
    large = np.arange(70_000, dtype="f4")
    assert load(written(tmp_path, container(0, "70000", large.tobytes())))[69_999] == 69_999


@pytest.mark.parametrize(
    ("code", "name"),
    [(29, "FRACTAL_NZ"), (3, "NC1HWC0"), (77, Message.of("dumps.atb_bin.unknown_blocks", code=77))],
)
def test_values_in_blocks_can_be_loaded_and_are_said_to_be_so(tmp_path: Path, code: int, name: str) -> None:
    file = written(tmp_path, container(1, "2,3", bytes(12), format=str(code)))
    (header,) = read_headers(file, "bin")
    assert ids_of(header.problem)[0] == "dumps.file.values_in_blocks"
    assert header.problem is not None
    assert header.problem.arguments["blocks"] == name
    assert load(file).shape == (2, 3)


class TestFilesWithoutValues:
    def test_an_alias_names_the_file_that_holds_the_values(self, tmp_path: Path) -> None:
        data = description(data="10_0_0_1_outtensor0.bin")
        said = describe(data)
        assert (said.alias, said.dtype, said.shape) == ("10_0_0_1_outtensor0.bin", "bfloat16", (6, 32))
        with refuses(TensorUnreadableError, "dumps.atb_bin.values_elsewhere"):
            load(written(tmp_path, data))

    def test_a_description_alone_tells_dtype_and_shape(self, tmp_path: Path) -> None:
        (header,) = read_headers(written(tmp_path, description()), "bin")
        assert (header.dtype, header.shape) == ("bfloat16", (6, 32))
        assert ids_of(header.problem) == ("dumps.atb_bin.description_only",)

    def test_statistics_stand_for_the_values(self) -> None:
        text = b"format=2\ntype=27\ndims=1,32\nmax=3.5\nmin=-inf\nmean=nan\nl2norm=17.25\n$End=1"
        said = describe(text)
        assert (said.dtype, said.shape, said.has_values) == ("bfloat16", (1, 32), False)
        assert said.statistics is not None
        assert (said.statistics.maximum, said.statistics.norm) == (3.5, 17.25)
        assert said.statistics.minimum == -np.inf
        assert said.statistics.mean is not None
        assert np.isnan(said.statistics.mean)

    def test_statistics_may_be_incomplete(self) -> None:
        said = describe(b"dtype=0\ndims=4\nmax=1\n$End=1\n")
        assert said.statistics == Statistics(maximum=1.0)


FIRST = container(0, "2", np.array([1, 2], "f4").tobytes())
SECOND = container(0, "3", np.array([3, 4, 5], "f4").tobytes())


class TestAppendedTensors:
    def test_the_last_one_counts_and_the_file_is_said_to_hold_two(self, tmp_path: Path) -> None:
        assert load(written(tmp_path, FIRST + SECOND)).tolist() == [3, 4, 5]
        assert describe(FIRST + SECOND).note == Message.of("dumps.atb_bin.last_of_several", tensors=2)

    @pytest.mark.parametrize("cut", [1, len(SECOND) - 5])
    def test_one_that_is_cut_short_leaves_the_one_before(self, tmp_path: Path, cut: int) -> None:
        data = (FIRST + SECOND)[:-cut]
        assert load(written(tmp_path, data)).tolist() == [1, 2]
        assert describe(data).note

    def test_bytes_that_belong_to_nothing_are_mentioned(self, tmp_path: Path) -> None:
        assert load(written(tmp_path, FIRST + b"rest")).tolist() == [1, 2]
        assert describe(FIRST + b"rest").note == Message.of("dumps.atb_bin.more_bytes", bytes=4)

    def test_a_file_of_endless_headers_is_refused(self, tmp_path: Path) -> None:
        with refuses(TensorUnreadableError, "dumps.atb_bin.too_many_tensors", most=64):
            load(written(tmp_path, FIRST * 100))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "dumps.file.empty"),
        (b"PK\x03\x04", "dumps.atb_bin.not_one"),
        (b"$Version=1.0\n$Object.Count=1\n", "dumps.atb_bin.not_one"),
        (container(0, "2", bytes(8), object_Count="many"), "dumps.atb_bin.header_damaged"),
        (container(0, "2", bytes(8)).replace(b"format=2", b"format"), "dumps.atb_bin.header_damaged"),
        (container(0, "2", bytes(8)).replace(b"dtype=0\n", b""), "dumps.atb_bin.no_dtype"),
        (container(0, "2", bytes(8)).replace(b"dims=2\n", b""), "dumps.atb_bin.no_dtype"),
        (container(0, "-2", bytes(8)), "dumps.file.impossible_numbers"),
        (container(0, "2.5", bytes(8)), "dumps.file.impossible_numbers"),
        (container(0, "9" * 400, bytes(8)), "dumps.file.impossible_numbers"),
        (container(0, ",".join(["1"] * 65), bytes(4)), "dumps.file.impossible_numbers"),
        (container(0, "3", bytes(8)), "dumps.file.sizes_differ"),
        (container(0, "2", bytes(8))[:-1], "dumps.file.values_cut_short"),
        (container(0, "2", bytes(8), object_data="0,99999999999"), "dumps.file.values_cut_short"),
        (container(0, "2", bytes(8), object_data="0"), "dumps.file.impossible_numbers"),
        (b"dtype=0\ndims=4\nmax=high\n$End=1\n", "dumps.atb_bin.bad_statistics"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, data: bytes, reason: str) -> None:
    with refuses(TensorUnreadableError, reason):
        load(written(tmp_path, data))


def test_a_file_cut_at_any_length_gives_no_values(tmp_path: Path) -> None:
    for length in range(len(SECOND)):
        with pytest.raises(TensorUnreadableError):
            load(written(tmp_path, SECOND[:length]))


SEEDS = [FIRST, SECOND + FIRST, description(data="1_outtensor0.bin"), container(29, "3", bytes(2))]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), max_size=6),
)
def test_a_damaged_file_gives_values_or_the_one_error(
    tmp_path: Path, seed: bytes, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(seed)
    for at, value in changes:
        start = at % len(data)
        data[start : start + len(value)] = value
    file = written(tmp_path, bytes(data))
    with suppress(TensorUnreadableError):
        (header,) = read_headers(file, "bin")
        assert load(file).shape == header.shape


@given(st.binary(max_size=300))
def test_any_bytes_are_described_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(describe(data), Description)
