"""Look through folders and at their files, without ever looking at more than a bounded number of entries."""

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import Struct

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import Entry, open_regular, read_regular, said_by_system, scan_folder
from firstdrift.model.slice import Problem
from firstdrift.wording.message import Message

MOST_ENTRIES = 1000
NAMES_SHOWN = 5
_DEEPEST_PROCESS = 3


class Found(NamedTuple):
    """The folders that a search found, and whether it looked everywhere it was to look."""

    folders: list[Path]
    is_complete: bool


def printable(name: str) -> str:
    """Return the name of a file as text that can be stored: bytes that are no UTF-8 are written out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def first_names(names: Sequence[str], most: int = NAMES_SHOWN) -> tuple[str, ...]:
    """Return the first names of files as text that can be stored, and "…" for those after them."""
    return (*map(printable, names[:most]), *(["…"] if len(names) > most else []))


def shown_below(path: Path, top: Path) -> str:
    """Return a path below another as text that can be stored; the name alone of what lies elsewhere."""
    is_below = path.is_relative_to(top) and path != top
    return printable(os.path.relpath(path, top) if is_below else path.name)


def written_at(path: Path) -> int:
    """Return when something was last changed, in nanoseconds; 0 if that is not known."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def sub_folders(path: Path, most_entries: int | None = None, *, bounds: Bounds | None = None) -> list[Path]:
    """Return the folders in a folder by name; an unreadable folder has none."""
    return [entry for entry, is_folder in folder_entries(path, most_entries, bounds=bounds) if is_folder]


def files_in(path: Path, most_entries: int | None = None, *, bounds: Bounds | None = None) -> list[Path]:
    """Return what else is in a folder by name; an unreadable folder has nothing."""
    return [entry for entry, is_folder in folder_entries(path, most_entries, bounds=bounds) if not is_folder]


def folder_entries(
    path: Path, most_entries: int | None = None, *, bounds: Bounds | None = None
) -> list[tuple[Path, bool]]:
    """Return what is in a folder by name, and whether it is a folder; an unreadable one has nothing.

    With `bounds`, links that lead out of them are left out.
    """
    try:
        with scan_folder(path) as entries:
            return sorted(
                (Path(entry.path), is_folder(entry))
                for entry in islice(entries, most_entries)
                if not (bounds and bounds.refusal(entry))
            )
    except OSError:
        return []


def files_ending(folder: Path, suffix: str) -> list[Path]:
    """Return what in a folder has a name that ends so, by name; an unreadable folder has nothing."""
    return [entry for entry, _ in folder_entries(folder) if entry.name.endswith(suffix)]


def first_named(
    folder: Path, is_named: Callable[[str], object], most_entries: int = MOST_ENTRIES
) -> str | None:
    """Return the first wanted name of a file in a folder; None if its first entries have none."""
    names = (file.name for file in files_in(folder, most_entries))
    return next(filter(is_named, names), None)


def number_in_name(name: str, form: re.Pattern[str]) -> int | None:
    """Return the number in a name, which is the first group of its form; None if there is none."""
    match = form.fullmatch(name)
    return int(match[1]) if match and match[1] else None


def beginning_of(file: Path, most: int) -> bytes:
    """Return the first bytes of a file; none of one that cannot be read."""
    try:
        with open_regular(file) as opened:
            return opened.read(most)
    except OSError:
        return b""


def read_whole(file: Path, most: int) -> bytes:
    """Read a file of at most so many bytes.

    Raises:
        DumpUnreadableError: it cannot be read, or is larger.
    """
    try:
        return read_regular(file, most=most)
    except OSError as exc:
        raise file_unreadable(file, exc) from exc


def file_unreadable(file: Path, error: OSError) -> DumpUnreadableError:
    """Refuse a file that the system does not let be read."""
    return DumpUnreadableError(Message.of("dumps.file.unreadable", error=said_by_system(error)), path=file)


