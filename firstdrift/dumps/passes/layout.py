"""Find the folders of processes, and the files of forward passes in them.

TP0_PP0_Rank0_pid4711/Pass00000.pt      what the first process saved of its first pass
TP1_PP0_Rank1_pid4712/Pass00000.pt      what the second did
"""

import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import MOST_ENTRIES, files_in, process_folders, ranks_of, sub_folders
from firstdrift.dumps.storage.listed_files import Listed, list_named

_FILE: Final = re.compile(r"Pass(?P<number>[0-9]{1,18})\.pt", re.ASCII)
_RANK: Final = re.compile(r"(?:.*_)?Rank(?P<rank>[0-9]{1,9})(?:_.*)?", re.ASCII)


class Process(Struct, frozen=True):
    """What one process saved.

    Attributes:
        folder: where it lies.
        rank: which process it is; None if it is the only one.
    """

    folder: Path
    rank: int | None


def first_pass(folder: Path) -> str | None:
    """Return the name of a file of a pass in a folder; None if there is none among its first entries."""
    names = (file.name for file in files_in(folder, MOST_ENTRIES))
    return next((name for name in names if _FILE.fullmatch(name)), None)


def processes_at(path: Path) -> tuple[list[Process], list[Path]]:
    """Return the processes of a dump by rank, and the folders of those whose rank another has."""
    folders = process_folders(path, _is_process, lambda _: True, sub_folders)
    numbers = [_rank_of(folder) for folder in folders]
    if None in numbers or len(numbers) <= 1:
        ranks = ranks_of(numbers)
        return [Process(folder, rank) for folder, rank in zip(folders, ranks, strict=True)], []
    by_rank: dict[int | None, Path] = {}
    for folder, number in zip(folders, numbers, strict=True):
        by_rank.setdefault(number, folder)
    left = [folder for folder in folders if folder not in by_rank.values()]
    only = len(by_rank) == 1
    return [Process(folder, None if only else rank) for rank, folder in by_rank.items()], left


def passes_in(folder: Path, bounds: Bounds) -> tuple[dict[int, Listed], list[str]]:
    """Return the files of the passes in a folder by number, and the names of what else lies there.

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    named, unknown = list_named(folder, bounds, _number_of)
    by_number: dict[int, Listed] = {}
    for file, number in named:
        if by_number.setdefault(number, file) is not file:
            unknown.append(file.path.name)
    return by_number, unknown


def _is_process(folder: Path) -> bool:
    return first_pass(folder) is not None


def _number_of(name: str) -> int | None:
    match = _FILE.fullmatch(name)
    return match and int(match["number"])


def _rank_of(folder: Path) -> int | None:
    match = _RANK.fullmatch(folder.name)
    return match and int(match["rank"])
