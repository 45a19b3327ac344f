"""Find the folders of the processes of one dump, and give them ranks."""

from collections.abc import Callable, Sequence
from pathlib import Path

from firstdrift.dumps.storage.folders import MOST_ENTRIES, search_folders

_DEEPEST_SEARCH = 3


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

    search = search_folders(path, holds_processes, deepest=_DEEPEST_SEARCH, most=2)
    is_only_one = search.is_complete and len(search.folders) == 1
    return list(filter(is_process, folders_in(search.folders[0], None))) if is_only_one else []


def ranks_of(numbers: Sequence[int | None]) -> list[int | None]:
    """Return the ranks of processes by their devices, by their order where these are not told apart."""
    if len(numbers) == 1:
        return [None]
    are_distinct = None not in numbers and len(set(numbers)) == len(numbers)
    return list(numbers) if are_distinct else list(range(len(numbers)))
