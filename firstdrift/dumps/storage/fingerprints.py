"""By which files are told from what they were: their names, sizes and dates; none is opened."""

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    """A file or a link: what tells it from what it was, and when it was last written, in nanoseconds."""

    line: str
    written: int


def files_below(path: Path) -> Iterator[Seen]:
    """Give each file and link at or below a path, in order.

    What a link to a folder leads to has lines of its own if readers follow the link: it lies in the dump.
    """
    if path.is_file():
        yield _file(str(path))
    waiting = [str(path)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:  # a file; a folder that may not be listed, or is gone since it was
            continue
        for entry in entries:
            if entry.is_symlink():
                there = _file(entry.path)
                yield Seen(f"{entry.path}\0→{_goal(entry.path)}\0{there.line}", there.written)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                yield _file(entry.path)


def digest_of(paths: Iterable[Path], beside: Iterable[str] = ()) -> str:
    """Digest what lies at and below some paths, and what else is to be told apart."""
    digest = blake2b(digest_size=16)
    for path in paths:
        for seen in files_below(path):
            digest.update(seen.line.encode(errors="surrogateescape"))
    for text in beside:
        digest.update(f"\0{text}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def digest_and_date(path: Path) -> tuple[str, float]:
    """Digest what lies at and below a path, and say when it was last written, in seconds since 1970."""
    digest, last = blake2b(digest_size=16), 0
    for seen in files_below(path):
        digest.update(seen.line.encode(errors="surrogateescape"))
        last = max(last, seen.written)
    return digest.hexdigest(), last / 1e9


def last_written(path: Path) -> float:
    """Say when what is at or below a path was last written, in seconds since 1970; 0 if nobody knows."""
    own = _file(str(path)).written
    return max((seen.written for seen in files_below(path)), default=own) / 1e9


def holds_folder_links(path: Path) -> bool:
    """Tell whether a link to a folder lies below a path: what it leads to lies elsewhere."""
    waiting = [str(path)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listed:
                entries = [entry for entry in listed if entry.is_dir()]
        except OSError:
            continue
        if any(entry.is_symlink() for entry in entries):
            return True
        waiting += [entry.path for entry in entries]
    return False


def _goal(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 (a string is as good)
    except OSError:
        return "gone"


def _file(file: str) -> Seen:
    try:
        status = os.stat(file)  # noqa: PTH116
    except OSError:  # gone since it was listed, or a link to nowhere
        return Seen(f"{file}\0gone\n", 0)
    return Seen(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n", status.st_mtime_ns)
