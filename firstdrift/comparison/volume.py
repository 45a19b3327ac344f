"""How much data there is to read, told from records alone."""

import math

from firstdrift.matching.plan import TensorPair
from firstdrift.model.tensor import TensorRecord


def data_bytes(pair: TensorPair) -> int:
    """Estimate how much data is read to measure a pair."""
    if pair.incomparable is not None:
        return 0
    sides = (pair.golden_parts or (pair.golden,), pair.target_parts or (pair.target,))
    records = [record for side in sides for record in side]
    return sum(map(_size, records)) if all(record.location for record in records) else 0


def _size(record: TensorRecord) -> int:
    import ml_dtypes  # noqa: F401 (tells numpy of bfloat16 and its like)
    import numpy as np

    try:
        itemsize = np.dtype(record.dtype).itemsize
    except (TypeError, ValueError, SyntaxError):  # a dtype that is no word of numpy's
        itemsize = 1
    return itemsize * math.prod(record.shape or ())
