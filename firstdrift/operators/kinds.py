"""Kinds of operators: what each does to build a model, whatever its framework calls it."""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final


class OpKind(StrEnum):
    """What an operator does."""

    LOOKUP = "lookup"
    POSITIONS = "table of positions"
    NORM = "norm"
    LINEAR = "linear"
    GROUPED = "linear of all experts"
    ROTATE = "rotation by position"
    ATTEND = "attention"
    ACTIVATE = "activation"
    GATE = "activation of the gate times the rest"
    CONVOLVE = "convolution"
    ADD = "add"
    MULTIPLY = "multiply"
    SPLIT = "split"
    REDUCE = "reduction over ranks"
    ROUTE = "routing"
    STORE = "cache"
    OTHER = "other"


class Magnification(StrEnum):
    """How an operator turns errors of its inputs into larger ones."""

    NONE = ""
    ABSOLUTE = "absolute"
    """By their absolute size: softmax, exponential, sine."""

    CANCELLING = "cancelling"
    """By the cancellation of a sum."""

    CENTRING = "centring"
    """As the mean is removed."""


CHARACTERISTIC: Final = frozenset(
    {
        OpKind.LOOKUP,
        OpKind.NORM,
        OpKind.LINEAR,
        OpKind.GROUPED,
        OpKind.ROTATE,
        OpKind.ATTEND,
        OpKind.ACTIVATE,
        OpKind.GATE,
        OpKind.CONVOLVE,
    }
)
"""What a model is made of; a module that does one of these things is looked at as a whole."""

ROW_BY_ROW: Final = frozenset(
    {
        OpKind.NORM,
        OpKind.LINEAR,
        OpKind.GROUPED,
        OpKind.ACTIVATE,
        OpKind.GATE,
        OpKind.ADD,
        OpKind.MULTIPLY,
        OpKind.ROTATE,
        OpKind.SPLIT,
    }
)
"""What is done to each token by itself."""

GATHERED: Final = {
    OpKind.LINEAR: OpKind.GROUPED,
    OpKind.ACTIVATE: OpKind.ACTIVATE,
    OpKind.GATE: OpKind.GATE,
    OpKind.MULTIPLY: OpKind.MULTIPLY,
}
"""What an operator of one expert does, and what that of all experts is."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def snake_case(name: str) -> str:
    """Return a class name in the spelling of operators: "RmsNormOperation" as "rms_norm_operation"."""
    return _HUMP.sub("_", name).lower()
