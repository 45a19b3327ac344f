"""Open what somebody else wrote: without waiting, below the directories that may be read, of a bounded size.

    name ─▶ descriptor ─▶ a regular file? ─▶ below the roots, by its real path? ─▶ not too large? ─▶ read
                             a pipe               a link, a folder that was swapped     3 GB of nothing

What was checked is what is read: the descriptor is asked, never the name again, so that nothing can be put
in place of the file in between. This is the only way in which firstdrift opens files of dumps, mapping files
and the like (a test sees to it).
"""

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from firstdrift.groups import known
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

LEADS_OUT: Final = Message.of("files.leads_out")
NOT_REGULAR: Final = Message.of("files.not_regular")

_LONGEST_PATH: Final = 1024
"""Bytes that macOS wants set aside for a path (MAXPATHLEN)."""

_READ: Final = os.O_RDONLY | os.O_CLOEXEC
# Without O_NONBLOCK a named pipe among the files would be waited on for ever.
_READ_FILE: Final = _READ | os.O_NONBLOCK
_LIST_FOLDER: Final = _READ | os.O_DIRECTORY


class RefusedError(OSError):
    """What was found is not opened, or read no further, although the system would let it be.

    Attributes:
        message: why, as a clause without a full stop.
    """

    def __init__(self, number: int, message: Message, file: Path | str) -> None:
        """Take an error number of the system that comes near, why, and what was asked for."""
        self.message = message
        super().__init__(number, text_of(message), str(file))


class OutsideError(RefusedError):
    """It lies outside the directories that may be read."""

    def __init__(self, file: Path | str) -> None:
        """Take what was asked for."""
        super().__init__(errno.EACCES, LEADS_OUT, file)


class NotRegularError(RefusedError):
    """It is a directory, a pipe, a socket or a device."""

    def __init__(self, file: Path | str) -> None:
        """Take what was asked for."""
        super().__init__(errno.EINVAL, NOT_REGULAR, file)


class TooLargeError(RefusedError):
    """It is larger than whoever reads it has use for."""

    def __init__(self, file: Path | str, most: int) -> None:
        """Take what was asked for, and the most bytes that it may have."""
        super().__init__(errno.EFBIG, Message.of("files.too_large", most=size_in_words(most)), file)


class _Process:
    """What holds for everything that this process opens."""

    roots: tuple[Path, ...] | None = None
    may_map: bool = True


def confine_process(roots: Sequence[Path] | None) -> None:
    """Let this process open and list only what lies below these real paths; None: all that it may."""
    _Process.roots = None if roots is None else tuple(roots)


def allow_mapping(allowed: bool) -> None:
    """Say whether this process may map files; where not, ranges are read one by one.

    A file that is mapped and then made shorter ends the process at the next look at it (SIGBUS).
    """
    _Process.may_map = allowed


def may_map() -> bool:
    """Tell whether this process may map files."""
    return _Process.may_map


def said_by_system(error: OSError) -> Message | str | None:
    """Return why something could not be opened or read: our own refusal, or what the system says."""
    return error.message if isinstance(error, RefusedError) else error.strerror


