"""The folder that keeps what was fetched, of a bounded size.

~/.cache/firstdrift/remote/
    lock              held while room is made
    5f3c…/            one address
        in_use        its bytes; held together by all who read it, and dated by the last
        fetching      held by who fetches
        versions      a line for each file that came whole
        parts/        what is coming
        files/        what came, below the names that it has there
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import json

from firstdrift.errors import LimitError, SettingsError
from firstdrift.files import size_in_words
from firstdrift.remote.listing import RemoteFile, Version
from firstdrift.wording.message import Message

_USUAL_SIZE: Final = "50GiB"
_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE: Final = re.compile(r"([0-9]+) ?([KMGT]?)i?B?", re.IGNORECASE)


def cache_folder() -> Path:
    """Return the folder of all that was fetched: FIRSTDRIFT_CACHE, or one in the cache of the user."""
    if chosen := os.environ.get("FIRSTDRIFT_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstdrift" / "remote"


def most_bytes() -> int:
    """Return how much it may take: FIRSTDRIFT_CACHE_SIZE, such as 50GiB.

    Raises:
        SettingsError: that is no size.
    """
    said = os.environ.get("FIRSTDRIFT_CACHE_SIZE") or _USUAL_SIZE
    size = _SIZE.fullmatch(said.strip())
    if size is None:
        raise SettingsError(Message.of("remote.no_size", said=said))
    return int(size[1]) << _UNITS[size[2].upper()]


class Kept:
    """What is kept of one address."""

    def __init__(self, address: str) -> None:
        """Name the folders; nothing is made."""
        name = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self.folder = cache_folder() / name
        self.files, self._parts = self.folder / "files", self.folder / "parts"
        self._versions = self.folder / "versions"

    def hold(self, size: int) -> int:
        """Keep it from being removed while what is returned, a descriptor, is open.

        What was not used for longest is removed until there is room for it.

        Raises:
            LimitError: it is larger than all of the cache may be, beside what is in use.
        """
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(cache_folder() / "lock"):
            self.folder.mkdir(exist_ok=True)
            held = _open(self.folder / "in_use")
            try:
                fcntl.flock(held, fcntl.LOCK_SH)
                _make_room(self.folder, size)
                os.ftruncate(held, 0)
                os.pwrite(held, str(size).encode(), 0)
            except BaseException:
                os.close(held)
                raise
            return held

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Let nobody else fetch the same; what did not come whole before is gone."""
        with locked(self.folder / "fetching"):
            shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir()
            self.files.mkdir(exist_ok=True)
            yield

    def keep_only(self, places: Collection[Path]) -> None:
        """Remove what is there no more, and folders that are empty then."""
        for folder, inner, names in os.walk(self.files, topdown=False):
            for path in (Path(folder, name) for name in names):
                if path not in places:
                    path.unlink()
            for name in inner:
                with suppress(OSError):  # something lies in it
                    Path(folder, name).rmdir()

    def versions(self) -> dict[str, Version]:
        """Return what is known of the files that came whole."""
        lines = self._versions.read_bytes().splitlines() if self._versions.exists() else []
        return {one.name: one for one in map(_version, lines) if one is not None}

    @contextmanager
    def receive(self, file: RemoteFile, place: Path) -> Iterator[str]:
        """Give the name of a file to write; when it is written, it is put in its place."""
        descriptor, part = tempfile.mkstemp(dir=self._parts)
        os.close(descriptor)
        try:
            yield part
            place.parent.mkdir(parents=True, exist_ok=True)
            size = os.stat(part).st_size  # noqa: PTH116 (a string)
            os.replace(part, place)  # noqa: PTH105 (a string)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)  # noqa: PTH108 (a string)
        with self._versions.open("ab", buffering=0) as written:
            written.write(json.encode(Version(file.name, size, file.version)) + b"\n")


_DECODER = json.Decoder(Version)


def _version(line: bytes) -> Version | None:
    with suppress(ValueError):
        return _DECODER.decode(line)
    return None  # the last line, of a machine that went out


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a file that one alone holds at a time."""
    held = _open(file)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _make_room(folder: Path, size: int) -> None:
    most = most_bytes()
    others = [other for other in cache_folder().glob("*/in_use") if other.parent != folder]
    others.sort(key=lambda other: other.stat().st_mtime)
    sizes = [int(other.read_text() or 0) for other in others]
    beyond = sum(sizes) + size - most
    for other, freed in zip(others, sizes, strict=True):
        if beyond > 0 and _remove(other):
            beyond -= freed
    if beyond > 0:
        said = Message.of("remote.no_room", size=size_in_words(size), most=size_in_words(most))
        raise LimitError(said, hint=Message.of("remote.hint.size"))


def _remove(in_use: Path) -> bool:
    """Remove what is kept of an address, unless somebody uses it."""
    held = _open(in_use)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(in_use.parent)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return True
