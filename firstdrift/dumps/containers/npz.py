"""Read `.npz` files: zip archives of `.npy` files, one for each array, stored or compressed.

archive.npz │ weight.npy │ bias.npy │ …
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy.typing as npt

from firstdrift.dumps.containers import npy
from firstdrift.dumps.containers.contents import (
    Contents,
    DamagedError,
    ParsedFiles,
    TensorHeader,
    open_regular,
    quoted,
)
from firstdrift.dumps.containers.zip_directory import Member, member_start, stored_members
from firstdrift.dumps.folders import printable

_SUFFIX: Final = ".npy"
_LONGEST_HEADER: Final = 128 * 1024
_LARGEST_UNPACKED: Final = 4 * 1024**3
"""Size in bytes up to which an array is unpacked."""

_LONGEST_NAME: Final = 1000
_MOST_ARRAYS: Final = 1_000_000


_files = ParsedFiles(stored_members)


def headers(file: Path, contents: Contents) -> list[TensorHeader]:
    """List the arrays of a file in the order of the archive."""
    try:
        stored = stored_members(contents)
    except DamagedError:
        return _packed_headers(file)
    found: list[TensorHeader] = []
    for name, member in stored.items():
        if name.endswith(_SUFFIX.encode()):
            text = name.decode("utf-8", "backslashreplace")
            found.append(_named(text, partial(_stored, contents, member)))
    return found


def load(file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load one array of a file; those that are stored as they are, in place."""
    try:
        stored = _files.of(file, contents)
    except DamagedError:
        return _unpacked(file, entry)
    member = stored.get(f"{entry}{_SUFFIX}".encode())
    if member is None:
        raise DamagedError(f"it holds no tensor {quoted(entry)}")
    return npy.array_in(_bytes_of(contents, member))


def _stored(contents: Contents, member: Member) -> TensorHeader:
    beginning = bytes(_bytes_of(contents, member)[:_LONGEST_HEADER])
    return npy.header(beginning, member.size)


def _bytes_of(contents: Contents, member: Member) -> memoryview:
    start = member_start(contents, member)
    return memoryview(contents)[start : start + member.size]


def _packed_headers(file: Path) -> list[TensorHeader]:
    with _archive(file) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(_SUFFIX)]
        if len(members) > _MOST_ARRAYS:
            raise DamagedError(f"it holds more than {_MOST_ARRAYS} arrays")

        return [_named(info.filename, partial(_packed, archive, info)) for info in members]


def _packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> TensorHeader:
    with _opened(archive, info) as opened:
        return npy.header(opened.read(_LONGEST_HEADER), info.file_size)


def _unpacked(file: Path, entry: str) -> npt.NDArray[Any]:
    with _archive(file) as archive:
        try:
            info = archive.getinfo(f"{entry}{_SUFFIX}")
        except KeyError:
            raise DamagedError(f"it holds no tensor {quoted(entry)}") from None
        if info.file_size > _LARGEST_UNPACKED:
            raise DamagedError(f"unpacked it would take more than {_LARGEST_UNPACKED >> 30} GB")
        with _opened(archive, info) as opened:
            return npy.array_in(opened.read(info.file_size))


@contextmanager
def _archive(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; whatever is wrong with it is one error."""
    try:
        with open_regular(file) as opened, zipfile.ZipFile(opened) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as exc:
        raise DamagedError(f"the archive is damaged ({exc or type(exc).__name__})") from exc


@contextmanager
def _opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DamagedError("it is compressed in a way that numpy never does")
    with archive.open(info) as opened:
        yield opened


def _named(member: str, describe: Callable[[], TensorHeader]) -> TensorHeader:
    """Describe an array; one that cannot be read spoils no other."""
    if len(member) > _LONGEST_NAME:
        raise DamagedError(f"the name of a tensor is longer than {_LONGEST_NAME} characters")
    name = printable(member.removesuffix(_SUFFIX))
    try:
        header = describe()
    except (DamagedError, zipfile.BadZipFile, zlib.error, EOFError) as exc:
        return TensorHeader(name, "", None, problem=str(exc) or "the archive is damaged")
    return TensorHeader(name, header.dtype, header.shape)
