"""Pairs of tensors of every dtype, drawn bit by bit so that every kind of number occurs."""

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

FLOATS = [
    np.dtype(name)
    for name in (
        np.float64,
        np.float32,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fnuz,
    )
]
INTEGERS = [
    np.dtype(name)
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
]

shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=7)


def _bits(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    if dtype == np.bool_:
        return hnp.arrays(dtype, shape)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return hnp.arrays(unsigned, shape).map(
        lambda array: _moderate(array.view(dtype) if array.shape else _scalar(array, dtype))
    )


def _scalar(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return np.frombuffer(array.tobytes(), dtype).reshape(())


def _moderate(array: np.ndarray) -> np.ndarray:
    """Keep float64 where squares neither overflow nor vanish: beyond, sums are documented to differ."""
    if array.dtype != np.float64:
        return array
    magnitude = np.abs(array)
    return np.where((magnitude > 1e100) & np.isfinite(array) | (magnitude < 1e-100), 1.5, array)


@st.composite
def pairs(draw: st.DrawFn, dtypes: list[np.dtype[Any]] = FLOATS + INTEGERS) -> tuple[np.ndarray, np.ndarray]:
    """Draw a golden tensor, and a target that is another one, or nearly the same, or a cast of it."""
    shape = draw(shapes)
    golden_dtype, target_dtype = draw(st.sampled_from(dtypes)), draw(st.sampled_from(dtypes))
    golden = draw(_bits(golden_dtype, shape))
    kind = draw(st.sampled_from(["other", "close", "cast", "special"]))
    if kind == "other":
        return golden, draw(_bits(target_dtype, shape))
    if kind == "cast":
        with np.errstate(all="ignore"):
            return golden, _moderate(golden.astype(target_dtype))
    other = draw(_bits(golden_dtype, shape))
    keep = draw(hnp.arrays(np.bool_, shape))
    if kind == "special" and golden_dtype in FLOATS:
        special = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0]))
        other = np.full(shape, special).astype(golden_dtype)
    return golden, np.where(keep, golden, other).astype(golden_dtype)
