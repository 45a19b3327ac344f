"""Read what lies in one numbered folder of an ATB dump.

20_Decoder_layer/0_Attention/
├── before/intensor0.bin       input.0
├── after/outtensor0.bin       output.0
├── after/intensor0.bin        input.0.after: the same input, as the operation left it
└── op_param.json              what the operation was told

A link is followed if it leads to a file of the dump; links to folders are not.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.atb.layout import OPERATION_NAME, STATISTICS_FILE
from firstdrift.dumps.atb.topology import Operation
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.storage.listed_files import folder_unreadable
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import Entry, list_folder
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

PARAMETERS_FILE = "op_param.json"
_TENSOR_FILE = re.compile(r"(?P<role>in|out)tensor(?P<index>0|[1-9][0-9]{0,8})(?:_.*)?\.bin", re.ASCII)
_TILING_FILE = re.compile(r"tiling.*\.bin", re.ASCII | re.IGNORECASE)
_ROLES = {"in": Role.INPUT, "out": Role.OUTPUT}
_PLACES = {Role.INPUT: "before", Role.OUTPUT: "after"}
_DEEPEST = 64


class TensorFile(Struct, frozen=True):
    """A file of one tensor.

    Attributes:
        path: where it lies; it may be a link to another file of the dump.
        role: input or output.
        index: which input or output.
        place: "before" or "after": when it was saved.
        refused: why it must not be read; None if it may.
    """

    path: Path
    role: Role
    index: int
    place: str
    refused: Message | None = None

    @property
    def is_in_place(self) -> bool:
        """Tell whether it was saved when it should be: inputs before the operation ran, outputs after."""
        return self.place == _PLACES[self.role]

    @property
    def key(self) -> str:
        """Its number; "0.after" for an input that was saved after the operation ran."""
        return str(self.index) if self.is_in_place else f"{self.index}.{self.place}"


class OperationFolder(Struct, frozen=True):
    """What lies in the folder of an operation.

    Attributes:
        operation: which one.
        files: its tensors: inputs in ascending order, then outputs.
        parameters: the file of its parameters, if there is one.
    """

    operation: Operation
    files: tuple[TensorFile, ...]
    parameters: Path | None


class RunFolder(Struct, frozen=True):
    """What lies in a numbered folder.

    Attributes:
        folders: by name of the operation.
        statistics: the table of statistics, if there is one.
        unknown: what is not part of the format, or may not be read.
    """

    folders: Mapping[str, OperationFolder]
    statistics: Path | None
    unknown: tuple[str, ...]


def scan_run(run: Path, bounds: Bounds) -> RunFolder:
    """Find the operations and tensor files of a run, without opening a file."""
    scan = _Scan(run, bounds)
    try:
        top = list_folder(run)
    except OSError as exc:
        raise DumpUnreadableError(folder_unreadable(exc), path=run) from exc
    folders: dict[str, OperationFolder] = {}
    waiting: list[tuple[Operation | None, Entry]] = [(None, entry) for entry in top]
    statistics = None
    while waiting:
        around, entry = waiting.pop()
        if around is None and entry.name == STATISTICS_FILE:
            statistics = scan.followed(entry)
        elif _is_operation(entry) and (around is None or len(around.orders) < _DEEPEST):
            folder, inner = scan.operation(around, entry)
            folders[folder.operation.name] = folder
            waiting += [(folder.operation, child) for child in inner]
        else:
            scan.pass_over(entry)
    return RunFolder(dict(sorted(folders.items())), statistics, tuple(sorted(scan.unknown)))


class _Scan:
    """Looks through a run, and remembers what it passed over."""

    def __init__(self, run: Path, bounds: Bounds) -> None:
        self._run = run
        self._bounds = bounds
        self.unknown: list[str] = []

    def operation(self, around: Operation | None, entry: Entry) -> tuple[OperationFolder, list[Entry]]:
        """Read the folder of an operation; return what else lies in it."""
        rest: list[Entry] = []
        files: list[TensorFile] = []
        parameters = None
        for inner in self._entries(entry):
            if inner.name in _PLACES.values() and inner.is_dir(follow_symlinks=False):
                files += self._tensor_files(inner)
            elif inner.name == PARAMETERS_FILE:
                parameters = self.followed(inner)
            else:
                rest.append(inner)
        operation = Operation.below(around, printable(entry.name), is_graph=any(map(_is_operation, rest)))
        files.sort(key=lambda file: (file.role, file.index, not file.is_in_place, file.path))
        return OperationFolder(operation, tuple(files), parameters), rest

    def followed(self, entry: Entry) -> Path | None:
        """Return the path of a file; None, and it is passed over, if it is none or leads out of the dump."""
        if not self._bounds.refusal(entry) and entry.is_file():
            return Path(entry.path)
        self.pass_over(entry)
        return None

    def pass_over(self, entry: Entry) -> None:
        self.unknown.append(printable(os.path.relpath(entry.path, self._run)))

    def _entries(self, entry: Entry) -> list[Entry]:
        try:
            return list_folder(entry)
        except OSError:
            self.pass_over(entry)
            return []

    def _tensor_files(self, folder: Entry) -> Iterator[TensorFile]:
        for entry in self._entries(folder):
            named = _TENSOR_FILE.fullmatch(entry.name)
            if named:
                role, index = _ROLES[named["role"]], int(named["index"])
                refused = self._bounds.refusal(entry)
                yield TensorFile(Path(entry.path), role, index, folder.name, refused)
            elif not _TILING_FILE.fullmatch(entry.name):
                self.pass_over(entry)


def _is_operation(entry: Entry) -> bool:
    return OPERATION_NAME.fullmatch(entry.name) is not None and entry.is_dir(follow_symlinks=False)
