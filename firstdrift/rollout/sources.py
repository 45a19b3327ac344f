"""Which files hold the log-probabilities of a side, without a look into them."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from firstdrift.errors import RolloutUnreadableError
from firstdrift.files import list_folder, said_by_system
from firstdrift.paths import natural
from firstdrift.rollout.thresholds import MOST_FILES
from firstdrift.wording.message import Message, verbatim

JSON_SUFFIXES: Final = (".jsonl", ".ndjson", ".json")
PARQUET_SUFFIXES: Final = (".parquet", ".pq")
SUFFIXES: Final = (*JSON_SUFFIXES, *PARQUET_SUFFIXES)


def files_of(path: Path, within: Sequence[Path] | None = None) -> list[Path]:
    """List the files of a side: the file itself, or those of a folder in the order of their names.

    10.jsonl comes after 9.jsonl.

    Raises:
        RolloutUnreadableError: there is nothing, or nothing of the kind.
    """
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116 (raises)
            return [path]
        entries = list_folder(path, within=within)
    except (OSError, ValueError) as error:
        raise RolloutUnreadableError(why_not(error), path=path) from error
    found = [Path(entry) for entry in entries if Path(entry).suffix.lower() in SUFFIXES and entry.is_file()]
    if not found:
        raise RolloutUnreadableError(Message.of("rollout.no_files", suffixes=SUFFIXES), path=path)
    if len(found) > MOST_FILES:
        raise RolloutUnreadableError(Message.of("rollout.many_files", most=MOST_FILES), path=path)
    return sorted(found, key=lambda file: natural(file.name))


def stamps_of(path: Path, within: Sequence[Path] | None = None) -> tuple[tuple[str, int, int], ...]:
    """Say what would change if the files of a side did: name, size and date of each.

    Raises:
        RolloutUnreadableError: as `files_of` says.
    """
    try:
        known = [(file, os.stat(file)) for file in files_of(path, within)]  # noqa: PTH116 (as above)
    except OSError as error:
        raise RolloutUnreadableError(why_not(error), path=path) from error
    return tuple((str(file), found.st_size, found.st_mtime_ns) for file, found in known)


def why_not(error: Exception) -> Message:
    """Say why something cannot be opened."""
    said = said_by_system(error) if isinstance(error, OSError) else str(error)
    return said if isinstance(said, Message) else verbatim(said or str(error))
