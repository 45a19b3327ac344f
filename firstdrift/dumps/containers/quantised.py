"""Whole numbers (or small floats) that stand for fractions, made fractions again.

    weight int8 [32, 64]   weight_scale [32, 1]   weight_offset [32, 1]   →   (weight - offset) x scale

A scale is one number, or lies along the weight: of each dimension it has one entry for all, one for each
index, or one for each block of indices (per tensor, per channel, per group, per block of 128 x 128).
Numbers of four bits lie eight in a word of 32 bits along the last dimension, the lowest first, with 8 added.

Where the three lie stands in `DataLocation.entry` (`checkpoint.Description`).
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from firstdrift.dumps.checkpoint import Part, block_of, description_of, fits
from firstdrift.dumps.containers.contents import Contents, DamagedError
from firstdrift.dumps.containers.values import read_only
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message

_PER_WORD: Final = 8
_ZERO_OF_FOUR_BITS: Final = 8
_WORD: Final = 4


def load(file: Path, _contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load the fractions as float32; float64 where the scale is."""
    said = description_of(entry)
    if said is None:
        raise DamagedError(Message.of("dumps.quantised.no_description"))

    def load_part(part: Part) -> npt.NDArray[Any]:
        return load_tensor(DataLocation(file.parent / part.file, part.container, part.entry))

    weight, scale = load_part(said.weight), load_part(said.scale)
    offset = None if said.offset is None else load_part(said.offset)
    if said.is_packed:
        weight = _four_bits(weight, axis=-1)
        offset = None if offset is None else _four_bits(offset, axis=0)
    return dequantise(weight, scale, offset)


def dequantise(
    weight: npt.NDArray[Any], scale: npt.NDArray[Any], offset: npt.NDArray[Any] | None
) -> npt.NDArray[Any]:
    """Return (weight - offset) x scale, read-only."""
    dtype = np.float64 if np.float64 in (weight.dtype, scale.dtype) else np.float32
    values: npt.NDArray[Any] = weight.astype(dtype)
    with np.errstate(all="ignore"):
        if offset is not None:
            np.subtract(values, spread(offset.astype(dtype), weight.shape, "offset"), out=values)
        np.multiply(values, spread(scale.astype(dtype), weight.shape, "scale"), out=values)
    return read_only(values)


def spread(values: npt.NDArray[Any], shape: tuple[int, ...], what: str) -> npt.NDArray[Any]:
    """Lay a scale along a weight."""
    if not fits(values.shape, shape):
        shapes = {"shape": str(list(values.shape)), "weight": str(list(shape))}
        raise DamagedError(Message.of("dumps.quantised.does_not_fit", what=what, **shapes))
    if values.size == 1:
        return values.reshape((1,) * len(shape))
    if values.ndim == 1 and len(shape) > 1:
        values = values.reshape(-1, *(1,) * (len(shape) - 1))
    for axis, (length, count) in enumerate(zip(shape, values.shape, strict=True)):
        if count not in (1, length) and (block := block_of(length, count)):
            values = np.repeat(values, block, axis=axis)
            values = np.take(values, range(length), axis=axis)
    return values


def _four_bits(words: npt.NDArray[Any], axis: int) -> npt.NDArray[np.int8]:
    """Unpack numbers of four bits, eight in a word, along a dimension."""
    if words.dtype.itemsize != _WORD or words.ndim == 0:
        raise DamagedError(Message.of("dumps.quantised.not_packed", dtype=str(words.dtype)))
    bits = np.moveaxis(words, axis, -1).astype(np.uint32, order="C")
    parts = np.stack([(bits >> (4 * at)) & 0xF for at in range(_PER_WORD)], axis=-1)
    flat = parts.reshape(*bits.shape[:-1], -1).astype(np.int8) - np.int8(_ZERO_OF_FOUR_BITS)
    return np.moveaxis(flat, -1, axis)
