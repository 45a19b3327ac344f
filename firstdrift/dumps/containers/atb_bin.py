"""Read the `.bin` files of ATB dumps: a header of text, then the values.

    $Version=1.0 ⏎ $Object.Count=1 ⏎ $Object.Length=384 ⏎ format=2 ⏎ dtype=27 ⏎ dims=6,32 ⏎
    $Object.data=0,384 ⏎ $End=1 ⏎ │ values, little-endian, without padding

A file may hold no values: an alias (`data=10_0_outtensor0.bin`) says which file holds the same ones, a
file of statistics (`max=`, `min=`, `mean=`, `l2norm=`) what is known of them, a description nothing more.
A tensor that was dumped twice is appended; the last one counts.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import (
    Contents,
    DamagedError,
    TensorHeader,
    quoted,
    shape_of,
    whole_numbers,
)
from firstdrift.dumps.containers.values import INT4, size_of, values_at
from firstdrift.model.tensor import Statistics
from firstdrift.wording.message import Message, joined

_LONGEST_HEADER = 16 * 1024
_MOST_OBJECTS = 64
_BEGIN = b"$Version="
_END = re.compile(rb"^\$End=[^\n]*(?:\n|\Z)", re.MULTILINE)
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DTYPE_BY_CODE = {
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
    13: "string",
    16: "complex64",
    17: "complex128",
    27: "bfloat16",
    29: INT4,
    30: "uint1",
    31: "int2",
    32: "uint2",
    33: "complex32",
    34: "hifloat8",
    35: "float8_e5m2",
    36: "float8_e4m3fn",
    37: "float8_e8m0fnu",
    38: "float6_e3m2",
    39: "float6_e2m3",
    40: "float4_e2m1",
    41: "float4_e1m2",
}
"""The codes of CANN's `aclDataType`, by the names of numpy and ml_dtypes where these have the type."""

_PLAIN_FORMATS = frozenset({-1, 0, 1, 2, 16, 27, 30, 35, 47})
"""The codes of CANN's `aclFormat` under which values lie in the order of the dims (ND, NCHW, NHWC, …)."""

_STATISTICS = {"max": "maximum", "min": "minimum", "mean": "mean", "l2norm": "norm"}
_BLOCKED_FORMATS = {
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    12: "NC1HWC0_C04",
    29: "FRACTAL_NZ",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    50: "FRACTAL_NZ_C0_16",
    51: "FRACTAL_NZ_C0_32",
    52: "FRACTAL_NZ_C0_2",
    53: "FRACTAL_NZ_C0_4",
    54: "FRACTAL_NZ_C0_8",
}


class Description(Struct, frozen=True):
    """What a file says of its tensor.

    Attributes:
        dtype: numpy or ml_dtypes name; the name in the format's documents where these have none.
        shape: dimensions.
        has_values: whether it holds values, be they readable or not.
        begin: where the values begin in the file; None if it holds none that can be read.
        alias: name of the file that holds the values: "10_0_1_outtensor0.bin"; empty if there is none.
        statistics: as recorded in place of the values.
        unreadable: why there are no values, or none that can be read; None if there are.
        blocks: why values are not in the order of the dims; None if they are.
        note: what else is odd about the file; None if nothing is.
    """

    dtype: str
    shape: tuple[int, ...]
    has_values: bool
    begin: int | None = None
    alias: str = ""
    statistics: Statistics | None = None
    unreadable: Message | None = None
    blocks: Message | None = None
    note: Message | None = None


def headers(_file: Path, contents: Contents) -> list[TensorHeader]:
    """List the one tensor of a file."""
    said = describe(contents)
    return [TensorHeader("", said.dtype, said.shape, problem=said.unreadable or said.blocks)]


