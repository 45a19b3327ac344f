"""Functions of a user's that were written for torch tensors, as those for msit and msprobe are.

A function is given arrays. If it raises an error on them, and torch is there, it is given tensors; if it
takes them, it gets tensors from then on. One that says so (`golden: torch.Tensor`) is given nothing else.
"""

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

WANTS_TORCH: Final = re.compile(
    r"must be (?:a )?Tensor|numpy\.\w+' object has no attribute|unexpected keyword argument '(?:keep)?dim'"
)
"""What functions that were written for torch tensors raise when they are given arrays."""

_NOT_OF_NUMPY: Final = {1: "uint8", 2: "uint16"}
"""As what the bits of numbers travel that numpy does not know, by their size in bytes."""


class Caller:
    """Calls a function of a user's with what it takes: arrays, or torch tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Begin with arrays, unless the function says that it takes tensors."""
        self._function = function
        self._takes_tensors = _says_tensor(function)

    def __call__(
        self,
        arrays: "tuple[npt.NDArray[Any], npt.NDArray[Any]]",
        originals: "tuple[npt.NDArray[Any], npt.NDArray[Any]]",
    ) -> Any:  # noqa: ANN401 (whatever it returns)
        """Call it; of dtypes that numpy lacks, tensors hold the numbers of the `originals`.

        Raises:
            Exception: whatever the function raises.
        """
        if self._takes_tensors:
            return self._function(*map(tensor_of, originals))
        try:
            return self._function(*arrays)
        except Exception as error:
            if not _may_want_tensors(error):
                raise
            result = self._with_tensors(originals, error)
            self._takes_tensors = True
            return result

    def _with_tensors(self, originals: "tuple[npt.NDArray[Any], ...]", first: Exception) -> Any:  # noqa: ANN401
        try:
            return self._function(*map(tensor_of, originals))
        except Exception:  # noqa: BLE001 (what it said of arrays is what is told)
            raise first from None


def _says_tensor(function: Callable[..., Any]) -> bool:
    hints = getattr(function, "__annotations__", {})
    return any("Tensor" in str(hint) for name, hint in hints.items() if name != "return")


def _may_want_tensors(error: Exception) -> bool:
    return "torch" in sys.modules or WANTS_TORCH.search(str(error)) is not None


def tensor_of(array: "npt.NDArray[Any]") -> Any:  # noqa: ANN401 (a tensor: torch is imported for it)
    """Copy an array into a torch tensor of the same dtype.

    Raises:
        ImportError: torch is not installed.
        TypeError: torch has no such dtype.
    """
    import torch

    if array.dtype.type.__module__ != "ml_dtypes":
        return torch.from_numpy(np.array(array))
    dtype, bits = getattr(torch, array.dtype.name, None), _NOT_OF_NUMPY.get(array.dtype.itemsize)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or bits is None:
        return torch.from_numpy(array.astype("int8" if "int" in array.dtype.name else "float32"))
    whole = np.ascontiguousarray(array).reshape(-1)
    return torch.from_numpy(whole.view(bits).copy()).view(dtype).reshape(array.shape)
