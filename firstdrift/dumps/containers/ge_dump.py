"""Read the files that Ascend's graph engine (GE) dumps: one file for the inputs and outputs of an operator.

    length of the header, 8 bytes │ header: a protobuf message `DumpData` │ values: inputs, outputs, the rest

    DumpData   version=1 dump_time=2 output=3 input=4 buffer=5 op_name=6 attr=7 space=8
    OpOutput   data_type=1 format=2 shape=3 original_op=4 data=5 size=6 original_shape=7 ...
    OpInput    data_type=1 format=2 shape=3 data=4 size=5 original_shape=6 ...
    Shape      dim=1 (repeated)

A tensor's entry is "input.0", "output.1". Values may lie in the header itself (`data`), and in blocks
as Ascend's matrix unit wants them; `shape` says how they lie, `original_shape` what they mean:

| format      | as it lies                       | as it is meant      |
| ----------- | -------------------------------- | ------------------- |
| FRACTAL_NZ  | ..., n / n0, m / m0, m0, n0      | ..., m, n           |
| NC1HWC0     | n, c / c0, h, w, c0              | n, c, h, w          |
| FRACTAL_Z   | c / c0 * h * w, n / n0, n0, c0   | n, c, h, w          |

Dimensions that do not fill their last block are padded there; the padding is cut off.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt
from msgspec import Struct

from firstdrift.dumps.containers.contents import (
    MOST_DIMENSIONS,
    Contents,
    DamagedError,
    TensorHeader,
    found_in,
    shape_of,
    unpack,
)
from firstdrift.dumps.containers.protobuf import Field, fields, numbers, signed
from firstdrift.dumps.containers.values import INT4, read_only, size_of, values_at
from firstdrift.groups import gathered
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

Shape: TypeAlias = tuple[int, ...]
_Array: TypeAlias = npt.NDArray[Any]

_IMAGE = 4


def can_unblock(name: str, stored: Shape, meant: Shape) -> bool:
    """Tell whether values of a stored shape can be put in the order of the shape that is meant."""
    fits = _FITS.get(name)
    return fits is not None and 0 not in stored and fits(stored, meant)


def unblock(name: str, values: _Array, meant: Shape) -> _Array:
    """Return the values in the order of the shape that is meant; `can_unblock` must allow it."""
    return _UNBLOCK[name](values, meant)


def _fits_nz(stored: Shape, meant: Shape) -> bool:
    if len(stored) < 4 or len(meant) < 2:  # noqa: PLR2004 (four dims are a matrix in blocks)
        return False
    columns, rows, rows_0, columns_0 = stored[-4:]
    whole = prod(stored[:-4]) == prod(meant[:-2])
    return whole and _fills(meant[-2], rows, rows_0) and _fills(meant[-1], columns, columns_0)


def _unblock_nz(values: _Array, meant: Shape) -> _Array:
    columns, rows, rows_0, columns_0 = values.shape[-4:]
    whole = values.reshape(-1, columns, rows, rows_0, columns_0).transpose(0, 2, 3, 1, 4)
    matrices = whole.reshape(-1, rows * rows_0, columns * columns_0)
    return matrices[:, : meant[-2], : meant[-1]].reshape(meant)


def _fits_channels(stored: Shape, meant: Shape) -> bool:
    if len(stored) != _IMAGE + 1 or len(meant) != _IMAGE:
        return False
    batch, channels, height, width, channels_0 = stored
    return meant == (batch, meant[1], height, width) and _fills(meant[1], channels, channels_0)


def _unblock_channels(values: _Array, meant: Shape) -> _Array:
    batch, channels, height, width, channels_0 = values.shape
    whole = values.transpose(0, 1, 4, 2, 3).reshape(batch, channels * channels_0, height, width)
    return whole[:, : meant[1]].reshape(meant)


def _fits_filter(stored: Shape, meant: Shape) -> bool:
    if len(stored) != _IMAGE or len(meant) != _IMAGE:
        return False
    area, filters, filters_0, channels_0 = stored
    number, channels, height, width = meant
    blocks, rest = divmod(area, max(height * width, 1))
    return rest == 0 and _fills(number, filters, filters_0) and _fills(channels, blocks, channels_0)


def _unblock_filter(values: _Array, meant: Shape) -> _Array:
    number, channels, height, width = meant
    _, filters, filters_0, channels_0 = values.shape
    whole = values.reshape(-1, height, width, filters, filters_0, channels_0).transpose(3, 4, 0, 5, 1, 2)
    return whole.reshape(filters * filters_0, -1, height, width)[:number, :channels].reshape(meant)


def _fills(size: int, blocks: int, block: int) -> bool:
    """Tell whether a dimension takes so many blocks, the last of them at least in part."""
    return (blocks - 1) * block < size <= blocks * block


_FITS: dict[str, Callable[[Shape, Shape], bool]] = {
    "FRACTAL_NZ": _fits_nz,
    "NC1HWC0": _fits_channels,
    "FRACTAL_Z": _fits_filter,
}
_UNBLOCK: dict[str, Callable[[_Array, Shape], _Array]] = {
    "FRACTAL_NZ": _unblock_nz,
    "NC1HWC0": _unblock_channels,
    "FRACTAL_Z": _unblock_filter,
}


_LENGTH = struct.Struct("<Q")
_LONGEST_NAME = 4096
_MOST_TENSORS = 4096
_MOST_FIELDS = 64
"""Fields of a tensor; writers give a dozen."""

DTYPE_BY_CODE = {
    1: "float32",
    2: "float16",
    3: "int8",
    4: "uint8",
    5: "int16",
    6: "uint16",
    7: "int32",
    8: "int64",
    9: "uint32",
    10: "uint64",
    11: "bool",
    12: "float64",
    13: "string",
    14: "dual_sub_int8",
    15: "dual_sub_uint8",
    16: "complex64",
    17: "complex128",
    18: "int8",
    19: "int16",
    20: "int32",
    21: "uint8",
    22: "uint16",
    23: "resource",
    24: "string_ref",
    25: "dual",
    26: "variant",
    27: "bfloat16",
    28: INT4,
    29: "uint1",
    30: "int2",
    31: "uint2",
    32: "complex32",
    33: "hifloat8",
    34: "float8_e5m2",
    35: "float8_e4m3fn",
    36: "float8_e8m0fnu",
    37: "float6_e3m2",
    38: "float6_e2m3",
    39: "float4_e2m1",
    40: "float4_e1m2",
}
"""The codes of `OutputDataType`, by the names of numpy and ml_dtypes where these have the type.

