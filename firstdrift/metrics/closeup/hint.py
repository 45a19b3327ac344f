"""What a hint says."""

from enum import StrEnum
from math import floor, log10
from typing import Final

from msgspec import Struct

from firstdrift.wording.message import Message

A_SIGN: Final = 0.02
"""So much of a number may be off where its sign is flipped."""


class HintKind(StrEnum):
    """What may have happened to a tensor."""

    EQUAL = "equal"
    NON_FINITE = "non-finite"
    CONSTANT = "constant"
    SCALED = "scaled"
    SIGN = "sign"
    MOVED = "moved"
    DROPPED = "dropped"
    LOW_RANK = "low rank"
    SATURATED = "saturated"
    CONFINED = "confined"
    ROUNDED = "rounded"


class Hint(Struct, frozen=True):
    """What may have happened to a tensor, as the values tell.

    Attributes:
        kind: what it is.
        says: a clause without full stop.
        before: the relative L2 error as it is; None where that says nothing.
        after: what of it is left if the hint is taken back, likewise.
    """

    kind: HintKind
    says: Message
    before: float | None = None
    after: float | None = None


def line_says(factor: float, shift: float = 0.0) -> Message:
    """Write what is made of golden by a factor and a shift."""
    if factor == 1:
        said = Message.of("side.golden")
    elif abs(factor + 1) < A_SIGN / 2:
        said = Message.of("hint.flipped")
    else:
        said = Message.of("hint.times", factor=_told(factor))
    if not shift:
        return said
    if shift > 0:
        return Message.of("hint.plus", line=said, shift=shift)
    return Message.of("hint.minus", line=said, shift=-shift)


def _told(factor: float) -> float:
    """Round a factor to four digits, and to as many more as show that it is not one."""
    if factor in (0.0, 1.0):
        return factor
    digits = max(3 - floor(log10(abs(factor))), 1 - floor(log10(abs(factor - 1.0))))
    return round(factor, digits)
