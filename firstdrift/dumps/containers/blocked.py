"""Put values that lie in blocks, as Ascend's matrix unit wants them, in the order of their dims.

| format      | as it lies                       | as it is meant      |
| ----------- | -------------------------------- | ------------------- |
| FRACTAL_NZ  | ..., n / n0, m / m0, m0, n0      | ..., m, n           |
| NC1HWC0     | n, c / c0, h, w, c0              | n, c, h, w          |
| FRACTAL_Z   | c / c0 * h * w, n / n0, n0, c0   | n, c, h, w          |

Dimensions that do not fill their last block are padded there; the padding is cut off.
"""

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy.typing as npt

Shape: TypeAlias = tuple[int, ...]
_Array: TypeAlias = npt.NDArray[Any]

_IMAGE = 4


def can_unblock(name: str, stored: Shape, meant: Shape) -> bool:
    """Tell whether values of a stored shape can be put in the order of the shape that is meant."""
    fits = _FITS.get(name)
    return fits is not None and 0 not in stored and fits(stored, meant)


def unblock(name: str, values: _Array, meant: Shape) -> _Array:
    """Return the values in the order of the shape that is meant; `can_unblock` must allow it."""
    return _UNBLOCK[name](values, meant)


def _fits_nz(stored: Shape, meant: Shape) -> bool:
    if len(stored) < 4 or len(meant) < 2:  # noqa: PLR2004 (four dims are a matrix in blocks)
        return False
    columns, rows, rows_0, columns_0 = stored[-4:]
    whole = prod(stored[:-4]) == prod(meant[:-2])
    return whole and _fills(meant[-2], rows, rows_0) and _fills(meant[-1], columns, columns_0)


def _unblock_nz(values: _Array, meant: Shape) -> _Array:
    columns, rows, rows_0, columns_0 = values.shape[-4:]
    whole = values.reshape(-1, columns, rows, rows_0, columns_0).transpose(0, 2, 3, 1, 4)
    matrices = whole.reshape(-1, rows * rows_0, columns * columns_0)
    return matrices[:, : meant[-2], : meant[-1]].reshape(meant)


def _fits_channels(stored: Shape, meant: Shape) -> bool:
    if len(stored) != _IMAGE + 1 or len(meant) != _IMAGE:
        return False
    batch, channels, height, width, channels_0 = stored
    return meant == (batch, meant[1], height, width) and _fills(meant[1], channels, channels_0)


def _unblock_channels(values: _Array, meant: Shape) -> _Array:
    batch, channels, height, width, channels_0 = values.shape
    whole = values.transpose(0, 1, 4, 2, 3).reshape(batch, channels * channels_0, height, width)
    return whole[:, : meant[1]].reshape(meant)


def _fits_filter(stored: Shape, meant: Shape) -> bool:
    if len(stored) != _IMAGE or len(meant) != _IMAGE:
        return False
    area, filters, filters_0, channels_0 = stored
    number, channels, height, width = meant
    blocks, rest = divmod(area, max(height * width, 1))
    return rest == 0 and _fills(number, filters, filters_0) and _fills(channels, blocks, channels_0)


def _unblock_filter(values: _Array, meant: Shape) -> _Array:
    number, channels, height, width = meant
    _, filters, filters_0, channels_0 = values.shape
    whole = values.reshape(-1, height, width, filters, filters_0, channels_0).transpose(3, 4, 0, 5, 1, 2)
    return whole.reshape(filters * filters_0, -1, height, width)[:number, :channels].reshape(meant)


def _fills(size: int, blocks: int, block: int) -> bool:
    """Tell whether a dimension takes so many blocks, the last of them at least in part."""
    return (blocks - 1) * block < size <= blocks * block


_FITS: dict[str, Callable[[Shape, Shape], bool]] = {
    "FRACTAL_NZ": _fits_nz,
    "NC1HWC0": _fits_channels,
    "FRACTAL_Z": _fits_filter,
}
_UNBLOCK: dict[str, Callable[[_Array, Shape], _Array]] = {
    "FRACTAL_NZ": _unblock_nz,
    "NC1HWC0": _unblock_channels,
    "FRACTAL_Z": _unblock_filter,
}
