"""Kinds of operators: what each does to build a model, whatever its framework calls it."""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final


class Work(StrEnum):
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
        Work.LOOKUP,
        Work.NORM,
        Work.LINEAR,
        Work.GROUPED,
        Work.ROTATE,
        Work.ATTEND,
        Work.ACTIVATE,
        Work.GATE,
        Work.CONVOLVE,
    }
)
"""What a model is made of; a module that does one of these things is looked at as a whole."""

ROW_BY_ROW: Final = frozenset(
    {
        Work.NORM,
        Work.LINEAR,
        Work.GROUPED,
        Work.ACTIVATE,
        Work.GATE,
        Work.ADD,
        Work.MULTIPLY,
        Work.ROTATE,
        Work.SPLIT,
    }
)
"""What is done to each token by itself."""

GATHERED: Final = {
    Work.LINEAR: Work.GROUPED,
    Work.ACTIVATE: Work.ACTIVATE,
    Work.GATE: Work.GATE,
    Work.MULTIPLY: Work.MULTIPLY,
}
"""What an operator of one expert does, and what that of all experts is."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def snake_case(name: str) -> str:
    """Return a class name in the spelling of operators: "RmsNormOperation" as "rms_norm_operation"."""
    return _HUMP.sub("_", name).lower()
