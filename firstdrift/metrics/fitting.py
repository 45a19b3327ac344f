"""Why tensors that are to be joined do not fit together."""

from collections.abc import Sequence
from typing import Final

from firstdrift.metrics.comparability import ReasonedError
from firstdrift.metrics.dtypes import Array
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape

_FEW: Final = 8
"""Shapes that are named."""


class DoNotFitError(ReasonedError):
    """Parts do not make up the tensor that they are compared with."""


def shapes_of(arrays: Sequence[Array]) -> Message:
    """Write the shapes of some tensors, the first of them if they are many."""
    shown = tuple(shape(array.shape) for array in arrays[:_FEW])
    if len(arrays) > _FEW:
        return Message.of("metrics.first_shapes", shapes=shown)
    return Message.of("metrics.shapes", shapes=shown)


def shapes_against(arrays: Sequence[Array], whole: Sequence[int]) -> Message:
    """Say which shapes do not make up the whole."""
    return Message.of("metrics.shapes_and_whole", shapes=shapes_of(arrays), whole=tuple(whole))
