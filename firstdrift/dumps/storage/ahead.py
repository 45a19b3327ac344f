"""Ask the system for files before they are read: a disk brings many small ones at a time as fast as one.

Large files are not asked for: the system reads ahead in them by itself, and two at a time would disturb each
other.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from firstdrift.files import open_descriptor

SMALL: Final = 1 << 20
"""Bytes up to which a file is worth asking for."""


def ask_for(files: Iterable[Path]) -> None:
    """Have the system bring files into memory, while something else is done; skip what cannot be opened."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in files:
        with suppress(OSError):
            _ask_for(file)


def _ask_for(file: Path) -> None:
    descriptor = open_descriptor(file)
    try:
        os.posix_fadvise(descriptor, 0, SMALL, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
