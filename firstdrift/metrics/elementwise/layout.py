"""Where the compiled kernel finds what it is given, and leaves what it found: places in three arrays.

The kernel (`kernel`) and whoever calls it (`compiled`) agree on these numbers, and on nothing else.
"""

import ml_dtypes
import numpy as np

BLOCK = 1024
"""Elements that are looked at together: with their differences and the keys of these they take 28 KiB."""

TABLE, FLOAT64, FLOAT32, FLOAT16, BFLOAT16 = range(5)
"""How elements are decoded: those of one byte are looked up in a table of 256 numbers."""

CODES = {
    np.dtype(np.float64): FLOAT64,
    np.dtype(np.float32): FLOAT32,
    np.dtype(np.float16): FLOAT16,
    np.dtype(ml_dtypes.bfloat16): BFLOAT16,
}

GOLDEN, GOLDEN_CODE, GOLDEN_TABLE, TARGET, TARGET_CODE, TARGET_TABLE = range(6)
SIZE, COLUMNS, ITEMSIZE, IS_INTEGER, WORK, SUMS, COUNTS, ROWS, DECADES = range(6, 15)
ARGUMENTS = 15
"""Arguments: addresses, but for codes and sizes.

ITEMSIZE is 0 where dtypes differ, so that bits tell nothing.
TARGET is 0 where there is but one tensor.
"""

TARGET_SIDE = 4
"""Places of the target side, in sums and in counts, come so far behind those of the golden side."""

MAXIMUM, MINIMUM, TOTAL, SQUARES = range(4)
DIFFERENCE, ABSOLUTE, SQUARED_DIFFERENCE, SQUARED_GOLDEN, SQUARED_TARGET, PRODUCT = range(8, 14)
LARGEST, LARGEST_GOLDEN, LARGEST_TARGET, RELATIVE_TOTAL, RELATIVE_MAXIMUM = range(14, 19)
SUMS_LENGTH = 19

ZEROS, NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY = range(4)
EQUAL, EQUAL_NONFINITE, MISMATCHED, LARGEST_AT, RELATIVE_COUNT, WITHIN_1E3, WITHIN_5E3 = range(8, 15)
GOLDEN_BITS, TARGET_BITS, DIFFERS_AT, LARGEST_KEY = range(15, 19)
HISTOGRAM = 19
COUNTS_LENGTH = 34
"""GOLDEN_BITS and TARGET_BITS: all bits that are set in some float32 element.

DIFFERS_AT: the first element of other bits, -1 if there is none, and then nothing but the golden side is
added up. LARGEST_KEY: the upper half of the largest difference.
"""

WORK_BYTES = 64 + 28 * BLOCK + 64
