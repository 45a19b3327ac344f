"""How much of a disk files take: blocks and what the disk keeps of each, not only the bytes in them.

A hundred thousand files of one byte each hold 0.1 MB, and take 500 MB.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BLOCK: Final = 4096
"""Bytes that a disk gives away at once, on nearly all of them."""

ENTRY: Final = 1024
"""Bytes of what a disk keeps of each file, folder or link: its name, its owner, where it lies."""

FOLDER: Final = BLOCK + ENTRY

LEAST_FREE: Final = 64 << 20
"""With less of the disk than that left, a database cannot be counted on to be written."""


def blocks_of(size: int) -> int:
    """Return the bytes of the blocks that so many bytes fill."""
    return -(-size // BLOCK) * BLOCK


def file_takes(size: int) -> int:
    """Return the bytes of the disk that a file of so many bytes takes."""
    return blocks_of(size) + ENTRY


def free_bytes(folder: Path) -> int:
    """Return how many bytes of the disk of a folder are free for us; 0 where the folder is gone."""
    try:
        about = os.statvfs(folder)
    except OSError:
        return 0
    return about.f_bavail * about.f_frsize


def is_writable(folder: Path) -> bool:
    """Tell whether we may make files in a folder, as far as the system says without making one."""
    return os.access(folder, os.W_OK | os.X_OK)


def size_on_disk(path: Path) -> int:
    """Add up the bytes of the disk that a file takes, or a folder with all below; links are not followed.

    Raises:
        OSError: there is nothing at the path.
    """
    found = path.lstat()
    return _takes(found) + (sum(_below(path)) if stat.S_ISDIR(found.st_mode) else 0)


def _below(folder: Path) -> Iterator[int]:
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listed:
                for entry in listed:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    yield _takes(entry.stat(follow_symlinks=False))
        except OSError:  # may not be listed, or is gone since it was
            continue


def _takes(found: os.stat_result) -> int:
    # A disk that writes later, or packs what is written, says less at first than it will take.
    return max(found.st_blocks * 512, blocks_of(found.st_size)) + ENTRY
