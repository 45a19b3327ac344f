"""Decoding elements of any real dtype to float64, compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt
from numba import njit

from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array, Floats

Function = TypeVar("Function", bound=Callable[..., Any])
Bytes: TypeAlias = npt.NDArray[np.uint8]
Halves: TypeAlias = npt.NDArray[np.uint16]
Words: TypeAlias = npt.NDArray[np.uint32]
Integers: TypeAlias = npt.NDArray[np.int64]

_FLOAT16_EXPONENT = np.uint16(0x7C00)

_TABLE, _FLOAT64, _FLOAT32, _FLOAT16, _BFLOAT16, _INT16, _UINT16, _INT32, _UINT32 = range(9)
_CODES: dict[np.dtype[Any], int] = {
    np.dtype(np.float64): _FLOAT64,
    np.dtype(np.float32): _FLOAT32,
    np.dtype(np.float16): _FLOAT16,
    np.dtype(ml_dtypes.bfloat16): _BFLOAT16,
    np.dtype(np.int16): _INT16,
    np.dtype(np.uint16): _UINT16,
    np.dtype(np.int32): _INT32,
    np.dtype(np.uint32): _UINT32,
}
"""Dtypes that are decoded by arithmetic; those of one byte are looked up in a table."""


class Encoded(NamedTuple):
    """A tensor as the kernel reads it; `table` holds the values of all 256 bytes for a byte dtype."""

    raw: Bytes
    code: int
    itemsize: int
    table: Floats


def supports(array: Array) -> bool:
    """Tell whether the kernel decodes the dtype of an array."""
    return array.itemsize == 1 or array.dtype in _CODES


def encode(array: Array) -> Encoded:
    """Give the kernel a tensor of a supported dtype to read."""
    raw = np.require(array, requirements=("C", "A")).reshape(-1).view(np.uint8)
    raw.flags.writeable = False  # on this view only; all arguments are of one type, so one kernel will do
    code = _CODES.get(array.dtype, _TABLE)
    return Encoded(raw, code, array.itemsize, _NO_TABLE if code else _table(array.dtype))


_NO_TABLE = np.zeros(1)
_tables: dict[np.dtype[Any], Floats] = {}


def _table(dtype: np.dtype[Any]) -> Floats:
    if dtype not in _tables:
        table = np.empty(256)
        with np.errstate(invalid="ignore"):
            as_float64(np.arange(256, dtype=np.uint8).view(dtype), table)
        _tables[dtype] = table
    return _tables[dtype]


def _nothing() -> None:
    """Stand for any function that is compiled."""


def _cache_is_writable() -> bool:
    try:
        njit(cache=True)(_nothing)
    except RuntimeError:
        return False
    return True


_CACHE = _cache_is_writable()


def exact(function: Function) -> Function:
    """Compile with every operation as written."""
    compiled: Function = njit(function, nogil=True, cache=_CACHE, error_model="numpy")
    return compiled


def reassociating(function: Function) -> Function:
    """Compile with leave to reorder and fuse additions."""
    compiled: Function = njit(
        function, nogil=True, cache=_CACHE, error_model="numpy", fastmath={"reassoc", "contract"}
    )
    return compiled


@exact
def _widen(values: Array, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = values[i]


@exact
def _look_up(values: Bytes, table: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = table[values[i]]


@exact
def _widen_bfloat16(halves: Halves, words: Words, out: Floats) -> None:
    for i in range(len(out)):
        words[i] = np.uint32(halves[i]) << np.uint32(16)
    _widen(words[: len(out)].view(np.float32), out)


@exact
def _widen_float16(halves: Halves, words: Words, out: Floats) -> None:
    # Shifted to where float32 has its fields, the number is too small by the difference of the
    # exponent biases, subnormals included; an exponent of all ones is put right afterwards.
    special = 0
    for i in range(len(out)):
        half = np.uint32(halves[i])
        words[i] = ((half & np.uint32(0x8000)) << np.uint32(16)) | (
            (half & np.uint32(0x7FFF)) << np.uint32(13)
        )
        special += (halves[i] & _FLOAT16_EXPONENT) == _FLOAT16_EXPONENT
    floats = words.view(np.float32)
    for i in range(len(out)):
        out[i] = np.float64(floats[i]) * 2.0**112
    if special:
        for i in range(len(out)):
            if halves[i] & _FLOAT16_EXPONENT == _FLOAT16_EXPONENT:
                out[i] = np.nan if halves[i] & 0x03FF else (-np.inf if halves[i] & 0x8000 else np.inf)


@exact
def decode(tensor: Encoded, start: int, words: Words, out: Floats) -> None:
    """Write the elements from `start` on to `out`, as many as it holds."""
    raw = tensor.raw[start * tensor.itemsize : (start + len(out)) * tensor.itemsize]
    if tensor.code == _FLOAT32:
        _widen(raw.view(np.float32), out)
    elif tensor.code == _BFLOAT16:
        _widen_bfloat16(raw.view(np.uint16), words, out)
    elif tensor.code == _FLOAT16:
        _widen_float16(raw.view(np.uint16), words, out)
    elif tensor.code == _FLOAT64:
        _widen(raw.view(np.float64), out)
    elif tensor.code == _INT16:
        _widen(raw.view(np.int16), out)
    elif tensor.code == _UINT16:
        _widen(raw.view(np.uint16), out)
    elif tensor.code == _INT32:
        _widen(raw.view(np.int32), out)
    elif tensor.code == _UINT32:
        _widen(raw.view(np.uint32), out)
    else:
        _look_up(raw, tensor.table, out)
