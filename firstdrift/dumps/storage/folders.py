"""Look through folders without ever looking at more than a bounded number of entries."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.files import Entry, scan_folder
from firstdrift.wording.message import Message

MOST_ENTRIES = 1000
_NAMES_SHOWN = 5
_DEEPEST_PROCESS = 3


class Found(NamedTuple):
    """The folders that a search found, and whether it looked everywhere it was to look."""

    folders: list[Path]
    is_complete: bool


def printable(name: str) -> str:
    """Return the name of a file as text that can be stored: bytes that are no UTF-8 are written out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def first_names(names: Sequence[str], most: int = _NAMES_SHOWN) -> tuple[str, ...]:
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
    except OSError:
        return []


def refusals_in(folder: Path, bounds: Bounds) -> dict[str, Message | None]:
    """Return the names of what is in a folder, in order, and why one must not be read (None: it may be).

    Raises:
        OSError: the folder cannot be read.
    """
    with scan_folder(folder) as entries:
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
    is_process: Callable[[Path], bool],
    is_holder: Callable[[Path], bool],
    folders_in: Callable[[Path, int | None], list[Path]],
) -> list[Path]:
    """Return the folders of processes at a path, or in the only holder of such at or below it."""
    if is_process(path):
        return [path]

    def holds_processes(folder: Path) -> bool:
        return is_holder(folder) and any(map(is_process, folders_in(folder, MOST_ENTRIES)))

    search = search_folders(path, holds_processes, deepest=_DEEPEST_PROCESS, most=2)
    is_only_one = search.is_complete and len(search.folders) == 1
    return list(filter(is_process, folders_in(search.folders[0], None))) if is_only_one else []


def ranks_of(numbers: Sequence[int | None]) -> list[int | None]:
    """Return the ranks of processes by their devices, by their order where these are not told apart."""
    if len(numbers) == 1:
        return [None]
    are_distinct = None not in numbers and len(set(numbers)) == len(numbers)
    return list(numbers) if are_distinct else list(range(len(numbers)))
