"""Values that lie in a file one after the other, little-endian, as arrays."""

from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from firstdrift.dumps.containers.contents import Contents, view
from firstdrift.dumps.containers.dtypes import DTYPES

INT4: Final = "int4"
"""Two in a byte, in two's complement, the low half first."""


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes values take; None if there are no arrays of the dtype."""
    if dtype == INT4:
        return -(-prod(shape) // 2)
    return prod(shape) * DTYPES[dtype].itemsize if dtype in DTYPES else None


def values_at(contents: Contents, begin: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the values that begin at a place, read-only."""
    size = size_of(dtype, shape) or 0
    if 0 in shape:
        array: npt.NDArray[Any] = np.empty(shape, ml_dtypes.int4 if dtype == INT4 else DTYPES[dtype])
    elif dtype == INT4:
        array = _unpacked(np.frombuffer(view(contents, begin, size), np.uint8), shape)
    else:
        array = np.ndarray(shape, DTYPES[dtype], view(contents, begin, size))
        array = array if array.flags.aligned else array.copy()
    array.flags.writeable = False
    return array


def _unpacked(packed: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    halves = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(-1)[: prod(shape)]
    return ((halves.astype(np.int8) ^ 8) - 8).astype(ml_dtypes.int4).reshape(shape)
