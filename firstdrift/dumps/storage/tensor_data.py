"""Headers and values of single tensors, whatever file they lie in.

read_headers(file, "pt")    what is there: names, dtypes, shapes, checksums
load_tensor(location)       the values, mapped from the file and read-only
records_of_file(file, ...)  its tensors as those of a node, or why they cannot be read
"""

import struct
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import replace

from firstdrift.dumps.containers.contents import Contents, DamagedError, TensorHeader, file_contents
from firstdrift.dumps.storage.folders import beginning_of, printable, problem_of_file
from firstdrift.dumps.storage.views import seen_as, widened
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
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
    # Logs have none: whoever reads one knows what is in it.
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
    if location.shards:
        return _load_shards(location)
    container = _container(location.file, location.container)
    try:
        return container.load(location.file, file_contents(location.file), location.entry)
    except (ValueError, OverflowError, MemoryError, struct.error) as exc:
        raise TensorUnreadableError(_why(exc), path=location.file) from exc


def _load_view(location: DataLocation) -> "npt.NDArray[Any]":
    """Load a tensor, and lay it out as its view says."""
    array = load_tensor(replace(location, view=()))
    try:
        return seen_as(array, location.view, load_tensor)
    except (ValueError, IndexError) as exc:
        steps = tuple(step.name for step in location.view)
        reason = Message.of("dumps.tensor.cannot_be_seen_so", steps=steps, shape=str(list(array.shape)))
        raise TensorUnreadableError(reason, path=location.file) from exc


def _load_shards(location: DataLocation) -> "npt.NDArray[Any]":
    """Load the shards of a tensor, and make it of them."""
    arrays = list(map(load_tensor, location.shards))
    try:
        return _assembled(arrays, location)
    except (ValueError, MemoryError) as exc:
        shapes = tuple(str(list(array.shape)) for array in arrays)
        reason = Message.of("dumps.tensor.shards_do_not_fit", shapes=shapes)
        raise TensorUnreadableError(reason, path=location.file) from exc


def _assembled(arrays: "list[npt.NDArray[Any]]", location: DataLocation) -> "npt.NDArray[Any]":
    """Lay shards side by side, in pieces if these are in another order, or add them up."""
    import numpy as np

    if location.axis is None:
        total: npt.NDArray[Any] = np.sum(list(map(widened, arrays)), axis=0)
        return total
    same = len({array.dtype for array in arrays}) == 1
    whole = np.concatenate(arrays if same else list(map(widened, arrays)), axis=location.axis)
    if not location.order:
        return whole
    pieces = np.split(whole, len(location.order), axis=location.axis)
    return np.concatenate([pieces[at] for at in location.order], axis=location.axis)


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
    begin = beginning_of(file, 9)
    if container == "safetensors":
        return begin[8:] == b"{"
    return begin.startswith(_BEGINNINGS[container])


def _container(file: Path, name: str) -> _Container:
    if name not in _CONTAINERS:
        raise TensorUnreadableError(Message.of("dumps.file.unknown_layout", layout=repr(name)), path=file)
    return _module(_CONTAINERS[name])


@cache
def _module(name: str) -> _Container:
    return cast("_Container", import_module(f"firstdrift.dumps.containers.{name}"))


NO_TENSOR = Message.of("dumps.file.no_tensor")


def no_header(reason: Message, *, is_refused: bool = False) -> TensorHeader:
    """Return what stands for the headers of a file that has none, or must not be read."""
    return TensorHeader("", "", None, problem=reason, is_refused=is_refused)


def headers_of(
    file: Path, container: str, refusal: Message | None = None
) -> tuple[list[TensorHeader], Message | None]:
    """Return the headers of a file; if it has none, or must not be read, one that says why, and why."""
    reason = refusal or NO_TENSOR
    try:
        headers = [] if refusal else read_headers(file, container)
    except TensorUnreadableError as exc:
        headers, reason = [], exc.message
    return (headers, None) if headers else ([no_header(reason, is_refused=refusal is not None)], reason)


def saved_value(file: Path) -> object:
    """Return what a file of `torch.save` holds as a whole: dicts, lists, numbers, text; layouts of tensors.

    Raises:
        TensorUnreadableError: nobody can tell.
    """
    from firstdrift.dumps.containers.contents import DamagedError, file_contents
    from firstdrift.dumps.containers.pt import described

    try:
        return described(file_contents(file))
    except DamagedError as exc:
        raise TensorUnreadableError(exc.message, path=file) from exc


def record_of(header: TensorHeader, file: Path, container: str, role: Role, key: str) -> TensorRecord:
    """Describe a tensor of a file; of a file that must not be read the place is not kept."""
    return TensorRecord(
        role=role,
        key=key,
        dtype=header.dtype,
        shape=header.shape,
        digest=header.digest,
        location=None if header.is_refused else DataLocation(file, container, header.entry),
        problem=header.problem and problem_of_file(printable(file.name), header.problem),
    )


def records_of_file(
    file: Path, container: str, role: Role, key: str, refusal: Message | None = None
) -> list[TensorRecord]:
    """Describe the tensors of a file: one, unless somebody saved several under one key."""
    return [
        record_of(header, file, container, role, dotted(key, header.entry))
        for header in headers_of(file, container, refusal)[0]
    ]


def dotted(*parts: str) -> str:
    """Join the parts of a key that are not empty."""
    return ".".join(filter(None, parts))