They are not those of `aclDataType`. Quantised integers (18 to 22) are read as the integers they are.
"""

_DTYPES = {0: "undefined"} | DTYPE_BY_CODE

_PLAIN_FORMATS = frozenset({0, 1, 2, 14, 16, 26, 27, 30, 31, 34, 35, 36, 40, 41, 42, 255})
"""The codes of `OutputFormat` under which values lie in the order of the dims (ND, NCHW, NHWC, ...)."""

_PERMUTED_FORMATS = frozenset({1, 14, 16, 27, 31, 34, 36})
"""Those of them whose dims stand in another order than torch's (NHWC, CHWN, HWCN, ...)."""

_BLOCKED_FORMATS = {
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    5: "NC1C0HWPAD",
    6: "NHWC1C0",
    7: "FSR_NCHW",
    8: "FRACTAL_DECONV",
    9: "C1HWNC0",
    12: "NC1HWC0_C04",
    13: "FRACTAL_Z_C04",
    17: "NC1KHKWHWC0",
    25: "C1HWNCoC0",
    28: "FRACTAL_ZZ",
    29: "FRACTAL_NZ",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    37: "FRACTAL_Z_3D_TRANSPOSE",
    38: "FRACTAL_ZN_LSTM",
    39: "FRACTAL_Z_G",
    43: "ND_RNN_BIAS",
    44: "FRACTAL_ZN_RNN",
}
_FORMAT_BITS = 0xFF
"""Above these bits, a format says of which kind and how large its blocks are."""


class GeTensor(Struct, frozen=True):
    """What the header says of a tensor.

    Attributes:
        role: input or output.
        index: which one, from 0.
        dtype: numpy or ml_dtypes name; the schema's own where these have none.
        stored: the shape in which the values lie.
        shape: the shape that is meant.
        blocks: name of the format if the values lie in blocks; empty if they do not.
        begin: where the values begin in the file.
        problem: why they cannot be read; None if they can.
    """

    role: Role
    index: int
    dtype: str
    stored: tuple[int, ...]
    shape: tuple[int, ...]
    blocks: str
    begin: int
    problem: Message | None

    @property
    def entry(self) -> str:
        """Its name in the file: "output.0"."""
        return f"{self.role}.{self.index}"

    @property
    def header(self) -> TensorHeader:
        """The same as of any other file."""
        return TensorHeader(self.entry, self.dtype, self.shape, problem=self.problem)


class GeFile(Struct, frozen=True):
    """What a file holds.

    Attributes:
        name: of the operator; empty if the header gives none.
        tensors: inputs, then outputs.
    """

    name: str
    tensors: tuple[GeTensor, ...]


def headers(_file: Path, contents: Contents) -> list[TensorHeader]:
    """List the tensors of a file: inputs, then outputs."""
    return [tensor.header for tensor in describe(contents).tensors]


