"""KL divergence of two tensors as msit takes it: each is one distribution, whatever its shape.

    KL = sum p (log p - log q), p = softmax(golden), q = softmax(target), over all elements, in nats

| tensors                          | counts as   |
| -------------------------------- | ----------- |
| equal                            | 0           |
| NaN or infinities on either side | not defined |
| empty, whole numbers, complex    | not defined |
| sizes that differ                | not defined |
"""

import math

import numpy as np

from firstdrift.metrics.dtypes import Array, Floats, NumberKind, number_kind


def flat_divergence(golden: Array, target: Array) -> float | None:
    """Return the divergence, at least 0; None where it is not defined."""
    floating = number_kind(golden.dtype) is number_kind(target.dtype) is NumberKind.FLOATING
    if not floating or golden.size != target.size or not golden.size:
        return None
    sides = [array.reshape(-1).astype(np.float64) for array in (golden, target)]
    if not all(np.isfinite(side).all() for side in sides):
        return None
    left, right = map(_log_softmax, sides)
    return max(math.fsum(np.exp(left) * (left - right)), 0.0)


def _log_softmax(values: Floats) -> Floats:
    shifted = values - values.max()
    logs: Floats = shifted - math.log(float(np.exp(shifted).sum()))
    return logs
