"""List the files of a folder, with what keeps each from being read."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_folder, printable
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import Entry, scan_folder
from firstdrift.plurals import counted, plural

_NAMES_SHOWN = 5


class Listed(Struct, frozen=True):
    """An entry of a folder.

    Attributes:
        path: where it lies.
        is_folder: whether it is a folder.
        size: in bytes; 0 if that is not known.
        time: when it was last written, in nanoseconds; 0 if that is not known.
        refusal: why it must not be read; empty if it may be.
    """

    path: Path
    is_folder: bool
    size: int
    time: int
    refusal: str


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
        raise DumpUnreadableError(f"the folder cannot be read ({exc.strerror})", path=folder) from exc
    return sorted(found, key=lambda one: one.path)


def not_part_of_a_dump(names: Sequence[str]) -> str:
    """Say that entries were passed over."""
    shown = ", ".join(map(printable, names[:_NAMES_SHOWN])) + (", …" if len(names) > _NAMES_SHOWN else "")
    number = counted(len(names), "entry", "entries")
    return f"{number} {plural(len(names), 'is', 'are')} not part of a dump: {shown}"


def _size_and_time(entry: Entry) -> tuple[int, int]:
    try:
        status = entry.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