def load(_file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load the values of a file, in the order in which they are stored; int4 is unpacked."""
    if entry:
        raise DamagedError(Message.of("dumps.atb_bin.has_no_names", tensor=quoted(entry)))
    said = describe(contents)
    if said.begin is None:
        raise DamagedError(said.unreadable or Message.of("dumps.file.damaged"))
    return values_at(contents, said.begin, said.dtype, said.shape)


def describe(contents: Contents) -> Description:
    """Say what a file holds, by its header and its length."""
    found: list[Description] = []
    note: Message | None = None
    at = 0
    while len(found) < _MOST_OBJECTS:
        try:
            header, values = _read_header(contents, at)
        except DamagedError as exc:
            if not found:
                raise
            note = Message.of("dumps.atb_bin.appended_damaged", reason=exc.message)
            break
        said, at = _describe_object(header, values, len(contents))
        found.append(said)
        if at == len(contents):
            break
        if contents[at : at + len(_BEGIN)] != _BEGIN:
            note = Message.of("dumps.atb_bin.more_bytes", bytes=len(contents) - at)
            break
    else:
        raise DamagedError(Message.of("dumps.atb_bin.too_many_tensors", most=_MOST_OBJECTS))
    return _last_whole(found, note)


class _Header(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    objects: int
    offset: int
    length: int | None
    blocks: Message | None
    alias: str
    statistics: Statistics | None


def _last_whole(found: list[Description], note: Message | None) -> Description:
    """Choose among tensors that were appended to one another, and say so."""
    if len(found) == 1:
        return replace(found[0], note=note)
    which, chosen = ("last_whole", found[-2]) if found[-1].unreadable else ("last", found[-1])
    several = Message.of(f"dumps.atb_bin.{which}_of_several", tensors=len(found))
    return replace(chosen, note=joined(several, note) if note else joined(several))


def _describe_object(header: _Header, start: int, size: int) -> tuple[Description, int]:
    """Describe a tensor whose header ends at `start`; return where it ends as well."""
    begin = start + header.offset
    length = header.length if header.length is not None else max(size - begin, 0)
    has_values = header.objects > 0 and header.statistics is None and (length > 0 or 0 in header.shape)
    unreadable = _why_unreadable(header, length, size - begin) if has_values else _instead_of_values(header)
    return Description(
        dtype=header.dtype,
        shape=header.shape,
        has_values=has_values,
        begin=begin if has_values and not unreadable else None,
        alias=header.alias,
        statistics=header.statistics,
        unreadable=unreadable,
        blocks=header.blocks,
    ), min(begin + length, size) if has_values else start


def _instead_of_values(header: _Header) -> Message:
    if header.statistics:
        return Message.of("dumps.atb_bin.statistics_only")
    if header.alias:
        return Message.of("dumps.atb_bin.values_elsewhere", file=quoted(header.alias))
    return Message.of("dumps.atb_bin.description_only")


def _why_unreadable(header: _Header, length: int, available: int) -> Message | None:
    size = size_of(header.dtype, header.shape)
    if size is None:
        return Message.of("dumps.file.unreadable_dtype", dtype=header.dtype)
    if length > available:
        return Message.of("dumps.file.values_cut_short", needed=length, available=max(available, 0))
    if length != size:
        return Message.of("dumps.file.sizes_differ", given=length, needed=size)
    return None


def _read_header(contents: Contents, at: int) -> tuple[_Header, int]:
    text = bytes(contents[at : at + _LONGEST_HEADER])
    end = _END.search(text)
    if end is None:
        raise DamagedError(Message.of("dumps.atb_bin.not_one"))
    return _parse_header(text[: end.start()]), at + end.end()


@lru_cache(maxsize=1024)
def _parse_header(text: bytes) -> _Header:
    fields = _fields(text.decode("latin-1"))
    code = _whole(fields.get("dtype") or fields.get("type") or "")
    if code is None or "dims" not in fields:
        raise DamagedError(Message.of("dumps.atb_bin.no_dtype"))
    offset, length = _place(fields)
    objects = _number(fields.get("$Object.Count", "1"))
    return _Header(
        dtype=_DTYPE_BY_CODE.get(code, f"code {code}"),
        shape=shape_of([_whole(size) for size in fields["dims"].split(",") if size.strip()]),
        objects=objects,
        offset=offset,
        length=length,
        blocks=_blocks(_number(fields.get("format", "2"))),
        alias="" if objects else fields.get("data", ""),
        statistics=_statistics(fields),
    )


def _fields(text: str) -> dict[str, str]:
    lines = [line.partition("=") for line in text.split("\n") if line.strip()]
    if not all(separator for _, separator, _ in lines):
        raise DamagedError(Message.of("dumps.atb_bin.header_damaged"))
    return {name.strip(): value.strip() for name, _, value in lines}


def _place(fields: dict[str, str]) -> tuple[int, int | None]:
    """Return where the values begin after the header, and how long they are if that is given."""
    if "$Object.data" in fields:
        offset, _, length = fields["$Object.data"].partition(",")
        begin, size = whole_numbers([_whole(offset), _whole(length)])
        return begin, size
    length = fields.get("$Object.Length", "")
    return 0, whole_numbers([_whole(length)])[0] if length else None


def _blocks(code: int) -> Message | None:
    if code in _PLAIN_FORMATS:
        return None
    blocks = _BLOCKED_FORMATS.get(code) or Message.of("dumps.atb_bin.unknown_blocks", code=code)
    return Message.of("dumps.file.values_in_blocks", blocks=blocks)


def _statistics(fields: dict[str, str]) -> Statistics | None:
    try:
        known = {name: float(fields[said]) for said, name in _STATISTICS.items() if said in fields}
    except ValueError as exc:
        raise DamagedError(Message.of("dumps.atb_bin.bad_statistics")) from exc
    return Statistics(**known) if known else None


def _number(text: str) -> int:
    number = _whole(text)
    if number is None:
        raise DamagedError(Message.of("dumps.atb_bin.header_damaged"))
    return number


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if _NUMBER.fullmatch(text) else None
