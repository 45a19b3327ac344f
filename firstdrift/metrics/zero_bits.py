"""Zeros at the end of float32 numbers: those that came from 16 bits have them.

Whole numbers and powers of two have them too: they are no sign of a format.
"""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Final

BELOW_FLOAT16: Final = 0x1FFF
"""The bits of float32 that are zero in a number of float16; likewise of bfloat16."""
BELOW_BFLOAT16: Final = 0xFFFF
LAST_OF_FLOAT16: Final = 0xE000
"""The last bits of a number of float16; likewise of bfloat16."""
LAST_OF_BFLOAT16: Final = 0x70000

_LARGEST: Final = (2.0 - 2.0**-23) * 2.0**127


def are_of_float16(numbers: Sequence[float]) -> bool:
    """Tell whether numbers, such as the ends of float32 values, came from 16 bits: one is not rounder yet.

    By chance the two ends of float32 values look so once in 2^26.
    """
    ends = LAST_OF_FLOAT16 | LAST_OF_BFLOAT16
    return fit_float16(numbers) and any(bits & ends for bits in map(_bits, numbers))


def fit_float16(numbers: Iterable[float]) -> bool:
    """Tell whether all numbers have no more digits than float16 has."""
    return not any(_bits(number) & BELOW_FLOAT16 for number in numbers)


def _bits(number: float) -> int:
    if math.isfinite(number) and abs(number) > _LARGEST:
        return BELOW_FLOAT16  # no float32 number
    return int(struct.unpack("<I", struct.pack("<f", number))[0])
