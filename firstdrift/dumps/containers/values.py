"""Values that lie in a file one after the other, little-endian, as arrays."""

from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from firstdrift.dumps.containers.contents import Contents, view

_NUMPY_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_ML_NAMES = (
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    "float8_e8m0fnu",
)

DTYPES: dict[str, np.dtype[np.generic]] = {
    **{name: np.dtype(name) for name in _NUMPY_NAMES},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _ML_NAMES},
}
"""The element types that can be read, by the name that torch, numpy and ml_dtypes share."""

INT4: Final = "int4"
"""Two in a byte, in two's complement, the low half first."""


FLOAT4: Final = "float4_e2m1fn"
"""Two in a byte, the low half first; given as float32, which holds them exactly."""

_HALVES: Final[dict[str, npt.NDArray[Any]]] = {
    INT4: np.array([*range(8), *range(-8, 0)]).astype(ml_dtypes.int4),
    FLOAT4: np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32),
}
"""What each half of a byte stands for."""


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes values take; None if there are no arrays of the dtype."""
    if dtype in _HALVES:
        return -(-prod(shape) // 2)
    return prod(shape) * DTYPES[dtype].itemsize if dtype in DTYPES else None


def values_at(contents: Contents, begin: int, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the values that begin at a place, read-only."""
    size = size_of(dtype, shape) or 0
    if 0 in shape:
        return read_only(np.empty(shape, _HALVES[dtype].dtype if dtype in _HALVES else DTYPES[dtype]))
    if dtype in _HALVES:
        packed = np.frombuffer(view(contents, begin, size), np.uint8)
        halves = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(-1)[: prod(shape)]
        return read_only(_HALVES[dtype][halves].reshape(shape))
    array = np.ndarray(shape, DTYPES[dtype], view(contents, begin, size))
    return read_only(array if array.flags.aligned else array.copy())


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Let nobody write to an array."""
    array.flags.writeable = False
    return array
