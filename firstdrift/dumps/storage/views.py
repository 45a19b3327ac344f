"""What may be done to the values of a tensor as they are read, so that they are laid out as those of another.

swapped 0 1      [s, b, h] as [b, s, h]; a matrix transposed
shaped 2 9 48    [18, 48] as [2, 9, 48]
first 0 128      the first 128 rows: a vocabulary without what pads it
plus             with a tensor added to each row: a bias that was handed on beside it
last 1           the last of a dimension, which is gone then: of [b, s, v] what the last tokens have, [b, v]
rows 0 9 13 5    nine rows from row 0 on, then five from row 13 on: tokens of two sequences without padding
renumbered 1 3 0 2    whole numbers: for 0 stands 1, for 1 stands 3; those beyond stay as they are
permuted 2 0 1   which dimension comes where
left             multiplied by a matrix from the left; likewise right

A quantised run may keep its values rotated or scaled; the matrix that takes them back lies in a file of its
own, which msprobe calls a calibration tensor.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from firstdrift.errors import TensorUnreadableError
from firstdrift.groups import seconds
from firstdrift.model.tensor import DataLocation, ViewStep
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Load = Callable[[DataLocation], Array]


def _swapped(array: "Array", step: ViewStep, _: "Load") -> "Array":
    first, second = step.numbers
    return array.swapaxes(first, second)


def _shaped(array: "Array", step: ViewStep, _: "Load") -> "Array":
    return array.reshape(step.numbers)


def _first(array: "Array", step: ViewStep, _: "Load") -> "Array":
    axis, size = step.numbers
    if array.shape[axis] < size:
        raise IndexError(size)
    taken: Array = array.take(range(size), axis=axis)
    return taken


def _last(array: "Array", step: ViewStep, _: "Load") -> "Array":
    (axis,) = step.numbers
    last: Array = array.take(-1, axis=axis)
    return last


def _plus(array: "Array", step: ViewStep, load: "Load") -> "Array":
    row = load(step.other[0])
    if row.shape != array.shape[-1:]:
        raise ValueError(row.shape)
    total: Array = array.astype("float64") + row.astype("float64")
    return total


def _permuted(array: "Array", step: ViewStep, _: "Load") -> "Array":
    return array.transpose(step.numbers)


def _multiplied(array: "Array", step: ViewStep, load: "Load") -> "Array":
    import numpy as np

    matrix = load(step.other[0])
    both = (matrix, array) if step.name == LEFT else (array, matrix)
    try:
        product: Array = np.matmul(*map(widened, both))
    except ValueError as exc:
        shapes = {"tensor": str(list(array.shape)), "matrix": str(list(matrix.shape))}
        reason = Message.of(f"dumps.tensor.cannot_be_multiplied_{step.name}", **shapes)
        raise TensorUnreadableError(reason, path=step.other[0].file) from exc
    return product


def widened(array: "Array") -> "Array":
    """Return values in float64, or the complex dtype of twice that."""
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


def _rows(array: "Array", step: ViewStep, _: "Load") -> "Array":
    runs = list(zip(step.numbers[::2], step.numbers[1::2], strict=True))
    are_inside = all(0 <= first <= first + count <= len(array) for first, count in runs)
    if not are_inside or sum(seconds(runs)) > len(array):
        raise IndexError(step.numbers)
    taken: Array = array.take([row for first, count in runs for row in range(first, first + count)], axis=0)
    return taken


def _renumbered(array: "Array", step: ViewStep, _: "Load") -> "Array":
    import numpy as np

    is_told = (array >= 0) & (array < len(step.numbers))
    numbers: Array = np.where(is_told, np.array(step.numbers)[np.where(is_told, array, 0)], array)
    return numbers


SWAPPED, SHAPED, FIRST, LAST, PLUS, ROWS = "swapped", "shaped", "first", "last", "plus", "rows"
PERMUTED, LEFT, RIGHT, RENUMBERED = "permuted", "left", "right", "renumbered"

_STEPS: Final[dict[str, "Callable[[Array, ViewStep, Load], Array]"]] = {
    SWAPPED: _swapped,
    SHAPED: _shaped,
    FIRST: _first,
    LAST: _last,
    PLUS: _plus,
    PERMUTED: _permuted,
    LEFT: _multiplied,
    RIGHT: _multiplied,
    ROWS: _rows,
    RENUMBERED: _renumbered,
}


def seen_as(array: "Array", steps: Iterable[ViewStep], load: "Load") -> "Array":
    """Return an array after some steps; `load` reads the other tensors that they take.

    Raises:
        TensorUnreadableError: one of these cannot be read, or does not fit.
        ValueError: one of them does not fit the shape, or there is none of that name.
        IndexError: likewise.
    """
    for step in steps:
        if step.name not in _STEPS:
            raise ValueError(step.name)
        array = _STEPS[step.name](array, step, load)
    return array
