"""Files of the graph engine: every dtype is read, blocks are put in order, and damage has a name."""

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library.dumps.torchair_samples import CODES, data, floats, ge_file, number, shape, tensor, varint, write
from messages import refuses

from firstdrift.dumps.containers.contents import DamagedError
from firstdrift.dumps.containers.ge_dump import DTYPE_BY_CODE, describe
from firstdrift.dumps.containers.protobuf import fields
from firstdrift.dumps.storage.tensor_data import load_tensor, read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message

pytestmark = pytest.mark.usefixtures("each_way_of_reading")


def load(file: Path, entry: str) -> Any:  # noqa: ANN401
    return load_tensor(DataLocation(file, "ge", entry))


@pytest.mark.parametrize("name", CODES)
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    values = np.array([[0, 1], [2, 3], [1, 0]]).astype(dtype)
    file = write(tmp_path / "f", ge_file([values], [values[:2]]))
    first, second = read_headers(file, "ge")
    assert (first.entry, first.dtype, first.shape, first.problem) == ("input.0", name, (3, 2), None)
    assert (second.entry, second.dtype, second.shape, second.problem) == ("output.0", name, (2, 2), None)
    array = load(file, "output.0")
    assert array.dtype == dtype
    assert array.tobytes() == values[:2].tobytes()
    assert array.flags.aligned
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("code", "name"), [(18, "int8"), (19, "int16"), (20, "int32"), (21, "uint8"), (22, "uint16")]
)
def test_quantised_integers_are_read_as_the_integers_they_are(tmp_path: Path, code: int, name: str) -> None:
    values = np.array([1, 2, 3], name)
    file = write(tmp_path / "f", ge_file([values], messages=([tensor(values, code=code)], [])))
    assert load(file, "input.0").tolist() == [1, 2, 3]
    assert read_headers(file, "ge")[0].dtype == name


def test_int4_is_unpacked_low_half_first(tmp_path: Path) -> None:
    packed, dims = np.array([0x21, 0x87, 0x0F], np.uint8), np.empty(5, np.uint8)
    file = write(tmp_path / "f", ge_file([packed], messages=([tensor(dims, code=28, size=3)], [])))
    array = load(file, "input.0")
    assert array.dtype == ml_dtypes.int4
    assert array.astype(int).tolist() == [1, 2, 7, -8, -1]


UNREAD = {code: name for code, name in DTYPE_BY_CODE.items() if name not in {*CODES, "int4"}}


@pytest.mark.parametrize(("code", "dtype"), [(0, "undefined"), (99, "code 99"), *UNREAD.items()])
def test_a_dtype_that_cannot_be_read_is_named_and_its_shape_is_known(
    tmp_path: Path, code: int, dtype: str
) -> None:
    values = np.zeros((2, 2), np.uint8)
    file = write(tmp_path / "f", ge_file([values], messages=([tensor(values, code=code)], [])))
    (header,) = read_headers(file, "ge")
    assert (header.dtype, header.shape) == (dtype, (2, 2))
    assert header.problem == Message.of("dumps.file.unreadable_dtype", dtype=dtype)
    with refuses(TensorUnreadableError, "dumps.file.unreadable_dtype", dtype=dtype):
        load(file, "input.0")


def test_every_code_of_the_schema_is_known() -> None:
    assert set(DTYPE_BY_CODE) == set(range(1, 41))


def test_a_dtype_that_cannot_be_read_spoils_its_own_tensor_only(tmp_path: Path) -> None:
    odd, values = np.zeros(5, np.uint8), floats(3)
    messages = ([tensor(odd, code=13), tensor(values)], [tensor(values, output=True)])
    file = write(tmp_path / "f", ge_file([odd, values], [values], messages=messages))
    assert [header.problem is None for header in read_headers(file, "ge")] == [False, True, True]
    assert load(file, "input.1").tolist() == load(file, "output.0").tolist() == values.tolist()


