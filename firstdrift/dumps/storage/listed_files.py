"""List the files of a folder, with what keeps each from being read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import first_names, is_folder
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import Entry, said_by_system, scan_folder
from firstdrift.model.slice import Problem
from firstdrift.wording.message import Message

Named = TypeVar("Named")


class Listed(Struct, frozen=True):
    """An entry of a folder.

    Attributes:
        path: where it lies.
        is_folder: whether it is a folder.
        size: in bytes; 0 if that is not known.
        time: when it was last written, in nanoseconds; 0 if that is not known.
        refusal: why it must not be read; None if it may be.
    """

    path: Path
    is_folder: bool
    size: int
    time: int
    refusal: Message | None


def list_files(folder: Path, bounds: Bounds) -> list[Listed]:
    """Return what is in a folder, by name.

    Raises:
        DumpUnreadableError: it cannot be read.
    """
    try:
        with scan_folder(folder) as entries:
            found = [
                Listed(Path(entry.path), is_folder(entry), *_size_and_time(entry), bounds.refusal(entry))
                for entry in entries
            ]
    except OSError as exc:
        raise DumpUnreadableError(folder_unreadable(exc), path=folder) from exc
    return sorted(found, key=lambda one: one.path)


def list_named(
    folder: Path, bounds: Bounds, parse: Callable[[str], Named | None]
) -> tuple[list[tuple[Listed, Named]], list[str]]:
    """Return the files of a folder with what their names say, and the names of all else in it.

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    named: list[tuple[Listed, Named]] = []
    unknown: list[str] = []
    for file in list_files(folder, bounds):
        parsed = None if file.is_folder else parse(file.path.name)
        if parsed is None:
            unknown.append(file.path.name)
        else:
            named.append((file, parsed))
    return named, unknown


def folder_unreadable(error: OSError) -> Message:
    """Say that a folder cannot be listed, and why."""
    return Message.of("dumps.folder.unreadable", error=said_by_system(error))


def not_part_of_a_dump(names: Sequence[str]) -> Message:
    """Say that entries of a folder were passed over."""
    return Message.of("dumps.folder.passed_over", count=len(names), names=first_names(names))


def passed_over(where: str, names: Sequence[str]) -> list[Problem]:
    """Say that entries of a folder were passed over, if any were."""
    return [Problem(where, not_part_of_a_dump(names))] if names else []


def problem_of_file(file: str, problem: Message) -> Message:
    """Say which file a problem is about, where that is not said beside it."""
    return Message.of("dumps.file.problem", file=file, problem=problem)


def _size_and_time(entry: Entry) -> tuple[int, int]:
    try:
        status = entry.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
