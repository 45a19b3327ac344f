"""Where uploads come to lie."""

from pathlib import Path

from firstdrift.catalogue.sizes import size_on_disk


def innermost(folder: Path) -> Path:
    """Give the one folder that is all there is in another, else that one."""
    found = list(folder.iterdir())
    return found[0] if len(found) == 1 and found[0].is_dir() and not found[0].is_symlink() else folder


def free_place(wanted: Path) -> Path:
    """Give a path at which there is nothing: golden, or golden-2, or golden-3."""
    number, place = 1, wanted
    while place.exists() or place.is_symlink():
        number += 1
        place = wanted.with_name(f"{wanted.name}-{number}")
    return place


def taken(folder: Path) -> int:
    """Return the bytes of the disk that a folder takes; 0 for none."""
    try:
        return size_on_disk(folder)
    except FileNotFoundError:  # nothing of it yet, or cancelled meanwhile
        return 0
