"""Look through folders without ever looking at more than a bounded number of entries."""

import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

MOST_ENTRIES = 1000


class Found(NamedTuple):
    """The folders that a search found, and whether it looked everywhere it was to look."""

    folders: list[Path]
    is_complete: bool


def printable(name: str) -> str:
    """Return the name of a file as text that can be stored: bytes that are no UTF-8 are written out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def sub_folders(path: Path, most_entries: int | None = None) -> list[Path]:
    """Return the folders in a folder by name; an unreadable folder has none."""
    return [entry for entry, is_folder in folder_entries(path, most_entries) if is_folder]


def folder_entries(path: Path, most_entries: int | None = None) -> list[tuple[Path, bool]]:
    """Return what is in a folder by name, and whether it is a folder; an unreadable one has nothing."""
    try:
        with os.scandir(path) as entries:
            return sorted((Path(entry.path), entry.is_dir()) for entry in islice(entries, most_entries))
    except OSError:
        return []


def search_folders(path: Path, is_wanted: Callable[[Path], bool], *, deepest: int, most: int) -> Found:
    """Find the wanted folders at or below a path, nearest first.

    Nothing is looked for inside those, nor in hidden folders.
    """
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
            entries = folder_entries(folder, left)
            left -= len(entries)
            waiting.extend(
                (entry, depth + 1)
                for entry, is_folder in entries
                if is_folder and not entry.name.startswith(".")
            )
    return Found(found, is_complete=not waiting)
