"""Read tensors from files written by `torch.save`, without torch.

since torch 1.6, a zip file            before, and with _use_new_zipfile_serialization=False
    archive/data.pkl    what there is      pickles of a magic number, a version, the system
    archive/byteorder   "little"           pickle of what there is
    archive/data/0      a storage          pickle of the keys of the storages
    archive/data/1      another            of each storage its length (8 bytes) and its bytes

The pickles are read, not run (`tensor_pickle`).
"""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import (
    Contents,
    DamagedError,
    ParsedFiles,
    TensorHeader,
    found_in,
    quoted,
    unpack,
    view,
)
from firstdrift.dumps.containers.tensor_pickle import (
    Layouts,
    TensorLayout,
    Unpickled,
    named_layouts,
    tensor_layouts,
    unpickle,
)
from firstdrift.dumps.containers.values import DTYPES, read_only
from firstdrift.dumps.containers.zip_directory import Member, member_start, stored_members
from firstdrift.wording.message import Message

_ZIP_BEGINNING = b"PK\x03\x04"
_PICKLE_BEGINNING = b"\x80"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_LENGTH = struct.Struct("<q")
_LARGEST_PICKLE = 64 * 1024 * 1024
"""Size in bytes up to which a pickle is read; its steps are counted besides (`tensor_pickle`)."""

_LARGEST_EXPANSION = 2 * 1024**3
"""Size in bytes up to which a tensor may repeat the bytes of its storage (`Tensor.expand`)."""

_FREE_EXPANSION = 64 * 1024**2
_MOST_REPEATS = 1024
"""How often an element may be repeated where there are more than 64 million of them.

Attention masks are repeated for each head and sequence, some hundreds of times. A number that stands for
billions takes a minute and more to be compared with another, and tells nothing that it does not tell itself.
"""


class _Storage(Struct, frozen=True, gc=False):
    """The bytes of a storage in the file; crc32 is 0 where it is unknown."""

    start: int
    size: int
    crc32: int


class _SavedFile(Struct, frozen=True):
    """A file of either kind: its tensors, and where to find a storage by its key."""

    contents: Contents
    layouts: Layouts
    find_storage: Callable[[str], _Storage | None]
    is_big_endian: bool = False


def headers(_file: Path, contents: Contents) -> list[TensorHeader]:
    """List the tensors of a file."""
    saved = _open(contents)
    return [_header(saved, name, layout) for name, layout in saved.layouts]


