"""Folders under the roots, each with the format of the dump that lies in it."""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from pathlib import Path

from firstdrift.dumps.detect import recognise
from firstdrift.errors import DumpNotFoundError, DumpUnreadableError, PathOutsideRootsError
from firstdrift.files import scan_folder
from firstdrift.paths import inside, natural, spelt, unspelt
from firstdrift.wording.message import Message
from firstdrift_server.questions.dumps import real_dump

MOST_ENTRIES = 500
"""So many entries are listed."""

MOST_SEEN = 5000
"""So many entries of a folder are put in order; of one that holds more, a beginning of a name tells which."""

MOST_PASSED = 1_000_000
"""So many names are compared with that beginning."""

MOST_LOOKS = 200
SECONDS_FOR_FORMATS = 0.6
"""After so many looks, or so long, the folders that are left are listed without being looked into."""

KEPT_SECONDS = 5
"""So long it is remembered what lies at a path."""

TENSOR_FILES = frozenset({".pt", ".pth", ".npy", ".safetensors", ".bin"})


class Order(StrEnum):
    """In which order what lies in a folder is listed; folders come before files."""

    RECENT = "recent"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that can be opened or chosen.

    Attributes:
        is_folder: it can be opened.
        format: the format of the dump it is; None if it is none, or was not looked into.
        evidence: why it is held to be of that format.
        changed_at: when it was changed, in seconds since 1970; 0 if that is not known.
    """

    name: str
    path: str
    is_folder: bool
    format: str | None = None
    evidence: tuple[Message, ...] = ()
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as the browser shows it; without a path, the list of roots.

    Attributes:
        itself: the folder as something that can be chosen.
        above: the folders that lead here from a root, the root first.
        entries: what is in it.
        hidden: how many more entries there are than are listed; at least so many, unless all were seen.
        is_whole: all were seen; of more than MOST_SEEN, only some are.
        begins: how the names of the entries begin.
    """

    itself: Entry | None
    above: tuple[Entry, ...]
    entries: tuple[Entry, ...]
    hidden: int = 0
    is_whole: bool = True
    begins: str = ""


def list_folder(
    roots: Sequence[Path],
    wanted: str,
    order: Order = Order.NAME,
    begins: str = "",
    *,
    looks: bool = True,
    suffixes: Collection[str] = TENSOR_FILES,
) -> Folder:
    """List a folder under the roots; the roots themselves for an empty path, if there are several.

    Those of the same time are in the order of their names, in which step10 comes after step9.

    Args:
        roots: that may be looked into.
        wanted: path of the folder.
        order: in which its entries are listed.
        begins: list only entries whose names begin so, upper or lower case.
        looks: look into entries for dumps.
        suffixes: of the files that are listed.

    Raises:
        PathOutsideRootsError: it leads elsewhere.
        DumpNotFoundError: there is no such folder.
        DumpUnreadableError: it may not be listed.
    """
    if not wanted and len(roots) != 1:
        return Folder(
            None, (), tuple(with_formats([_folder(root, str(root)) for root in roots], looks=looks))
        )
    here = inside(roots, wanted or roots[0])
    if not here.is_dir():
        raise DumpNotFoundError(Message.of("server.no_folder"), path=here)
    seen = list(islice(_entries(roots, here, unspelt(begins).lower(), suffixes), MOST_SEEN + 1))
    listed = sorted(seen[:MOST_SEEN], key=lambda entry: (not entry.is_folder, natural(entry.name)))
    if order is Order.RECENT:
        listed = [replace(entry, changed_at=_changed_at(entry.path)) for entry in listed]
        listed.sort(key=lambda entry: (not entry.is_folder, -int(entry.changed_at)))
    (itself,) = with_formats([_folder(here, here.name)], looks=looks)
    shown = tuple(with_formats(listed[:MOST_ENTRIES], looks=looks))
    is_whole = len(seen) == len(listed)
    return Folder(itself, _above(roots, here), shown, len(seen) - len(shown), is_whole, begins)


def describe_choice(roots: Sequence[Path], wanted: str) -> Entry | None:
    """Say what lies at a path that somebody chose; None for an empty path.

    Raises:
        PathOutsideRootsError: it leads elsewhere.
        DumpError: there is no dump, and why.
    """
    if not wanted:
        return None
    path = real_dump(roots, wanted)
    (entry,) = with_formats([Entry(path.name, str(path), path.is_dir())])
    return entry


