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


class ErrorModel(StrEnum):
    """How the errors of its inputs become the error of an operator's output; see `verdict/error_model.py`."""

    NONE = ""
    """No model: relative errors are passed on as they are."""

    ADDITIVE = "additive"
    """Errors add up as they are: sums, and whatever picks, copies or arranges."""

    SMOOTH = "smooth"
    """The same, but its slope follows its input: whatever changes by no more than its input does."""

    SATURATING = "saturating"
    """The same, and its slope follows its output."""

    KINKED = "kinked"
    """The same, but its slope jumps: an error next to the kink gives another gradient."""

    SUMMED = "summed"
    """Elements of one tensor are added up."""

    AVERAGED = "averaged"
    """Elements of one tensor are averaged."""

    DISTANCE = "distance"
    """Absolute differences are averaged, or added up."""

    HUBER = "huber"
    """The same, but where they are small they are squared."""

    SQUARED = "squared"
    """Squares of differences are averaged, or added up."""

    MULTIPLIED = "multiplied"
    """Elements of one input are multiplied by those of another."""

    MULTIPLIED_AND_ADDED = "multiplied and added"
    """The same, and added to the first input."""

    DIVIDED = "divided"
    """Elements of the first input are divided by those of the second."""

    POWER = "power"
    """Elements of the first input are raised to a power, the second."""

    ROOT = "root"
    """The square root of each element."""

    INVERSE_ROOT = "inverse root"
    """One over the square root of each element."""

    PRODUCT = "product"
    """A product of matrices."""

    CONVOLVED = "convolved"
    """A convolution."""

    EXPONENTIAL = "exponential"
    """Absolute errors become relative ones."""

    LOGARITHMIC = "logarithmic"
    """The other way round: a logarithm of a sum of exponentials."""

    CENTRED = "centred"
    """The mean is taken away, and the rest divided by its deviation."""

    SCALED = "scaled"
    """What is given is divided by its root mean square."""


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
