r"""Read `.npy` files, one array each, without numpy's own loader.

    \x93NUMPY 1 0 │ length │ {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } │ values

Arrays of Python objects are pickles in disguise and are refused.
"""

import re
import struct
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from firstdrift.dumps.containers.contents import (
    Contents,
    DamagedError,
    TensorHeader,
    quoted,
    shape_of,
    unpack,
    view,
)
from firstdrift.dumps.containers.values import DTYPES, read_only
from firstdrift.wording.message import Message

_MAGIC = b"\x93NUMPY"
_LENGTH_BY_VERSION = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}
_LONGEST_HEADER = 64 * 1024
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([^'"]*)['"]""")
_STRUCTURED = re.compile(r"""['"]descr['"]\s*:\s*\[""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([0-9,L\s]*)\)""")
_NUMBER = re.compile(r"[0-9]+")
_MOST_DIGITS = 19
_NUMERIC = {
    written.str: written
    for dtype in DTYPES.values()
    if dtype.kind in "biufc"
    for written in (dtype, dtype.newbyteorder(">"))
}


class _Layout(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @property
    def size(self) -> int:
        """How many bytes the values take."""
        return prod(self.shape) * self.dtype.itemsize


def headers(_file: Path, contents: Contents) -> list[TensorHeader]:
    """List the one array of a file."""
    return [header(contents, len(contents))]


def load(_file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load the array of a file."""
    if entry:
        raise DamagedError(Message.of("dumps.npy.has_no_names", tensor=quoted(entry)))
    return array_in(contents)


def array_in(contents: Contents | memoryview) -> npt.NDArray[Any]:
    """Return the array that the bytes of a `.npy` file hold, read-only."""
    layout, start = _read_layout(contents, len(contents))
    if 0 in layout.shape:
        return read_only(np.empty(layout.shape, layout.dtype.newbyteorder("=")))
    array: npt.NDArray[Any] = np.ndarray(
        layout.shape, layout.dtype, view(contents, start, layout.size), order=layout.order
    )
    if array.dtype.isnative and array.flags.aligned:
        return array
    return read_only(array.astype(array.dtype.newbyteorder("=")))


def header(beginning: Contents, size: int) -> TensorHeader:
    """Describe the array of a file of a size in bytes, of which the first 64 KB and more are given."""
    layout, _ = _read_layout(beginning, size)
    return TensorHeader("", layout.dtype.newbyteorder("=").name, layout.shape)


def _read_layout(contents: Contents | memoryview, file_size: int) -> tuple[_Layout, int]:
    length_form = _LENGTH_BY_VERSION.get(contents[6]) if len(contents) > len(_MAGIC) + 1 else None
    if contents[: len(_MAGIC)] != _MAGIC or length_form is None:
        raise DamagedError(Message.of("dumps.npy.not_one"))
    begin = len(_MAGIC) + 2 + length_form.size
    if begin > len(contents):
        raise DamagedError(Message.of("dumps.file.cut_short"))
    (length,) = unpack(length_form, contents, len(_MAGIC) + 2)
    start = begin + length
    if length > _LONGEST_HEADER or start > len(contents):
        raise DamagedError(Message.of("dumps.npy.header_cut_short"))
    layout = _parse_header(bytes(contents[begin:start]))
    available = file_size - start
    if layout.size > available:
        raise DamagedError(Message.of("dumps.file.values_cut_short", needed=layout.size, available=available))
    return layout, start


@lru_cache(maxsize=1024)
def _parse_header(header: bytes) -> _Layout:
    text = header.decode("latin-1")
    if _STRUCTURED.search(text) and not _DESCR.search(text):
        raise DamagedError(Message.of("dumps.npy.structured"))
    descr, order, shape = (_said(text, field) for field in (_DESCR, _ORDER, _SHAPE))
    numbers = _NUMBER.findall(shape)
    if max(map(len, numbers), default=0) > _MOST_DIGITS:
        raise DamagedError(Message.of("dumps.npy.impossible_shape"))
    return _Layout(_dtype(descr), shape_of([*map(int, numbers)]), "F" if order == "True" else "C")


def _said(header: str, field: re.Pattern[str]) -> str:
    found = field.search(header)
    if found is None:
        raise DamagedError(Message.of("dumps.npy.header_damaged"))
    return found[1]


def _dtype(descr: str) -> np.dtype[Any]:
    if descr in {"<V2", "|V2"}:
        # numpy cannot name ml_dtypes; of its types of two bytes there is only this one.
        return DTYPES["bfloat16"]
    if descr not in _NUMERIC:
        raise DamagedError(Message.of("dumps.npy.unknown_dtype", dtype=quoted(descr)))
    return _NUMERIC[descr]
