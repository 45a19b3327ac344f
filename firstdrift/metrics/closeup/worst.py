"""The elements that are farthest apart, with both values, and how many numbers lie between the two.

A unit in the last place (ULP) is the step from one number of a format to the next; between two numbers lie as
many steps as their bit patterns, read as whole numbers with a sign, differ.
"""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firstdrift.metrics.closeup.sample import Places, Sample
from firstdrift.metrics.dtypes import Floats, NumberKind, number_kind
from firstdrift.model.tensor import UNIT_ROUNDOFF

MOST = 20
_LARGEST = 4
"""Formats of up to so many bytes have ULPs that fit into int64 with room to spare."""


class WorstElement(Struct, frozen=True):
    """One element of a pair, by its index in each dimension.

    Attributes:
        distance: |target - golden|; infinite if one is not finite and the other not equal to it.
        ulps: how many steps of the coarser format lie between the two; None where there are none.
    """

    index: tuple[int, ...]
    golden: float
    target: float
    distance: float
    ulps: int | None


def worst_elements(
    sample: Sample, ulp_dtype: np.dtype[np.generic] | None, most: int = MOST
) -> tuple[WorstElement, ...]:
    """List the elements that differ most, the worst first; of equally bad ones those that come first."""
    flat = sample.distance.reshape(-1)
    places = _worst_places(flat, most)
    rows, columns = np.divmod(places, max(1, len(sample.columns)))
    golden, target = sample.golden[rows, columns], sample.target[rows, columns]
    lead = np.unravel_index(sample.rows[rows], sample.shape[:-1]) if len(sample.shape) > 1 else ()
    indexes = np.stack([*lead, sample.columns[columns]], axis=-1)
    steps = ulps(golden, target, ulp_dtype)
    counts = [None] * len(places) if steps is None else steps.tolist()
    return tuple(
        WorstElement(tuple(index), one, other, distance, count if np.isfinite(distance) else None)
        for index, one, other, distance, count in zip(
            indexes.tolist(), golden.tolist(), target.tolist(), flat[places].tolist(), counts, strict=True
        )
    )


def _worst_places(distances: Floats, most: int) -> Places:
    if distances.size > most:
        # All that are as bad as the last one that is listed: which of them are listed must not be chance.
        limit = np.partition(distances, distances.size - most)[distances.size - most]
        worse, ties = np.flatnonzero(distances > limit), np.flatnonzero(distances == limit)
        places = np.concatenate([worse, ties[: most - len(worse)]])
    else:
        places = np.arange(distances.size)
    places = places[distances[places] > 0]
    ordered: Places = places[np.argsort(-distances[places], kind="stable")]
    return ordered


def ulp_dtype(golden: np.dtype[np.generic], target: np.dtype[np.generic]) -> np.dtype[np.generic] | None:
    """Return the coarser of two floating dtypes; None if one is not floating, or both have over 32 bits."""
    pair = (golden, target)
    if any(
        number_kind(dtype) is not NumberKind.FLOATING or dtype.name not in UNIT_ROUNDOFF for dtype in pair
    ):
        return None
    coarser = max(pair, key=lambda dtype: UNIT_ROUNDOFF[dtype.name])
    # Formats of less than a byte are stored in a byte, but their bits do not fill it.
    known = coarser.itemsize <= _LARGEST and not coarser.name.startswith(("float4", "float6"))
    return coarser if known else None


def ulps(golden: Floats, target: Floats, dtype: np.dtype[np.generic] | None) -> npt.NDArray[np.int64] | None:
    """Count the steps of a format between golden and target, rounded to it; without meaning for NaN."""
    if dtype is None:
        return None
    with np.errstate(all="ignore"):
        steps: npt.NDArray[np.int64] = np.abs(_ordered(target.astype(dtype)) - _ordered(golden.astype(dtype)))
    return steps


def _ordered(array: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Number the values of a format in ascending order; both zeros are 0."""
    bits = array.view(f"u{array.itemsize}").astype(np.int64)
    sign = 1 << (8 * array.itemsize - 1)
    return np.where(bits >= sign, sign - bits, bits)