def test_scalars_empty_tensors_padded_sizes_and_large_files_are_read(tmp_path: Path) -> None:
    scalar, empty, padded = (
        np.array(2.5, np.float32),
        np.empty((2, 0), np.float32),
        floats(3, dtype="float32"),
    )
    large = np.arange(70_000, dtype=np.float32)
    room = np.zeros(8, np.float32)
    room[:3] = padded
    messages = (
        [tensor(scalar), tensor(empty), tensor(padded, size=32), tensor(large, packed=False)],
        [tensor(large, output=True)],
    )
    file = write(tmp_path / "f", ge_file([scalar, empty, room, large], [large], messages=messages))
    assert load(file, "input.0").shape == ()
    assert load(file, "input.1").shape == (2, 0)
    assert load(file, "input.2").tolist() == padded.tolist()
    assert load(file, "input.3")[69_999] == load(file, "output.0")[69_999] == 69_999


def test_values_may_lie_in_the_header(tmp_path: Path) -> None:
    values = floats(4)
    messages = ([tensor(values, inline=values.tobytes(), size=0)], [tensor(values, output=True)])
    file = write(tmp_path / "f", ge_file([], [values], messages=messages))
    assert load(file, "input.0").tolist() == load(file, "output.0").tolist() == values.tolist()


def in_blocks(matrix: Any, block: int = 16) -> Any:  # noqa: ANN401
    """Lay the last two dims out as the matrix unit does."""
    rows, columns = matrix.shape[-2:]
    pad = [(0, 0)] * (matrix.ndim - 2) + [(0, -rows % block), (0, -columns % block)]
    padded = np.pad(matrix, pad)
    split = padded.reshape(
        *matrix.shape[:-2], padded.shape[-2] // block, block, padded.shape[-1] // block, block
    )
    return np.ascontiguousarray(np.moveaxis(split, -2, -4))


@pytest.mark.parametrize("dims", [(16, 32), (5, 40), (2, 3, 17, 16)])
def test_fractal_nz_is_put_in_the_order_of_its_dims(tmp_path: Path, dims: tuple[int, ...]) -> None:
    values = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    stored = in_blocks(values)
    file = write(tmp_path / "f", ge_file([stored], messages=([tensor(stored, layout=29, meant=dims)], [])))
    (header,) = read_headers(file, "ge")
    assert (header.shape, header.problem) == (dims, None)
    assert (load(file, "input.0") == values).all()


def test_images_and_filters_in_blocks_are_put_in_order(tmp_path: Path) -> None:
    image = np.arange(2 * 20 * 3 * 4, dtype=np.float32).reshape(2, 20, 3, 4)
    channels = np.pad(image, [(0, 0), (0, 12), (0, 0), (0, 0)]).reshape(2, 2, 16, 3, 4)
    stored = np.ascontiguousarray(channels.transpose(0, 1, 3, 4, 2))
    filters = np.arange(18 * 20 * 3 * 3, dtype=np.float32).reshape(18, 20, 3, 3)
    padded = np.pad(filters, [(0, 14), (0, 12), (0, 0), (0, 0)]).reshape(2, 16, 2, 16, 3, 3)
    fractal = np.ascontiguousarray(padded.transpose(2, 4, 5, 0, 1, 3)).reshape(2 * 9, 2, 16, 16)
    messages = (
        [tensor(stored, layout=3, meant=image.shape), tensor(fractal, layout=4, meant=filters.shape)],
        [],
    )
    file = write(tmp_path / "f", ge_file([stored, fractal], messages=messages))
    assert (load(file, "input.0") == image).all()
    assert (load(file, "input.1") == filters).all()


@pytest.mark.parametrize(("layout", "name"), [(29, "FRACTAL_NZ"), (33, "FRACTAL_Z_3D"), (77, "code 77")])
def test_blocks_that_cannot_be_put_in_order_are_said_to_be_so(tmp_path: Path, layout: int, name: str) -> None:
    stored = np.zeros((1, 1, 16, 16), np.float32)
    message = tensor(stored, layout=layout, meant=(40, 16))
    file = write(tmp_path / "f", ge_file([stored], messages=([message], [])))
    assert read_headers(file, "ge")[0].problem == Message.of("dumps.file.values_in_blocks", blocks=name)


