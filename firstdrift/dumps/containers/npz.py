"""Read `.npz` files: zip archives of `.npy` files, one for each array, stored or compressed.

archive.npz │ weight.npy │ bias.npy │ …
"""

import io
import zipfile
import zlib
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
    quoted,
    view,
)
from firstdrift.dumps.containers.zip_directory import Member, member_start, stored_members
from firstdrift.dumps.folders import printable

_SUFFIX: Final = ".npy"
_LONGEST_HEADER: Final = 128 * 1024
_LARGEST_UNPACKED: Final = 4 * 1024**3
"""Size in bytes up to which an array is unpacked."""

_LONGEST_NAME: Final = 1000
_MOST_ARRAYS: Final = 1_000_000
_ENCRYPTED: Final = 0x1
_DAMAGED: Final = "the archive is damaged"


class _Array(Struct, frozen=True):
    """Where the bytes of an array lie.

    Attributes:
        member: its place and its size as it is stored.
        size: in bytes, unpacked.
        is_packed: whether it is compressed.
        problem: why it cannot be read; empty if it can.
    """

    member: Member
    size: int
    is_packed: bool = False
    problem: str = ""


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
    array = _files.of(file, contents).get(entry)
    if array is None:
        raise DamagedError(f"it holds no tensor {quoted(entry)}")
    if not array.is_packed and not array.problem:
        return npy.array_in(_bytes_of(contents, array.member))
    if array.size > _LARGEST_UNPACKED:
        raise DamagedError(f"unpacked it would take more than {_LARGEST_UNPACKED >> 30} GB")
    values = _unpacked(contents, array, array.size + 1)
    if len(values) != array.size or zlib.crc32(values) != array.member.crc32:
        raise DamagedError(_DAMAGED)
    return npy.array_in(values)


def _header(name: str, array: _Array, contents: Contents) -> TensorHeader:
    try:
        header = npy.header(_unpacked(contents, array, _LONGEST_HEADER), array.size)
    except DamagedError as exc:
        return TensorHeader(name, "", None, problem=str(exc))
    return TensorHeader(name, header.dtype, header.shape)


def _unpacked(contents: Contents, array: _Array, most: int) -> bytes:
    """Return the bytes of an array, up to `most` of them."""
    if array.problem:
        raise DamagedError(array.problem)
    start, size = member_start(contents, array.member), array.member.size
    if not array.is_packed:
        return contents[start : start + min(size, most)]
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(view(contents, start, size), most)
    except zlib.error as exc:
        raise DamagedError(_DAMAGED) from exc


def _bytes_of(contents: Contents, member: Member) -> memoryview:
    return view(contents, member_start(contents, member), member.size)


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
            raise DamagedError(f"the name of a tensor is longer than {_LONGEST_NAME} characters")
        key = printable(name.removesuffix(_SUFFIX))
        arrays[key] = replace(array, problem="several arrays have this name") if key in arrays else array
    return arrays


def _packed_members(contents: Contents) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(io.BufferedReader(_Reading(contents))) as archive:
            found = archive.infolist()
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as exc:
        raise DamagedError(f"{_DAMAGED} ({exc or type(exc).__name__})") from exc
    if len(found) > _MOST_ARRAYS:
        raise DamagedError(f"it holds more than {_MOST_ARRAYS} arrays")
    return found


def _array(info: zipfile.ZipInfo) -> _Array:
    member = Member(info.header_offset, info.compress_size, info.CRC)
    problem = ""
    if info.flag_bits & _ENCRYPTED:
        problem = "it is encrypted"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = "it is compressed in a way that numpy never does"
    return _Array(member, info.file_size, info.compress_type != zipfile.ZIP_STORED, problem)


_files = ParsedFiles(_arrays)
