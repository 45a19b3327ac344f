"""What the difference of two tensors looks like: a pure function per question."""

import math

import numpy as np
from msgspec import Struct

from firstdrift.metrics.conversion import as_float64
from firstdrift.metrics.dtypes import Array


class LinearFit(Struct, frozen=True):
    """The line target = scale * golden + offset that fits best (least squares).

    Attributes:
        scale: slope of the line; 1 where golden is constant, so that a shift is an offset.
        offset: intercept of the line.
        residual: |target - line| / |golden|, norms: the relative L2 error that is left; 0 if both are 0.
        size: number of pairs of finite elements it was fitted to.
    """

    scale: float
    offset: float
    residual: float
    size: int


def fit(golden: Array, target: Array) -> LinearFit | None:
    """Fit target = scale * golden + offset over the pairs of finite elements.

    Returns:
        None if no pair is finite. Complex numbers are fitted by their moduli.

    Raises:
        ValueError: the shapes differ.
    """
    if golden.shape != target.shape:
        raise ValueError(f"shapes differ: {golden.shape} and {target.shape}")
    x, y = np.empty(golden.size), np.empty(golden.size)
    as_float64(golden.reshape(-1), x)
    as_float64(target.reshape(-1), y)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if not x.size:
        return None
    mean_x, mean_y = float(x.mean()), float(y.mean())
    centred = x - mean_x
    spread = float(centred @ centred)
    scale = float(centred @ (y - mean_y)) / spread if spread else 1.0
    offset = mean_y - scale * mean_x
    left = float(np.linalg.norm(y - (scale * x + offset)))
    norm = float(np.linalg.norm(x))
    residual = left / norm if norm else (math.inf if left else 0.0)
    return LinearFit(scale, offset, residual, x.size)
