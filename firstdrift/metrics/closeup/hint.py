"""What a hint says."""

from enum import StrEnum

from msgspec import Struct

from firstdrift.wording.message import Message


class HintKind(StrEnum):
    """What may have happened to a tensor."""

    EQUAL = "equal"
    NON_FINITE = "non-finite"
    CONSTANT = "constant"
    SCALED = "scaled"
    SIGN = "sign"
    MOVED = "moved"
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