def load(_file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load the values of a tensor in the order of its dims."""
    tensor = found_in({tensor.entry: tensor for tensor in describe(contents).tensors}, entry)
    if tensor.problem:
        raise DamagedError(tensor.problem)
    values = values_at(contents, tensor.begin, tensor.dtype, tensor.stored)
    ordered = unblock(tensor.blocks, values, tensor.shape) if tensor.blocks else values.reshape(tensor.shape)
    return read_only(ordered)


def describe(contents: Contents) -> GeFile:
    """Say what a file holds, by its header and its length."""
    if len(contents) < _LENGTH.size:
        raise DamagedError(Message.of("dumps.file.no_header"))
    (length,) = unpack(_LENGTH, contents, 0)
    end = _LENGTH.size + length
    if end > len(contents):
        raise DamagedError(Message.of("dumps.ge.not_one"))
    found = gathered((field.number, field) for field in fields(contents, _LENGTH.size, end) if field.is_bytes)
    if len(found[_INPUTS]) + len(found[_OUTPUTS]) > _MOST_TENSORS:
        raise DamagedError(Message.of("dumps.ge.too_many_tensors", most=_MOST_TENSORS))
    names = [bytes(contents[at.start : min(at.end, at.start + _LONGEST_NAME)]) for at in found[_NAME][-1:]]
    name = b"".join(names).decode("utf-8", "backslashreplace")
    return GeFile(name, tuple(_describe_all(contents, found, end)))


_OUTPUTS, _INPUTS, _NAME = 3, 4, 6
_SCHEMA = {
    # OpOutput has one field more (original_op) in front of the last three.
    Role.OUTPUT: {1: "code", 2: "layout", 3: "stored", 5: "inline", 6: "size", 7: "meant"},
    Role.INPUT: {1: "code", 2: "layout", 3: "stored", 4: "inline", 5: "size", 6: "meant"},
}


class _Fields(Struct):
    """The fields of a tensor, as its message gives them."""

    code: int = 0
    layout: int = 0
    stored: list[int] = []
    meant: list[int] | None = None
    size: int = 0
    inline: Field = Field(0)


def _describe_all(contents: Contents, found: Mapping[int, list[Field]], begin: int) -> Iterator[GeTensor]:
    """Describe the tensors in the order in which their values lie: inputs first."""
    for role, number in ((Role.INPUT, _INPUTS), (Role.OUTPUT, _OUTPUTS)):
        for index, message in enumerate(found[number]):
            said = _read_fields(contents, message, role)
            if size := said.inline.end - said.inline.start:
                said.size = size
                yield _describe(said, role, index, said.inline.start, said.inline.end)
            else:
                yield _describe(said, role, index, begin, len(contents))
                begin += said.size


def _read_fields(contents: Contents, message: Field, role: Role) -> _Fields:
    tensor = _Fields()
    for field in fields(contents, message.start, message.end, _MOST_FIELDS):
        name = _SCHEMA[role].get(field.number)
        if name in ("code", "layout", "size"):
            setattr(tensor, name, field.value)
        elif name == "inline" and field.is_bytes:
            tensor.inline = field
        elif name and field.is_bytes:
            dims = _extended(getattr(tensor, name) or [], _dims(contents, field))
            setattr(tensor, name, dims)
    return tensor


def _extended(dims: list[int], more: Iterator[int]) -> list[int]:
    """Add dimensions to others, as many as one more than a shape can have: that is refused later."""
    return [*dims, *islice(more, MOST_DIMENSIONS + 1)][: MOST_DIMENSIONS + 1]


def _dims(contents: Contents, shape: Field) -> Iterator[int]:
    for field in fields(contents, shape.start, shape.end, MOST_DIMENSIONS):
        if field.number == 1:
            yield from map(signed, numbers(contents, field))


def _describe(said: _Fields, role: Role, index: int, begin: int, end: int) -> GeTensor:
    dtype = _DTYPES.get(said.code, f"code {said.code}")
    try:
        stored, shape = shape_of(said.stored), shape_of(said.meant or said.stored)
    except DamagedError as exc:
        return GeTensor(role, index, dtype, (), (), "", begin, exc.message)
    code = said.layout & _FORMAT_BITS
    blocks = "" if code in _PLAIN_FORMATS else _BLOCKED_FORMATS.get(code, f"code {code}")
    problem = _why_unreadable(dtype, stored, said.size, end - begin)
    if not blocks and (prod(stored) != prod(shape) or code in _PERMUTED_FORMATS):
        shape = stored
    elif blocks and not problem and not can_unblock(blocks, stored, shape):
        problem = Message.of("dumps.file.values_in_blocks", blocks=blocks)
    return GeTensor(role, index, dtype, stored, shape, blocks, begin, problem)


def _why_unreadable(dtype: str, stored: tuple[int, ...], size: int, available: int) -> Message | None:
    needed = size_of(dtype, stored)
    if needed is None:
        return Message.of("dumps.file.unreadable_dtype", dtype=dtype)
    if size == 0 and needed:
        return Message.of("dumps.ge.no_values")
    if size < needed:
        return Message.of("dumps.file.sizes_differ", given=size, needed=needed)
    if needed > available:
        return Message.of("dumps.file.values_cut_short", needed=needed, available=max(available, 0))
    return None