def load(file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load one tensor of a file."""
    saved, by_name = _files.of(file, contents) if entry else _open_by_name(contents)
    if not entry and entry not in by_name:
        raise DamagedError(Message.of("dumps.pt.not_one_tensor"))
    return _array(saved, found_in(by_name, entry))


def described(contents: Contents) -> object:
    """Return what a file holds as a whole: dicts, lists, numbers and text, a `TensorLayout` for a tensor.

    Raises:
        DamagedError: nobody can tell.
    """
    if _is_zipped(contents):
        members = stored_members(contents)
        return unpickle(_zipped_pickle(contents, members, _top(members)), 0).value
    return _legacy_value(contents).value


def _open_by_name(contents: Contents) -> tuple[_SavedFile, dict[str, TensorLayout]]:
    saved = _open(contents)
    return saved, dict(saved.layouts)


_files = ParsedFiles(_open_by_name)


def _open(contents: Contents) -> _SavedFile:
    return _open_zip(contents) if _is_zipped(contents) else _open_legacy(contents)


def _is_zipped(contents: Contents) -> bool:
    """Tell the two kinds of files apart."""
    if contents[:4] != _ZIP_BEGINNING and contents[:1] != _PICKLE_BEGINNING:
        raise DamagedError(Message.of("dumps.pt.not_one"))
    return contents[:4] == _ZIP_BEGINNING


def _open_zip(contents: Contents) -> _SavedFile:
    members = stored_members(contents)
    top = _top(members)

    def find_storage(key: str) -> _Storage | None:
        member = members.get(b"%s/data/%s" % (top, key.encode()))
        if member is None:
            return None
        return _Storage(member_start(contents, member), member.size, member.crc32)

    layouts = tensor_layouts(_zipped_pickle(contents, members, top))
    is_big_endian = _small_member(contents, members.get(b"%s/byteorder" % top)) == b"big"
    return _SavedFile(contents, layouts, find_storage, is_big_endian)


def _top(members: Mapping[bytes, Member]) -> bytes:
    return next(iter(members), b"").partition(b"/")[0]


def _small_member(contents: Contents, member: Member | None) -> bytes | None:
    if member is None:
        return None
    if member.size > _LARGEST_PICKLE:
        raise DamagedError(Message.of("dumps.pt.pickle_too_large", most=_LARGEST_PICKLE >> 20))
    start = member_start(contents, member)
    return contents[start : start + member.size]


def _zipped_pickle(contents: Contents, members: Mapping[bytes, Member], top: bytes) -> bytes:
    pickle = _small_member(contents, members.get(b"%s/data.pkl" % top))
    if pickle is None:
        raise DamagedError(Message.of("dumps.pt.no_pickle"))
    return pickle


def _legacy_value(contents: Contents) -> Unpickled:
    magic = unpickle(contents, 0)
    if magic.value != _LEGACY_MAGIC:
        raise DamagedError(Message.of("dumps.pt.other_pickle"))
    version = unpickle(contents, magic.end)
    system = unpickle(contents, version.end)
    return unpickle(contents, system.end)


def _open_legacy(contents: Contents) -> _SavedFile:
    value = _legacy_value(contents)
    keys = unpickle(contents, value.end)
    storages: dict[str, _Storage] = {}
    at = keys.end
    for key in keys.value if isinstance(keys.value, list) else ():
        if not isinstance(key, str) or at + _LEGACY_LENGTH.size > len(contents):
            raise DamagedError(Message.of("dumps.pt.storage_cut_off"))
        (length,) = unpack(_LEGACY_LENGTH, contents, at)
        size = length * _itemsize(value.storages.get(key))
        at += _LEGACY_LENGTH.size
        if not 0 <= size <= len(contents) - at:
            raise DamagedError(Message.of("dumps.pt.storage_cut_short"))
        storages[key] = _Storage(at, size, 0)
        at += size

    return _SavedFile(contents, named_layouts(value.value), storages.get)


def _itemsize(dtype: str | None) -> int:
    if dtype is None:
        return 1
    if dtype not in DTYPES:
        raise DamagedError(Message.of("dumps.pt.unknown_size", dtype=quoted(dtype)))
    return DTYPES[dtype].itemsize


def _header(saved: _SavedFile, name: str, layout: TensorLayout) -> TensorHeader:
    header = TensorHeader(name, layout.dtype, layout.shape, problem=layout.problem)
    if layout.problem is not None:
        return header
    try:
        storage = _checked_storage(saved, layout)
    except DamagedError as exc:
        return replace(header, problem=exc.message)
    return replace(header, digest=None if saved.is_big_endian else _digest(storage, layout))


def _digest(storage: _Storage, layout: TensorLayout) -> str | None:
    """Give the CRC-32 of the storage where the tensor is the whole storage in order."""
    size = layout.size * DTYPES[layout.dtype].itemsize
    is_whole = size == storage.size and layout.offset == 0 and layout.is_contiguous
    is_plain = not (layout.is_conjugate or layout.is_negative)
    # torch.serialization.set_crc32_options(False) leaves zeros in place of checksums.
    is_known = is_whole and is_plain and size and storage.crc32
    return f"crc32:{storage.crc32:08x}:{size}" if is_known else None


def _checked_storage(saved: _SavedFile, layout: TensorLayout) -> _Storage:
    """Return the storage of a tensor, which is large enough for it."""
    storage, reach = saved.find_storage(layout.storage), layout.reach
    if storage is None:
        raise DamagedError(Message.of("dumps.pt.storage_missing", storage=quoted(layout.storage)))
    itemsize = DTYPES[layout.dtype].itemsize
    size = layout.size * itemsize
    if size and (layout.offset + reach) * itemsize > storage.size:
        tensor = {"shape": str(layout.sizes), "dtype": layout.dtype}
        raise DamagedError(Message.of("dumps.pt.storage_too_small", available=storage.size, **tensor))
    if layout.size > max(_FREE_EXPANSION, reach * _MOST_REPEATS):
        repeated = {"stored": reach, "repeated": layout.size, "most": _MOST_REPEATS}
        raise DamagedError(Message.of("dumps.pt.repeated_too_often", **repeated))
    if size > max(storage.size, _LARGEST_EXPANSION):
        raise DamagedError(Message.of("dumps.pt.expanded_too_much", stored=storage.size, expanded=size))
    return storage


def _array(saved: _SavedFile, layout: TensorLayout) -> npt.NDArray[Any]:
    if layout.problem is not None:
        raise DamagedError(layout.problem)
    storage, dtype = _checked_storage(saved, layout), DTYPES[layout.dtype]
    if 0 in layout.sizes:
        return read_only(np.empty(layout.sizes, dtype))
    place = storage.start + layout.offset * dtype.itemsize, layout.reach * dtype.itemsize
    values: npt.NDArray[Any] = np.ndarray(
        layout.sizes,
        dtype,
        _little_endian(saved, place, dtype),
        0,
        [stride * dtype.itemsize for stride in layout.strides],
    )
    if layout.is_conjugate:
        values = np.conjugate(values)
    if layout.is_negative:
        values = np.negative(values)
    return read_only(values if values.flags.aligned else values.copy())


def _little_endian(saved: _SavedFile, place: tuple[int, int], dtype: np.dtype[Any]) -> memoryview:
    stored = view(saved.contents, *place)
    if not saved.is_big_endian:
        return stored
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    words = np.frombuffer(stored, f">u{size}")
    return words.astype(f"<u{size}").data
