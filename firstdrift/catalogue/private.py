"""What firstdrift keeps is for its owner alone: folders of mode 0700, files of mode 0600, whatever the umask.

What an earlier version, or somebody else, has made wider is made so again when a command starts.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

DATABASE = "firstdrift.db"
ENDED_SESSIONS = "ended-sessions"
UPLOADS = "uploads"

OURS = frozenset(
    {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", ENDED_SESSIONS, UPLOADS}
)
"""What lies in a data directory; of the database everything else is in there."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone.

    Raises:
        OSError: it cannot be made.
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def make_file(file: Path) -> None:
    """Make an empty file for its owner alone, unless there is one; who opens it then says what is wrong."""
    with suppress(OSError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def keep_to_owner(data_dir: Path, *, is_default: bool) -> Iterator[str]:
    """Take from others what they may do with a data directory of ours; say for each thing what was changed.

    Args:
        data_dir: is there.
        is_default: nobody chose it, so that nothing else lies there. In another one that holds other things
            as well, only what is ours is changed.
    """
    with suppress(OSError):
        if is_default or all(path.name in OURS for path in data_dir.iterdir()):
            yield from _keep(data_dir)
    for name in sorted(OURS):
        yield from _keep(data_dir / name, follow=False)


def _keep(path: Path, *, follow: bool = True) -> Iterator[str]:
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        )
    except OSError:
        return
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            mode = stat.S_IMODE(found.st_mode)
            os.fchmod(descriptor, mode & ~_OTHERS)
            yield f"others could get at {path} (mode {mode:04o}): now its owner alone can"
    except OSError:
        return
    finally:
        os.close(descriptor)
