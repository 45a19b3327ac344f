"""How the elements of golden, target and their difference are spread, in bins of equal width."""

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.sample import Sample
from firstdrift.metrics.dtypes import Floats

BINS = 64


class Histogram(Struct, frozen=True):
    """Counts in bins of equal width from low to high, both included.

    Attributes:
        counts: how many finite elements lie in each bin, one list for each that was asked for.
        nonfinite: how many elements are NaN or infinite, likewise.
    """

    low: float
    high: float
    counts: tuple[tuple[int, ...], ...]
    nonfinite: tuple[int, ...]


def histograms(sample: Sample, bins: int = BINS) -> tuple[Histogram, Histogram]:
    """Count golden and target in common bins, and their difference in bins of its own."""
    return (
        histogram((sample.golden, sample.target), bins),
        histogram((sample.difference,), bins),
    )


def histogram(arrays: tuple[Floats, ...], bins: int = BINS) -> Histogram:
    """Count the elements of arrays in common bins."""
    finite = [array[np.isfinite(array)] for array in arrays]
    ends = [float(end) for array in finite if array.size for end in (array.min(), array.max())]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    counts = tuple(_count(array, low, high, bins) for array in finite)
    lost = tuple(array.size - kept.size for array, kept in zip(arrays, finite, strict=True))
    return Histogram(low, high, counts, lost)


def _count(array: Floats, low: float, high: float, bins: int) -> tuple[int, ...]:
    # Halves, because the width of a range of float64 may overflow, and an empty range has no width at all.
    width = high / 2 - low / 2
    if width <= 0:
        return (int(array.size), *(0 for _ in range(bins - 1)))
    at = np.minimum(((array / 2 - low / 2) / width * bins).astype(np.intp), bins - 1)
    return tuple(np.bincount(at, minlength=bins).tolist())
