"""The bytes of a file and what its headers say: small files are read, large ones are mapped.

A process that serves others maps nothing (`files.allow_mapping`): a file that is made shorter while it is
mapped ends the process. There large files are read range by range, those that are asked for (`Ranges`).
"""

import mmap
import os
import struct
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from firstdrift.files import RefusedError, may_map, open_descriptor
from firstdrift.wording.message import Message

MAPPED_FROM = 128 * 1024
"""Size in bytes from which mapping a file is cheaper than reading it."""

MOST_DIMENSIONS = 64
LARGEST_NUMBER = 2**63 - 1
"""The most elements that a tensor can have, along a dimension and in all."""

_MOST_DIGITS = len(str(LARGEST_NUMBER))

_IMPOSSIBLE = Message.of("dumps.file.impossible_numbers")
_LONGEST_QUOTE = 80

_FILES_KEPT = 4

_BLOCK = 64 * 1024
"""Bytes that are read at once where few are asked for: headers are parsed byte by byte."""

_LINE = 256
"""Bytes that are looked through at first for the end of a line."""

_CUT_SHORT = Message.of("dumps.file.cut_short_meanwhile")
Parsed = TypeVar("Parsed")


class DamagedError(ValueError):
    """The bytes of a file are not what its format demands; its message says in which way.

    Whatever reads a container raises it.
    """

    def __init__(self, message: Message) -> None:
        """Take what is wrong, as a clause."""
        super().__init__(message)
        self.message = message


class Ranges:
    """The bytes of a file that is not mapped: what is asked for is read, and nothing else."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Take a descriptor, which is closed with the last reference to this, and the size of its file."""
        self._descriptor, self._size = descriptor, size
        self._block = (0, b"")
        weakref.finalize(self, os.close, descriptor)

    def __len__(self) -> int:
        """Return the size of the file when it was opened."""
        return self._size

    @overload
    def __getitem__(self, wanted: int) -> int: ...

    @overload
    def __getitem__(self, wanted: slice) -> bytes: ...

    def __getitem__(self, wanted: int | slice) -> int | bytes:
        """Return a byte, or the bytes of a range.

        Raises:
            IndexError: there is no such byte.
            DamagedError: the file is shorter by now, or cannot be read.
        """
        if isinstance(wanted, int):
            if not 0 <= wanted < self._size:
                raise IndexError(wanted)
            return self._few(wanted, wanted + 1)[0]
        start, stop, _ = wanted.indices(self._size)
        if stop - start <= _BLOCK:
            return self._few(start, stop) if start < stop else b""
        return bytes(self.read(start, stop - start))

    def find(self, wanted: bytes, start: int) -> int:
        """Return where a byte occurs first at or after a place; -1 if it does not."""
        step = _LINE
        while start < self._size:
            found = self[start : start + step].find(wanted)
            if found >= 0:
                return start + found
            start += step
            step = min(2 * step, _BLOCK)
        return -1

    def read(self, start: int, size: int) -> bytearray:
        """Read a range that lies in the file.

        Raises:
            DamagedError: the file is shorter by now, or cannot be read.
        """
        values = bytearray(size)
        left = memoryview(values)
        while left:
            try:
                count = os.preadv(self._descriptor, [left], start)
            except OSError as exc:
                raise DamagedError(Message.of("dumps.file.unreadable", error=exc.strerror)) from exc
            if count == 0:
                raise DamagedError(_CUT_SHORT)
            left, start = left[count:], start + count
        return values

    def _few(self, start: int, stop: int) -> bytes:
        at, block = self._block
        if not at <= start <= stop <= at + len(block):
            at, block = start, bytes(self.read(start, min(_BLOCK, self._size - start)))
            self._block = at, block
        return block[start - at : stop - at]


Contents = bytes | mmap.mmap | Ranges


def view(contents: Contents | memoryview, start: int, size: int) -> memoryview:
    """Return a range of a file, read-only: in place where it is mapped.

    Raises:
        DamagedError: it does not lie in the file.
    """
    if start < 0 or size < 0 or start + size > len(contents):
        raise DamagedError(Message.of("dumps.file.values_past_end"))
    if isinstance(contents, Ranges):
        return memoryview(contents.read(start, size)).toreadonly()
    return memoryview(contents)[start : start + size]


def unpack(form: struct.Struct, contents: Contents | memoryview, at: int) -> tuple[Any, ...]:
    """Unpack what lies at a place.

    Raises:
        struct.error: the file ends before.
    """
    return form.unpack(contents[at : at + form.size])


