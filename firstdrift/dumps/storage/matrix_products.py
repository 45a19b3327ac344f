"""Tensors that are multiplied by matrices as they are read: left @ tensor @ right.

A quantised run may keep its values rotated or scaled; the matrix that takes them back lies in a file of its
own, which msprobe calls a calibration tensor.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    import numpy.typing as npt


def load_product(
    location: DataLocation, load: "Callable[[DataLocation], npt.NDArray[Any]]"
) -> "npt.NDArray[Any]":
    """Load a tensor and the matrices beside it, and multiply them in float64 (complex: complex128)."""
    import numpy as np

    product = load(replace(location, left=None, right=None))
    for factor, is_left in ((location.left, True), (location.right, False)):
        if factor is None:
            continue
        matrix = load(factor)
        wide = "complex128" if "c" in (product.dtype.kind, matrix.dtype.kind) else "float64"
        both = product.astype(wide), matrix.astype(wide)
        try:
            product = np.matmul(*(reversed(both) if is_left else both))
        except ValueError as exc:
            shapes = {"tensor": str(list(product.shape)), "matrix": str(list(matrix.shape))}
            side = "left" if is_left else "right"
            reason = Message.of(f"dumps.tensor.cannot_be_multiplied_{side}", **shapes)
            raise TensorUnreadableError(reason, path=factor.file) from exc
    return product
