"""Read `.safetensors` files: a JSON header with the place of each tensor, then the bytes.

8 bytes length │ {"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}} │ values
"""

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from firstdrift.dumps.containers.contents import (
    Contents,
    DamagedError,
    ParsedFiles,
    TensorHeader,
    found_in,
    quoted,
    unpack,
    whole_numbers,
)
from firstdrift.dumps.containers.values import FLOAT4, size_of, values_at
from firstdrift.wording.message import Message

_LENGTH = struct.Struct("<Q")
_LONGEST_NAME = 1000
_LONGEST_HEADER = 16 * 1024 * 1024
"""Size in bytes up to which a header is read; 120 go into a tensor, so that 130,000 of them are described.

The format allows for 100 MB, whose records would take gigabytes of memory; the largest models have some
thousand tensors in a file.
"""

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": FLOAT4,
}


class _Place(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def headers(_file: Path, contents: Contents) -> list[TensorHeader]:
    """List the tensors of a file in the order of their bytes."""
    places, start = _read_places(contents)
    return [
        TensorHeader(name, place.dtype, place.shape, problem=_problem(place, len(contents) - start))
        for name, place in sorted(places.items(), key=lambda item: item[1].begin)
    ]


def load(file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load one tensor of a file."""
    places, start = _files.of(file, contents)
    place = found_in(places, entry)
    if problem := _problem(place, len(contents) - start):
        raise DamagedError(problem)
    return values_at(contents, start + place.begin, place.dtype, place.shape)


def _problem(place: _Place, available: int) -> Message | None:
    size = size_of(place.dtype, place.shape)
    if size is None:
        return Message.of("dumps.safetensors.unsupported_dtype", dtype=place.dtype)
    given = place.end - place.begin
    if given != size:
        return Message.of("dumps.safetensors.sizes_differ", needed=size, given=given)
    return Message.of("dumps.file.values_past_end") if place.end > available else None


def _read_places(contents: Contents) -> tuple[dict[str, _Place], int]:
    if len(contents) < _LENGTH.size:
        raise DamagedError(Message.of("dumps.file.cut_short"))
    (length,) = unpack(_LENGTH, contents, 0)
    start = _LENGTH.size + length
    if _LONGEST_HEADER < length <= len(contents):
        raise DamagedError(Message.of("dumps.safetensors.header_too_long", most=_LONGEST_HEADER >> 20))
    if start > len(contents):
        raise DamagedError(Message.of("dumps.safetensors.not_one"))
    return _parse_header(bytes(contents[_LENGTH.size : start])), start


_files = ParsedFiles(_read_places)


class _Said(Struct):
    """What the header says of a tensor."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_decode_header = Decoder(dict[str, Raw]).decode
_decode_tensor = Decoder(_Said).decode


def _parse_header(header: bytes) -> dict[str, _Place]:
    found = _parse_plain(header)
    return _parse_any(header) if found is None else found


def _parse_plain(header: bytes) -> dict[str, _Place] | None:
    """Read a header as it is written by all that write such; None if something about it is odd."""
    try:
        said = _decode_header(header)
        said.pop("__metadata__", None)
        tensors = {name: _decode_tensor(raw) for name, raw in said.items()}
    except (MsgspecError, RecursionError):
        return None
    # Of a key that occurs twice, the last would count in silence.
    if any(header.count(key) != len(tensors) for key in (b'"dtype"', b'"shape"', b'"data_offsets"')):
        return None
    return {
        _text(name): _placed(tensor.dtype, tensor.shape, *tensor.data_offsets)
        for name, tensor in tensors.items()
    }


def _parse_any(header: bytes) -> dict[str, _Place]:
    try:
        fields = json.loads(header, object_pairs_hook=_unique)
        return {_text(name): _place(value) for name, value in fields.items() if name != "__metadata__"}
    except DamagedError:
        raise
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as exc:
        raise DamagedError(Message.of("dumps.safetensors.header_damaged")) from exc


def _text(name: str) -> str:
    """Return a name as text that can be stored: half of a surrogate pair is written out."""
    if len(name) > _LONGEST_NAME:
        raise DamagedError(Message.of("dumps.file.name_too_long", most=_LONGEST_NAME))
    return name.encode("utf-8", "backslashreplace").decode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise DamagedError(Message.of("dumps.safetensors.name_twice"))
    return fields


def _place(value: dict[str, Any]) -> _Place:
    begin, end = value["data_offsets"]
    return _placed(str(value["dtype"]), value["shape"], begin, end)


def _placed(dtype: str, shape: object, begin: object, end: object) -> _Place:
    first, last = whole_numbers([begin, end])
    return _Place(_DTYPES.get(dtype, quoted(dtype)), whole_numbers(shape), first, last)
