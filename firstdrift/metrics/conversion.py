"""Elements of any numeric dtype as float64, and their differences without loss.

| pair                           | golden, target  | difference                                          |
| ------------------------------ | --------------- | --------------------------------------------------- |
| floats and integers            | as float64      | target - golden, in float64                         |
| integers, one of 64 bits       | rounded         | exact in integers, then rounded                     |
| complex with anything          | modulus         | modulus of the difference; signed: of the moduli    |
"""

from collections.abc import Sequence

import numpy as np

from firstdrift.metrics.dtypes import Array, Floats, NumberKind, number_kind

_EXACT_IN_FLOAT64 = 4
"""Integers of up to so many bytes, and their differences, are exact in float64."""


def as_float64(array: Array, out: Floats) -> None:
    """Write the elements (complex: their moduli) to `out`."""
    if number_kind(array.dtype) is NumberKind.COMPLEX:
        np.abs(array.astype(np.complex128), out=out)
    else:
        out[...] = array


def widened(array: Array) -> Array:
    """Return the elements as float64, or complex128."""
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def finite(array: Array) -> Array:
    """Return the elements as float64, or complex128, with 0 for NaN and infinities."""
    wide = widened(array)
    return np.where(np.isfinite(wide), wide, 0)


def alike(arrays: Sequence[Array]) -> list[Array]:
    """Return arrays of one dtype as they are, others as float64; complex128 if one is complex."""
    if len({array.dtype for array in arrays}) == 1:
        return list(arrays)
    wide = np.complex128 if any(map(np.iscomplexobj, arrays)) else np.float64
    return [array.astype(wide) for array in arrays]


def fill(golden: Array, target: Array, work: Floats) -> None:
    """Write golden, target, their difference and its absolute value to the four rows of `work`."""
    as_float64(golden, work[0])
    as_float64(target, work[1])
    np.subtract(work[1], work[0], out=work[2])
    kinds = number_kind(golden.dtype), number_kind(target.dtype)
    if NumberKind.COMPLEX in kinds:
        np.abs(target.astype(np.complex128) - golden.astype(np.complex128), out=work[3])
        return
    if (
        kinds == (NumberKind.INTEGER, NumberKind.INTEGER)
        and max(golden.itemsize, target.itemsize) > _EXACT_IN_FLOAT64
    ):
        _subtract_integers(golden, target, out=work[2])
    np.abs(work[2], out=work[3])


def _subtract_integers(golden: Array, target: Array, out: Floats) -> None:
    # The distance of two integers is exact modulo 2**64 once it is known which is the larger.
    common = np.uint64 if np.uint64 in (golden.dtype, target.dtype) else np.int64
    below_zero = (golden < 0) | (target < 0) if common is np.uint64 else None
    left, right = golden.astype(common), target.astype(common)
    distance = (np.maximum(left, right).view(np.uint64) - np.minimum(left, right).view(np.uint64)).astype(
        np.float64
    )
    exact = np.where(right < left, -distance, distance)
    out[...] = exact if below_zero is None else np.where(below_zero, out, exact)
