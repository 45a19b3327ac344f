"""Describe the tensors of a file that a tool saved: by their headers, or by why these cannot be read."""

from pathlib import Path

from firstdrift.dumps.containers.contents import TensorHeader
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import problem_of_file
from firstdrift.dumps.storage.tensor_data import read_headers
from firstdrift.errors import TensorUnreadableError
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

NO_TENSOR = Message.of("dumps.file.no_tensor")


def no_header(reason: Message) -> TensorHeader:
    """Return what stands for the headers of a file that has none."""
    return TensorHeader("", "", None, problem=reason)


def headers_of(
    file: Path, container: str, refusal: Message | None = None
) -> tuple[list[TensorHeader], Message | None]:
    """Return the headers of a file; if it has none, or must not be read, one that says why, and why."""
    reason = refusal or NO_TENSOR
    try:
        headers = [] if refusal else read_headers(file, container)
    except TensorUnreadableError as exc:
        headers, reason = [], exc.message
    return (headers, None) if headers else ([no_header(reason)], reason)


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


def record_of(
    header: TensorHeader, file: Path, container: str, role: Role, key: str, *, is_refused: bool = False
) -> TensorRecord:
    """Describe a tensor of a file; of a file that must not be read the place is not kept."""
    return TensorRecord(
        role=role,
        key=key,
        dtype=header.dtype,
        shape=header.shape,
        digest=header.digest,
        location=None if is_refused else DataLocation(file, container, header.entry),
        problem=header.problem and problem_of_file(printable(file.name), header.problem),
    )


def records_of_file(
    file: Path, container: str, role: Role, key: str, refusal: Message | None = None
) -> list[TensorRecord]:
    """Describe the tensors of a file: one, unless somebody saved several under one key."""
    return [
        record_of(header, file, container, role, dotted(key, header.entry), is_refused=refusal is not None)
        for header in headers_of(file, container, refusal)[0]
    ]


def dotted(*parts: str) -> str:
    """Join the parts of a key that are not empty."""
    return ".".join(filter(None, parts))
