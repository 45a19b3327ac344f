"""What kind of numbers a dtype holds, ml_dtypes included.

float32, bfloat16, float8_e4m3fn   floating
int64, uint8, int4, bool           integer
complex64                          complex
"""

from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]

_KINDS = {"b": "integer", "i": "integer", "u": "integer", "f": "floating", "c": "complex"}


class NumberKind(StrEnum):
    """What kind of numbers a dtype holds."""

    INTEGER = "integer"
    FLOATING = "floating"
    COMPLEX = "complex"


def require_one_shape(golden: Array, target: Array) -> None:
    """Refuse tensors of different shapes.

    Raises:
        ValueError: the shapes differ.
    """
    if golden.shape != target.shape:
        raise ValueError(f"shapes differ: {golden.shape} and {target.shape}")


@lru_cache(maxsize=256)
def number_kind(dtype: np.dtype[np.generic]) -> NumberKind | None:
    """Return the kind of numbers that a dtype holds (bool is an integer), or None if it holds none."""
    if dtype.type.__module__ == "ml_dtypes":
        return NumberKind.INTEGER if dtype.name.startswith(("int", "uint")) else NumberKind.FLOATING
    kind = _KINDS.get(dtype.kind)
    return None if kind is None else NumberKind(kind)
