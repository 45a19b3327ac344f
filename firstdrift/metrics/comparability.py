"""Whether two tensors can be compared at all, and tensors that are to be joined fit together."""

import itertools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape as shape_named
from firstdrift.wording.text import text_of

if TYPE_CHECKING:
    from firstdrift.metrics.dtypes import Array

Shape: TypeAlias = tuple[int, ...]

_FEW: Final = 8
"""Shapes that are named."""


class ReasonedError(Exception):
    """Something that cannot be done with tensors; its message says why."""

    def __init__(self, message: Message) -> None:
        """Keep why."""
        super().__init__(text_of(message))
        self.message = message


class IncomparableError(ReasonedError):
    """The two cannot be compared."""


def shapes_differ(golden: Shape, target: Shape) -> Message:
    """Say that two shapes cannot be laid over each other."""
    return Message.of("metrics.shapes_differ", golden=golden, target=target)


def common_shape(golden: Shape, target: Shape, *, may_reshape: bool = False) -> Shape | None:
    """Return the shape to which both tensors can be reshaped for comparison, or None.

    Dimensions of size 1 do not count, and neighbouring dimensions may be merged on one side:
    [1, 5, 896] and [5, 896] give [5, 896], and so do [5, 14, 64] and [5, 896]. Where they may
    be reshaped, any shapes of one size will do, and the target's is taken.
    """
    if golden == target:
        return golden
    if math.prod(golden) != math.prod(target):
        return None
    left, right = (tuple(size for size in shape if size != 1) for shape in (golden, target))
    coarse, fine = sorted((left, right), key=len)
    if set(_ends(coarse)) <= set(_ends(fine)):
        return coarse
    return target if may_reshape else None


def _ends(shape: Shape) -> Shape:
    return tuple(itertools.accumulate(shape, operator.mul))


class DoNotFitError(ReasonedError):
    """Parts do not make up the tensor that they are compared with."""


def shapes_of(arrays: "Sequence[Array]") -> Message:
    """Write the shapes of some tensors, the first of them if they are many."""
    shown = tuple(shape_named(array.shape) for array in arrays[:_FEW])
    return Message.of("metrics.first_shapes" if len(arrays) > _FEW else "metrics.shapes", shapes=shown)


def shapes_against(arrays: "Sequence[Array]", whole: Sequence[int]) -> Message:
    """Say which shapes do not make up the whole."""
    return Message.of("metrics.shapes_and_whole", shapes=shapes_of(arrays), whole=tuple(whole))