def is_folder(entry: Entry) -> bool:
    """Tell whether an entry is a folder or a link to one; a link that leads nowhere is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Tell whether there is a file at a path; where nobody may look there is none."""
    return os.path.isfile(path)  # noqa: PTH113 (never raises)


def refused_links(path: Path, bounds: Bounds) -> list[tuple[str, Message]]:
    """Return the names of links in a folder that must not be followed, and why; [] if it is unreadable."""
    try:
        return [(name, reason) for name, reason in refusals_in(path, bounds).items() if reason]
    except DumpUnreadableError:
        return []


def refusals_in(folder: Path, bounds: Bounds) -> dict[str, Message | None]:
    """Return the names of what is in a folder, in order, and why one must not be read (None: it may be).

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    with entries_of(folder) as entries:
        return dict(sorted((entry.name, bounds.refusal(entry)) for entry in entries))


def search_folders(path: Path, is_wanted: Callable[[Path], object], *, deepest: int, most: int) -> Found:
    """Find the wanted folders at or below a path, nearest first.

    Nothing is looked for inside those, nor in hidden folders, nor where a link leads out of the path.
    """
    bounds = Bounds.around(path)
    found: list[Path] = []
    waiting = deque([(path, 0)])
    left = MOST_ENTRIES
    while waiting and left > 0:
        folder, depth = waiting.popleft()
        if is_wanted(folder):
            found.append(folder)
            if len(found) == most:
                return Found(found, is_complete=False)
        elif depth < deepest:
            entries = folder_entries(folder, left, bounds=bounds)
            left -= len(entries)
            waiting.extend(
                (entry, depth + 1)
                for entry, is_folder in entries
                if is_folder and not entry.name.startswith(".")
            )
    return Found(found, is_complete=not waiting)


def process_folders(
    path: Path,
    is_process: Callable[[Path], object],
    is_holder: Callable[[Path], object],
    folders_in: Callable[[Path, int | None], list[Path]],
) -> list[Path]:
    """Return the folders of processes at a path, or in the only holder of such at or below it."""
    if is_process(path):
        return [path]

    def holds_processes(folder: Path) -> bool:
        return bool(is_holder(folder)) and any(map(is_process, folders_in(folder, MOST_ENTRIES)))

    search = search_folders(path, holds_processes, deepest=_DEEPEST_PROCESS, most=2)
    is_only_one = search.is_complete and len(search.folders) == 1
    return list(filter(is_process, folders_in(search.folders[0], None))) if is_only_one else []


def ranks_of(numbers: Sequence[int | None]) -> list[int | None]:
    """Return the ranks of processes by their devices, by their order where these are not told apart."""
    if len(numbers) == 1:
        return [None]
    are_distinct = None not in numbers and len(set(numbers)) == len(numbers)
    return list(numbers) if are_distinct else list(range(len(numbers)))


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
    with entries_of(folder) as entries:
        found = [
            Listed(Path(entry.path), is_folder(entry), *_size_and_time(entry), bounds.refusal(entry))
            for entry in entries
        ]
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


@contextmanager
def entries_of(folder: Path) -> Iterator[Iterator[Entry]]:
    """Give the entries of a folder, in no order.

    Raises:
        DumpUnreadableError: it cannot be read.
    """
    try:
        with scan_folder(folder) as entries:
            yield entries
    except OSError as exc:
        unreadable = Message.of("dumps.folder.unreadable", error=said_by_system(exc))
        raise DumpUnreadableError(unreadable, path=folder) from exc


def passed_over(where: str, names: Sequence[str]) -> list[Problem]:
    """Say that entries of a folder were passed over, if any were."""
    reason = Message.of("dumps.folder.passed_over", count=len(names), names=first_names(names))
    return [Problem(where, reason)] if names else []


def problem_of_file(file: str, problem: Message) -> Message:
    """Say which file a problem is about, where that is not said beside it."""
    return Message.of("dumps.file.problem", file=file, problem=problem)


def _size_and_time(entry: Entry) -> tuple[int, int]:
    try:
        status = entry.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