def is_there(roots: Sequence[Path], path: Path) -> bool:
    """Tell whether there is something at a path, and it may be read."""
    try:
        return inside(roots, path).exists()
    except (OSError, PathOutsideRootsError):  # in a folder that may not be looked into, or none at all
        return False


def path_meant(roots: Sequence[Path], text: str, at: str = "", known: Iterable[str] = ()) -> str:
    """Give the path that somebody means who wrote it as pages show it, without what leads to it.

    It may begin in the folder that is shown, in a root, with the name of a root, or be the end of a path
    that is known; an absolute path is what is meant itself. What is not found is looked for in the folder
    that is shown, or in the only root.

    Args:
        roots: that may be looked into.
        text: what was written.
        at: the folder that is shown.
        known: paths of dumps, the likeliest first.
    """
    if not text or text.startswith("/"):
        return text
    parts = Path(unspelt(text)).parts
    found = (path for path in _meant(roots, parts, at, known) if is_there(roots, path))
    likeliest = [Path(at)] if at else roots
    lost = spelt(likeliest[0].joinpath(*parts)) if len(likeliest) == 1 else text
    return next(map(spelt, found), lost)


def _meant(roots: Sequence[Path], parts: tuple[str, ...], at: str, known: Iterable[str]) -> Iterator[Path]:
    """Give the paths that may be meant by the end of one, the likeliest first."""
    if at:
        yield Path(at).joinpath(*parts)
    yield from _in_roots(roots, parts)
    yield from (path for path in map(Path, known) if path.parts[-len(parts) :] == parts)


def _in_roots(roots: Sequence[Path], parts: tuple[str, ...]) -> Iterator[Path]:
    """Give the paths below roots, of which the first parts may be the last of the root itself."""
    for root in roots:
        for shared in range(len(parts) + 1):
            if root.parts[len(root.parts) - shared :] == parts[:shared]:
                yield root.joinpath(*parts[shared:])


def is_inside(roots: Sequence[Path], path: Path) -> bool:
    """Tell whether a path leads to something under the roots."""
    try:
        inside(roots, path)
    except PathOutsideRootsError:
        return False
    return True


def _entries(roots: Sequence[Path], folder: Path, begins: str, suffixes: Collection[str]) -> Iterator[Entry]:
    """Give what is in a folder and may be read; links that lead out of the roots are left out.

    Of most entries only the name and the kind are known, which the folder itself says.
    """
    try:
        with scan_folder(folder, within=roots) as found:
            for entry in islice(found, MOST_PASSED):
                if entry.name.startswith(".") or not entry.name.lower().startswith(begins):
                    continue
                if entry.is_symlink() and not is_inside(roots, Path(entry.path)):
                    continue
                if entry.is_dir():
                    yield Entry(entry.name, entry.path, is_folder=True)
                elif os.path.splitext(entry.name)[1].lower() in suffixes and entry.is_file():  # noqa: PTH122 (faster)
                    yield Entry(entry.name, entry.path, is_folder=False)
    except OSError as error:
        raise DumpUnreadableError(
            Message.of("server.folder_not_listed", why=error.strerror), path=folder
        ) from error


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 (faster)
    except OSError:  # gone meanwhile, or a link that leads nowhere
        return 0.0


def _folder(path: Path, name: str) -> Entry:
    return Entry(name or str(path), str(path), is_folder=True)


def with_formats(entries: Sequence[Entry], *, looks: bool = True) -> Iterator[Entry]:
    """Give entries with their formats, as many as can be looked into in time."""
    until = time.monotonic() + SECONDS_FOR_FORMATS
    for number, entry in enumerate(entries):
        now = time.monotonic()
        is_looked_at = looks and number < MOST_LOOKS and now < until
        found = (
            _format_of(entry.path, _changed_at(entry.path), int(now / KEPT_SECONDS)) if is_looked_at else None
        )
        yield entry if found is None else replace(entry, format=found[0], evidence=found[1])


@lru_cache(4096)
def _format_of(path: str, _changed_at: object, _moment: int) -> tuple[str, tuple[Message, ...]] | None:
    """Recognise what lies at a path, once in a while: the form asks for the same folders with each key."""
    return recognise(Path(path))


def _above(roots: Sequence[Path], folder: Path) -> tuple[Entry, ...]:
    root = max(filter(folder.is_relative_to, roots), key=lambda root: len(root.parts))
    between = [folder, *folder.parents][: len(folder.parts) - len(root.parts) + 1]
    return tuple(_folder(path, str(path) if path == root else path.name) for path in reversed(between))
