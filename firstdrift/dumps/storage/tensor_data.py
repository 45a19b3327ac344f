"""Headers and values of single tensors, whatever file they lie in.

read_headers(file, "pt")    what is there: names, dtypes, shapes, checksums
load_tensor(location)       the values, mapped from the file and read-only
"""

import struct
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import replace

from firstdrift.dumps.containers.contents import Contents, DamagedError, TensorHeader, file_contents
from firstdrift.errors import TensorUnreadableError
from firstdrift.files import open_regular
from firstdrift.model.tensor import DataLocation
from firstdrift.wording.message import Message, verbatim

if TYPE_CHECKING:
    import numpy.typing as npt

CONTAINER_BY_SUFFIX = {
    ".pt": "pt",
    ".pth": "pt",
    ".bin": "pt",
    ".npy": "npy",
    ".npz": "npz",
    ".safetensors": "safetensors",
}
"""How files that stand for themselves are laid out; a `.bin` may also be one of ATB (`container_of`)."""


class _Container(Protocol):
    def headers(self, file: Path, contents: Contents, /) -> list[TensorHeader]: ...

    def load(self, file: Path, contents: Contents, entry: str, /) -> "npt.NDArray[Any]": ...


_CONTAINERS = {
    "pt": "pt",
    "npy": "npy",
    "npz": "npz",
    "quantised": "quantised",
    "safetensors": "safetensors_file",
    "bin": "atb_bin",
    "ge": "ge_dump",
    "ggml_log": "ggml_log",
    "base64_json": "base64_json",
    "sglang": "sglang_pt",
    "number": "number",
}
"""The module that reads each; imported with the first such file, for it imports numpy."""

_BEGINNINGS = {
    "pt": (b"PK\x03\x04", b"\x80"),
    "npy": (b"\x93NUMPY",),
    "npz": (b"PK\x03\x04",),
    "bin": (b"$Version=",),
}


def load_tensor(location: DataLocation) -> "npt.NDArray[Any]":
    """Load the values of a tensor: read-only, of a numpy or ml_dtypes dtype, any strides.

    Files of 128 KB and more are mapped, and stay so while the array lives.

    Raises:
        TensorUnreadableError: the file is missing, cut short, damaged, holds no such tensor, or
            one of a dtype that cannot be represented.
    """
    if location.view:
        return _load_view(location)
    if location.left or location.right:
        return _load_product(location)
    if location.permutation:
        return _load_transposed(location)
    if location.shards:
        return _load_shards(location)
    container = _container(location.file, location.container)
    try:
        return container.load(location.file, file_contents(location.file), location.entry)
    except (ValueError, OverflowError, MemoryError, struct.error) as exc:
        raise TensorUnreadableError(_why(exc), path=location.file) from exc


def _load_view(location: DataLocation) -> "npt.NDArray[Any]":
    """Load a tensor, and lay it out as its view says."""
    from firstdrift.dumps.storage.views import seen_as

    array = load_tensor(replace(location, view=()))
    try:
        return seen_as(array, location.view, load_tensor)
    except (ValueError, IndexError) as exc:
        steps = tuple(step.name for step in location.view)
        reason = Message.of("dumps.tensor.cannot_be_seen_so", steps=steps, shape=str(list(array.shape)))
        raise TensorUnreadableError(reason, path=location.file) from exc


def _load_shards(location: DataLocation) -> "npt.NDArray[Any]":
    """Lay the shards of a tensor side by side, in pieces if these are in another order, or add them up."""
    import numpy as np

    arrays = [load_tensor(shard) for shard in location.shards]
    try:
        if location.axis is None:
            total: npt.NDArray[Any] = np.sum([_wide(array) for array in arrays], axis=0)
            return total
        same = len({array.dtype for array in arrays}) == 1
        whole = np.concatenate(arrays if same else [_wide(array) for array in arrays], axis=location.axis)
        if not location.order:
            return whole
        pieces = np.split(whole, len(location.order), axis=location.axis)
        return np.concatenate([pieces[at] for at in location.order], axis=location.axis)
    except (ValueError, MemoryError) as exc:
        shapes = tuple(str(list(array.shape)) for array in arrays)
        reason = Message.of("dumps.tensor.shards_do_not_fit", shapes=shapes)
        raise TensorUnreadableError(reason, path=location.file) from exc


def _load_transposed(location: DataLocation) -> "npt.NDArray[Any]":
    array = load_tensor(replace(location, permutation=()))
    if sorted(location.permutation) != list(range(array.ndim)):
        reason = Message.of("dumps.tensor.shards_do_not_fit", shapes=(str(list(array.shape)),))
        raise TensorUnreadableError(reason, path=location.file)
    return array.transpose(location.permutation)


def _load_product(location: DataLocation) -> "npt.NDArray[Any]":
    """Load a tensor that is multiplied by matrices as it is read: left @ tensor @ right, in float64 or wider.

    A quantised run may keep its values rotated or scaled; the matrix that takes them back lies in a file of
    its own, which msprobe calls a calibration tensor.
    """
    import numpy as np

    product = load_tensor(replace(location, left=None, right=None))
    for side, factor in (("left", location.left), ("right", location.right)):
        if factor is None:
            continue
        matrix = load_tensor(factor)
        both = [_wide(matrix), _wide(product)]
        try:
            product = np.matmul(*(both if side == "left" else both[::-1]))
        except ValueError as exc:
            shapes = {"tensor": str(list(product.shape)), "matrix": str(list(matrix.shape))}
            reason = Message.of(f"dumps.tensor.cannot_be_multiplied_{side}", **shapes)
            raise TensorUnreadableError(reason, path=factor.file) from exc
    return product


def _wide(array: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


def read_headers(file: Path, container: str) -> list[TensorHeader]:
    """List the tensors of a file without reading their values.

    Raises:
        TensorUnreadableError: the file is missing, cut short or damaged as a whole.
    """
    layout = _container(file, container)
    try:
        return layout.headers(file, file_contents(file))
    except (ValueError, OverflowError, MemoryError, struct.error) as exc:
        raise TensorUnreadableError(_why(exc), path=file) from exc


def _why(error: Exception) -> Message:
    if isinstance(error, DamagedError):
        return error.message
    return verbatim(str(error)) if str(error) else Message.of("dumps.file.damaged")


def container_of(file: Path) -> str:
    """Return how a file that stands for itself is laid out: by its suffix, a `.bin` by its beginning."""
    is_atb = file.suffix == ".bin" and looks_like(file, "bin")
    return "bin" if is_atb else CONTAINER_BY_SUFFIX[file.suffix]


def looks_like(file: Path, container: str) -> bool:
    """Tell whether a file begins like those of a container."""
    try:
        with open_regular(file) as opened:
            begin = opened.read(9)
    except OSError:
        return False
    if container == "safetensors":
        return begin[8:] == b"{"
    return begin.startswith(_BEGINNINGS[container])


def _container(file: Path, name: str) -> _Container:
    if name not in _CONTAINERS:
        raise TensorUnreadableError(Message.of("dumps.file.unknown_layout", layout=repr(name)), path=file)
    return cast("_Container", import_module(f"firstdrift.dumps.containers.{_CONTAINERS[name]}"))
