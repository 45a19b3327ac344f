"""Read `.npz` files: zip archives of `.npy` files, one for each array, stored or compressed.

archive.npz │ weight.npy │ bias.npy │ …
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers import npy
from firstdrift.dumps.containers.contents import (
    Contents,
    DamagedError,
    ParsedFiles,
    TensorHeader,
    found_in,
    view,
)
from firstdrift.dumps.containers.zip_directory import Member, member_start, stored_members
from firstdrift.dumps.storage.folders import printable
from firstdrift.wording.message import Message

_SUFFIX: Final = ".npy"
_LONGEST_HEADER: Final = 128 * 1024
_PIECE: Final = 256 * 1024
"""Bytes that are inflated at once."""

_LARGEST_UNPACKED: Final = 4 * 1024**3
"""Size in bytes up to which an array is unpacked."""

_LARGEST_RATIO: Final = 1040
"""No archive holds more than so many times its own size: DEFLATE cannot say more (1032) with a byte."""

_FREE_UNPACKED: Final = 256 * 1024**2
_MOST_RATIO: Final = 100
"""How many times its size an array may unpack to where it takes more than 256 MiB.

Noise, which values are, packs by half, masks by some dozens; a thousand times is what nothing but zeros give.
"""

_LONGEST_NAME: Final = 1000
_MOST_ARRAYS: Final = 1_000_000
_ENCRYPTED: Final = 0x1
_DAMAGED: Final = Message.of("dumps.npz.damaged")


class _Array(Struct, frozen=True):
    """Where the bytes of an array lie.

    Attributes:
        member: its place and its size as it is stored.
        size: in bytes, unpacked.
        is_packed: whether it is compressed.
        problem: why it cannot be read; None if it can.
    """

    member: Member
    size: int
    is_packed: bool = False
    problem: Message | None = None


class _Reading(io.RawIOBase):
    """The bytes of a file for those who read and seek."""

    def __init__(self, contents: Contents) -> None:
        self._bytes, self._at = contents, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._bytes)}[whence]
        if start + offset < 0:
            raise OSError("it is cut short")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        found = self._bytes[self._at : self._at + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def headers(file: Path, contents: Contents) -> list[TensorHeader]:
    """List the arrays of a file in the order of the archive; one that cannot be read spoils no other."""
    return [_header(name, array, contents) for name, array in _files.of(file, contents).items()]


def load(file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load one array of a file; those that are stored as they are, in place."""
    array = found_in(_files.of(file, contents), entry)
    if array.problem:
        raise DamagedError(array.problem)
    start = member_start(contents, array.member)
    values = _inflated(contents, array) if array.is_packed else view(contents, start, array.member.size)
    if zlib.crc32(values) != array.member.crc32:
        raise DamagedError(Message.of("dumps.npz.checksum_differs"))
    return npy.array_in(values)


def _inflated(contents: Contents, array: _Array) -> memoryview:
    """Return the bytes of a compressed array, which are as many as the directory says."""
    packed = array.member.size
    if array.size > _LARGEST_UNPACKED:
        raise DamagedError(Message.of("dumps.npz.too_large", most=_LARGEST_UNPACKED >> 30))
    if array.size > packed * _LARGEST_RATIO:
        raise DamagedError(_DAMAGED)
    if array.size > max(_FREE_UNPACKED, packed * _MOST_RATIO):
        most = Message.of("dumps.npz.ratio_too_large", size=array.size, ratio=_MOST_RATIO, packed=packed)
        raise DamagedError(most)
    values = bytearray(array.size)
    at = 0
    for piece in _pieces(contents, array):
        if at + len(piece) > array.size:
            raise DamagedError(_DAMAGED)
        values[at : at + len(piece)] = piece
        at += len(piece)
    if at != array.size:
        raise DamagedError(_DAMAGED)
    return memoryview(values).toreadonly()


def _pieces(contents: Contents, array: _Array) -> Iterator[bytes]:
    """Inflate an array piece by piece."""
    start = member_start(contents, array.member)
    end = start + array.member.size
    inflating = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for at in range(start, end, _PIECE):
            packed = contents[at : min(at + _PIECE, end)]
            while packed and not inflating.eof:
                yield inflating.decompress(packed, _PIECE)
                packed = inflating.unconsumed_tail
        while piece := inflating.decompress(b"", _PIECE):
            yield piece
    except zlib.error as exc:
        raise DamagedError(_DAMAGED) from exc


def _header(name: str, array: _Array, contents: Contents) -> TensorHeader:
    try:
        header = npy.header(_beginning(contents, array), array.size)
    except DamagedError as exc:
        return TensorHeader(name, "", None, problem=exc.message)
    return TensorHeader(name, header.dtype, header.shape)


def _beginning(contents: Contents, array: _Array) -> bytes:
    """Return the first bytes of an array, as many as its header has at most."""
    if array.problem:
        raise DamagedError(array.problem)
    if not array.is_packed:
        start = member_start(contents, array.member)
        return contents[start : start + min(array.member.size, _LONGEST_HEADER)]
    found = b""
    for piece in _pieces(contents, array):
        found += piece
        if len(found) >= _LONGEST_HEADER:
            break
    return found[:_LONGEST_HEADER]


def _arrays(contents: Contents) -> dict[str, _Array]:
    """Read the directory of an archive: array by name."""
    try:
        found = [
            (name.decode("utf-8", "backslashreplace"), _Array(member, member.size))
            for name, member in stored_members(contents).items()
        ]
    except DamagedError:
        found = [(info.filename, _array(info)) for info in _packed_members(contents)]
    arrays: dict[str, _Array] = {}
    for name, array in found:
        if not name.endswith(_SUFFIX):
            continue
        if len(name) > _LONGEST_NAME:
            raise DamagedError(Message.of("dumps.file.name_too_long", most=_LONGEST_NAME))
        key = printable(name.removesuffix(_SUFFIX))
        arrays[key] = replace(array, problem=Message.of("dumps.npz.name_twice")) if key in arrays else array
    return arrays


def _packed_members(contents: Contents) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(io.BufferedReader(_Reading(contents))) as archive:
            found = archive.infolist()
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as exc:
        raise DamagedError(Message.of("dumps.npz.unreadable", error=str(exc) or type(exc).__name__)) from exc
    if len(found) > _MOST_ARRAYS:
        raise DamagedError(Message.of("dumps.npz.too_many_arrays", most=_MOST_ARRAYS))
    return found


def _array(info: zipfile.ZipInfo) -> _Array:
    member = Member(info.header_offset, info.compress_size, info.CRC)
    problem = None
    if info.flag_bits & _ENCRYPTED:
        problem = Message.of("dumps.npz.encrypted")
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = Message.of("dumps.npz.other_compression")
    return _Array(member, info.file_size, info.compress_type != zipfile.ZIP_STORED, problem)


_files = ParsedFiles(_arrays)