def whole_numbers(values: object) -> tuple[int, ...]:
    """Return the sizes, strides or offsets that a file gives.

    Raises:
        DamagedError: no array has such.
    """
    if (
        not isinstance(values, tuple | list)
        or len(values) > MOST_DIMENSIONS
        or not all(type(value) is int and 0 <= value <= LARGEST_NUMBER for value in values)
    ):
        raise DamagedError(_IMPOSSIBLE)
    return tuple(values)


def shape_of(values: object) -> tuple[int, ...]:
    """Return the shape that a file gives, where the error spoils no other tensor.

    Raises:
        DamagedError: no array has such a shape, or so many elements.
    """
    shape = whole_numbers(values)
    if prod(shape) > LARGEST_NUMBER:
        raise DamagedError(_IMPOSSIBLE)
    return shape


def sizes_in(text: str) -> tuple[int, ...] | None:
    """Return the shape whose sizes stand in a text between commas and blanks; None if no array has such."""
    words = text.replace(",", " ").split()
    if any(len(word) > _MOST_DIGITS for word in words):
        return None
    try:
        return shape_of([*map(int, words)])
    except DamagedError:
        return None


def number_in(text: str) -> float | None:
    """Return the number that a text is; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def quoted(text: str) -> str:
    """Quote text from a file in an error: control characters are written out, long text is cut."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")


def found_in(tensors: Mapping[str, Parsed], entry: str) -> Parsed:
    """Return what a file holds under a name.

    Raises:
        DamagedError: it holds nothing so named.
    """
    if entry not in tensors:
        raise DamagedError(Message.of("dumps.file.no_such_tensor", tensor=quoted(entry)))
    return tensors[entry]


class TensorHeader(Struct, frozen=True):
    """What a file says of one of its tensors, known without reading values.

    Attributes:
        entry: its name inside the file; empty for a file of one tensor.
        dtype: numpy or ml_dtypes name; the file's own word for it where numpy has none.
        shape: dimensions; None where the tensor cannot be read.
        digest: checksum of the raw bytes, where the file holds one.
        problem: why this tensor cannot be loaded although the rest of the file can.
        is_refused: whether the file must not be read at all.
    """

    entry: str
    dtype: str
    shape: tuple[int, ...] | None
    digest: str | None = None
    problem: Message | None = None
    is_refused: bool = False


def file_contents(file: Path) -> Contents:
    """Return the bytes of a regular file.

    Raises:
        DamagedError: it is missing, empty, no regular file or may not be read.
    """
    try:
        descriptor = open_descriptor(file)
    except FileNotFoundError as exc:
        raise DamagedError(Message.of("dumps.file.missing")) from exc
    except RefusedError as exc:
        raise DamagedError(exc.message) from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else Message.of("dumps.file.no_path")
        raise DamagedError(Message.of("dumps.file.cannot_be_opened", error=reason)) from exc
    try:
        size = os.fstat(descriptor).st_size
        if size >= MAPPED_FROM and not may_map():
            return Ranges(os.dup(descriptor), size)
        return _read_or_map(descriptor, size)
    except OSError as exc:
        raise DamagedError(Message.of("dumps.file.unreadable", error=exc.strerror)) from exc
    finally:
        os.close(descriptor)


class ParsedFiles(Generic[Parsed]):
    """What was made of the files that were read last: one of many tensors is not parsed anew for each."""

    def __init__(self, parse: Callable[[Contents], Parsed]) -> None:
        """Take what makes something of the bytes of a file."""
        self._parse = parse
        self._known: OrderedDict[tuple[Path, int, int], Parsed] = OrderedDict()

    def of(self, file: Path, contents: Contents) -> Parsed:
        """Return what was made of a file, made anew if it has changed.

        Raises:
            DamagedError: it is missing by now, or cannot be parsed.
        """
        try:
            key = (file, len(contents), file.stat().st_mtime_ns)
        except OSError as exc:
            raise DamagedError(Message.of("dumps.file.missing")) from exc
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._parse(contents)
            while len(self._known) > _FILES_KEPT:
                self._known.popitem(last=False)
        return known


def _read_or_map(descriptor: int, size: int) -> Contents:
    if size == 0:
        raise DamagedError(Message.of("dumps.file.empty"))
    if size < MAPPED_FROM:
        return os.read(descriptor, size)
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except ValueError as exc:
        raise DamagedError(_CUT_SHORT) from exc