def size_in_words(size: int) -> str:
    """Write a limit: "512 MiB", "64 KiB", "10 bytes"."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << bits and size % (1 << bits) == 0:
            return f"{size >> bits} {unit}"
    return f"{size:,} bytes"


def open_descriptor(file: Path, *, within: Sequence[Path] | None = None, most: int | None = None) -> int:
    """Open a regular file for reading; whoever calls closes it.

    Args:
        file: what to open.
        within: real paths; the file must lie below one of them. None: wherever this process may read.
        most: the most bytes that it may have.

    Raises:
        OutsideError: it lies elsewhere.
        TooLargeError: it is larger.
        NotRegularError: it is no file with bytes of its own.
        OSError: it is missing or may not be read.
    """
    descriptor = _open(file, _READ_FILE, within)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularError(file)  # noqa: TRY301
        if most is not None and status.st_size > most:
            raise TooLargeError(file, most)  # noqa: TRY301
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(file: Path, *, within: Sequence[Path] | None = None, most: int | None = None) -> BinaryIO:
    """Open a regular file as a stream, of which no more than `most` bytes come even if the file grows.

    Raises:
        OSError: as `open_descriptor` says; reading beyond `most` raises TooLargeError, too.
    """
    descriptor = open_descriptor(file, within=within, most=most)
    if most is None:
        return os.fdopen(descriptor, "rb")
    return cast("BinaryIO", io.BufferedReader(_Bounded(descriptor, file, most)))


def read_regular(file: Path, *, within: Sequence[Path] | None = None, most: int) -> bytes:
    """Read a regular file whole.

    Raises:
        OSError: as `open_regular` says.
    """
    with open_regular(file, within=within, most=most) as opened:
        return opened.read()


def read_editable(file: Path, *, most: int) -> bytearray:
    """Read a regular file whole into memory that may be changed.

    Raises:
        OSError: as `open_regular` says.
    """
    with open_regular(file, most=most) as opened:
        content = bytearray(min(os.fstat(opened.fileno()).st_size, most))
        del content[cast("io.BufferedReader", opened).readinto(content) :]
        content += opened.read()
        return content


class _Bounded(io.RawIOBase):
    """A file of which no more than so many bytes are read."""

    def __init__(self, descriptor: int, file: Path, most: int) -> None:
        self._descriptor, self._file, self._most, self._left = descriptor, file, most, most

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        view = memoryview(buffer).cast("B")
        return self._count(os.readv(self._descriptor, [view[: self._left + 1]]))

    def readall(self) -> bytes:
        pieces = []
        # The file as it is now, in one piece if it neither grows nor shrinks meanwhile.
        size = os.fstat(self._descriptor).st_size + 1
        while piece := os.read(self._descriptor, min(max(size, io.DEFAULT_BUFFER_SIZE), self._left + 1)):
            self._count(len(piece))
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)

    def _count(self, size: int) -> int:
        self._left -= size
        if self._left < 0:
            raise TooLargeError(self._file, self._most)
        return size


class Entry(os.PathLike[str]):
    """Something in a folder, as `os.scandir` found it; may be asked after the folder was closed."""

    __slots__ = ("_found", "_is_link", "_place", "name")

    def __init__(self, found: "os.DirEntry[str]", place: str) -> None:
        """Take what was found, and the path of its folder with a slash behind it."""
        self._found, self._place, self.name = found, place, found.name
        # Asked here, while the folder is open: some file systems must be asked for it.
        self._is_link = found.is_symlink()

    @property
    def path(self) -> str:
        """The path of the folder, as it was given, and the name."""
        return self._place + self.name

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    def is_symlink(self) -> bool:
        """Tell whether it is a link."""
        return self._is_link

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Tell whether it is a folder, or a link to one."""
        if self._is_link and follow_symlinks:
            return os.path.isdir(self.path)  # noqa: PTH112 (a string is as good)
        return self._found.is_dir(follow_symlinks=False)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Tell whether it is a regular file, or a link to one."""
        if self._is_link and follow_symlinks:
            return os.path.isfile(self.path)  # noqa: PTH113 (a string is as good)
        return self._found.is_file(follow_symlinks=False)

    def stat(self) -> os.stat_result:
        """Return what is known of it; of a link, of what it leads to."""
        return os.stat(self.path)  # noqa: PTH116 (a string is as good)


@contextmanager
def scan_folder(folder: Path | Entry, *, within: Sequence[Path] | None = None) -> Iterator[Iterator[Entry]]:
    """Give the entries of a folder, in no order.

    Raises:
        OutsideError: it lies outside `within`, or where this process may not read.
        OSError: it is missing, no folder or may not be read.
    """
    descriptor = _open(folder, _LIST_FOLDER, within)
    try:
        place = os.path.join(folder, "")  # noqa: PTH118 (a path without its slash)
        with os.scandir(descriptor) as found:
            yield (Entry(entry, place) for entry in found)
    finally:
        os.close(descriptor)


def list_folder(folder: Path | Entry, *, within: Sequence[Path] | None = None) -> list[Entry]:
    """Return the entries of a folder, in no order.

    Raises:
        OSError: as `scan_folder` says.
    """
    with scan_folder(folder, within=within) as entries:
        return list(entries)


def require_confined(path: Path) -> None:
    """Make sure that a file or folder lies where this process may read.

    Raises:
        OutsideError: it does not.
        OSError: it cannot be opened.
    """
    if _Process.roots is not None:
        os.close(_open_confined(path, _READ_FILE, [_Process.roots]))


def _open(wanted: Path | Entry, flags: int, within: Sequence[Path] | None) -> int:
    bounds = known((_Process.roots, within))
    if not bounds:
        return os.open(wanted, flags)
    return _open_confined(wanted, flags, bounds)


def _open_confined(wanted: Path | Entry, flags: int, bounds: Sequence[Sequence[Path]]) -> int:
    name = os.fspath(wanted)
    descriptor = os.open(name, flags)
    try:
        real = real_path(descriptor)
        if real is None:
            os.close(descriptor)
            descriptor = -1
            real = Path(os.path.realpath(name))
            descriptor = open_part_by_part(real, flags)
        if not all(any(map(real.is_relative_to, roots)) for roots in bounds):
            raise OutsideError(name)  # noqa: TRY301
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        raise
    return descriptor


def real_path(descriptor: int) -> Path | None:
    """Return where what is open lies now, as the system knows it; None where the system does not say."""
    for ask in (_path_on_linux, _path_on_macos):
        with suppress(OSError):
            return Path(ask(descriptor))
    return None


def _path_on_linux(descriptor: int) -> str:
    # The roots were not resolved anew, and neither is this: both are what the kernel calls the place.
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 (a string is as good)


def _path_on_macos(descriptor: int) -> str:
    if sys.platform != "darwin":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    import fcntl

    found: bytes = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(_LONGEST_PATH))
    return os.fsdecode(found.rstrip(b"\0"))


def open_part_by_part(real: Path, flags: int) -> int:
    """Open a real path so that no part of it can have become a link.

    Raises:
        OSError: a part of it is a link by now, or it cannot be opened.
    """
    folder = os.open(real.anchor, _LIST_FOLDER)
    try:
        for part in real.parts[1:-1]:
            inner = os.open(part, _LIST_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(real.parts[-1], flags | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
