"""All that is shown of a pair from near, in one record."""

import numpy as np
from msgspec import Struct

from firstdrift.metrics.closeup.hint import Hint
from firstdrift.metrics.closeup.hints import hints, relative_error
from firstdrift.metrics.closeup.histogram import Histogram, histograms
from firstdrift.metrics.closeup.profiles import Profile, profiles
from firstdrift.metrics.closeup.sample import BUDGET, take_sample
from firstdrift.metrics.closeup.worst import WorstElement, ulp_dtype, worst_elements
from firstdrift.metrics.dtypes import Array


class Closeup(Struct, frozen=True):
    """A pair of tensors seen from near.

    Attributes:
        shape: in which the two are compared.
        dtypes: of golden and target, as they were read.
        heads: into how many heads the last dimension is cut; None if it is not.
        every: every how many-th row was looked at; 1 for all.
        every_column: likewise of the columns.
        seen: how many elements were looked at.
        relative_l2: relative L2 error of what was looked at; None where golden is zero or nothing is finite.
        ulp_dtype: the format whose steps are counted; None if none are.
        worst: the elements that differ most, the worst first.
        values: how golden and target are spread.
        differences: how target - golden is spread.
        profiles: the difference along each dimension.
        hints: what may have happened, the plainest first.
    """

    shape: tuple[int, ...]
    dtypes: tuple[str, str]
    heads: int | None
    every: int
    every_column: int
    seen: int
    relative_l2: float | None
    ulp_dtype: str | None
    worst: tuple[WorstElement, ...]
    values: Histogram
    differences: Histogram
    profiles: tuple[Profile, ...]
    hints: tuple[Hint, ...]


def look_closely(
    golden: Array,
    target: Array,
    roundoff: float,
    *,
    heads: int | None = None,
    fine: tuple[int, ...] | None = None,
    always: tuple[int, ...] = (),
    budget: int = BUDGET,
) -> Closeup:
    """Look at two tensors of one shape from near.

    Args:
        golden: the trusted tensor.
        target: the tensor under suspicion.
        roundoff: unit roundoff of the coarser of the two formats.
        heads: how many heads lie in the last dimension.
        fine: the same elements in more dimensions, such as [tokens, heads, depth] for [tokens, channels].
        always: flat indexes of elements whose rows are looked at in any case.
        budget: about how many elements are looked at of each side.

    Raises:
        ValueError: the shapes differ.
    """
    sample = take_sample(golden, target, budget, always)
    steps = ulp_dtype(golden.dtype, target.dtype)
    with np.errstate(all="ignore"):
        values, differences = histograms(sample)
        return Closeup(
            golden.shape,
            (golden.dtype.name, target.dtype.name),
            heads,
            sample.every,
            sample.every_column,
            sample.distance.size,
            relative_error(sample),
            None if steps is None else steps.name,
            worst_elements(sample, steps),
            values,
            differences,
            profiles(sample, heads),
            hints(golden, target, sample, roundoff, fine=fine, heads=heads),
        )
