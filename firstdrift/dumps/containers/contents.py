"""The bytes of a file and what its headers say: small files are read, large ones are mapped."""

import mmap
import os
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from firstdrift.files import RefusedError, open_descriptor

MAPPED_FROM = 128 * 1024
"""Size in bytes from which mapping a file is cheaper than reading it."""

_MOST_DIMENSIONS = 64
LARGEST_NUMBER = 2**63 - 1
"""The most elements that a tensor can have, along a dimension and in all."""

_IMPOSSIBLE = "a shape, stride or offset in it is none that a tensor can have"
_LONGEST_QUOTE = 80

_FILES_KEPT = 4

Contents = bytes | mmap.mmap
Parsed = TypeVar("Parsed")


class DamagedError(ValueError):
    """The bytes of a file are not what its format demands; the text says in which way."""


def whole_numbers(values: object) -> tuple[int, ...]:
    """Return the sizes, strides or offsets that a file gives.

    Raises:
        DamagedError: no array has such.
    """
    if (
        not isinstance(values, tuple | list)
        or len(values) > _MOST_DIMENSIONS
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


def quoted(text: str) -> str:
    """Quote text from a file in an error: control characters are written out, long text is cut."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")


class TensorHeader(Struct, frozen=True):
    """What a file says of one of its tensors, known without reading values.

    Attributes:
        entry: its name inside the file; empty for a file of one tensor.
        dtype: numpy or ml_dtypes name; the file's own word for it where numpy has none.
        shape: dimensions; None where the tensor cannot be read.
        digest: checksum of the raw bytes, where the file holds one.
        problem: why this tensor cannot be loaded although the rest of the file can.
    """

    entry: str
    dtype: str
    shape: tuple[int, ...] | None
    digest: str | None = None
    problem: str | None = None


def file_contents(file: Path) -> Contents:
    """Return the bytes of a regular file.

    Raises:
        DamagedError: it is missing, empty, no regular file or may not be read.
    """
    try:
        descriptor = open_descriptor(file)
    except FileNotFoundError as exc:
        raise DamagedError("the file is missing") from exc
    except RefusedError as exc:
        raise DamagedError(exc.reason) from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "this is no path"
        raise DamagedError(f"the file cannot be opened ({reason})") from exc
    try:
        return _read_or_map(descriptor)
    except OSError as exc:
        raise DamagedError(f"the file cannot be read ({exc.strerror})") from exc
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
            raise DamagedError("the file is missing") from exc
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._parse(contents)
            while len(self._known) > _FILES_KEPT:
                self._known.popitem(last=False)
        return known


def _read_or_map(descriptor: int) -> Contents:
    status = os.fstat(descriptor)
    if status.st_size == 0:
        raise DamagedError("the file is empty")
    if status.st_size < MAPPED_FROM:
        return os.read(descriptor, status.st_size)
    return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