def test_of_a_file_that_was_cut_the_tensors_before_the_cut_are_read(tmp_path: Path) -> None:
    values = floats(8)
    whole = ge_file([values, values], [values])
    file = write(tmp_path / "f", whole[:-20])
    problems = [header.problem for header in read_headers(file, "ge")]
    assert problems[0] is None
    assert load(file, "input.0").tolist() == values.tolist()
    with refuses(TensorUnreadableError, "dumps.file.values_cut_short"):
        load(file, "output.0")


def bare(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"\x01\x02", "dumps.file.no_header"),
        (struct.pack("<Q", 2**63) + bytes(8), "dumps.ge.not_one"),
        (bare(b"\x00"), "dumps.protobuf.field_zero"),
        (bare(b"\x1a\x7f"), "dumps.protobuf.past_end_of_message"),
        (bare(b"\x0b"), "dumps.protobuf.unknown_wire_type"),
        (bare(b"\x09\x00"), "dumps.protobuf.field_cut_short"),
        (bare(b"\x08" + b"\xff" * 11), "dumps.protobuf.bad_number"),
        (bare(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "dumps.protobuf.bad_number"),
        (bare(number(2, 1) * 100_001), "dumps.protobuf.too_many_fields"),
        (bare(data(4, number(9, 1) * 257)), "dumps.protobuf.too_many_fields"),
        (bare(data(4, b"") * 4097), "dumps.ge.too_many_tensors"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(contents: bytes, reason: str) -> None:
    with pytest.raises(DamagedError) as refused:
        describe(contents)
    assert refused.value.message.id == reason


@pytest.mark.parametrize("dims", [[2**63], [2**40, 2**40], [1] * 65, [-1]])
def test_sizes_beyond_reason_are_refused_without_memory_being_taken(tmp_path: Path, dims: list[int]) -> None:
    message = number(1, 1) + data(3, shape(dims)) + number(5, 16)
    file = write(tmp_path / "f", ge_file([np.zeros(4, np.float32)], messages=([message], [])))
    (header,) = read_headers(file, "ge")
    assert header.problem
    with pytest.raises(TensorUnreadableError):
        load(file, "input.0")


def test_a_tensor_of_that_name_must_be_there(tmp_path: Path) -> None:
    file = write(tmp_path / "f", ge_file([floats(2)]))
    with refuses(TensorUnreadableError, "dumps.file.no_such_tensor"):
        load(file, "output.7")


WHOLE = ge_file([floats(4, 16), floats(16, dtype="bfloat16")], [floats(4, 16)], name="MatMul")


@settings(deadline=2000, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=8),
    end=st.integers(0, len(WHOLE)),
    more=st.binary(max_size=40),
)
def test_any_mutation_of_a_file_gives_values_or_a_named_error(
    tmp_path: Path, edits: list[tuple[int, int]], end: int, more: bytes
) -> None:
    mutated = bytearray(WHOLE)
    for at, value in edits:
        mutated[at] = value
    file = write(tmp_path / "f", bytes(mutated[:end]) + more)
    with suppress(TensorUnreadableError):
        for header in read_headers(file, "ge"):
            with suppress(TensorUnreadableError):
                assert load(file, header.entry).nbytes <= 8 * file.stat().st_size


@settings(deadline=2000, max_examples=100)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_named_error(contents: bytes) -> None:
    with suppress(DamagedError):
        for field in fields(contents, 0, len(contents)):
            assert 0 < field.number < 2**61
            assert field.end <= len(contents)


@given(st.integers(0, 2**64 - 1))
def test_numbers_of_64_bits_come_back(value: int) -> None:
    (field,) = fields(varint(8) + varint(value), 0, 1 + len(varint(value)))
    assert field.value == value
