"""The format that values were in before they were stored as float32.

numpy has no bfloat16, so that a bfloat16 model is often dumped as float32: healthy, but with the rounding
of bfloat16. Such values end in zero bits.

| format   | bits of float32 that are zero | one rounding  |
| -------- | ----------------------------- | ------------- |
| bfloat16 | 16                            | 2^-9          |
| float16  | 13                            | 2^-11         |
"""

import numpy as np

from firstdrift.metrics.dtypes import Array
from firstdrift.metrics.zero_bits import BELOW_BFLOAT16, BELOW_FLOAT16, LAST_OF_BFLOAT16
from firstdrift.model.tensor import ROUNDING

_FEWEST = 8
_LOOKED_AT_FIRST = 64


def stored_roundoff(array: Array) -> float:
    """Return the unit roundoff of the 16-bit format that float32 values came from; 0 for any other values.

    Whole numbers and powers of two end in zeros too: they are no sign of a format.
    """
    if array.dtype != np.float32 or array.size < _FEWEST:
        return 0.0
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
    looked_at = bits[:_LOOKED_AT_FIRST]
    if not (looked_at & BELOW_FLOAT16).any():
        looked_at = bits
    return roundoff_of_bits(array, int(np.bitwise_or.reduce(looked_at)))


def roundoff_of_bits(array: Array, bits: int) -> float:
    """Return the same, by all the bits that are set in some element."""
    if array.dtype != np.float32 or array.size < _FEWEST or bits & BELOW_FLOAT16:
        return 0.0
    if bits & BELOW_BFLOAT16:
        return ROUNDING["float16"]
    return ROUNDING["bfloat16"] if bits & LAST_OF_BFLOAT16 else 0.0
