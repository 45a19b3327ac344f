"""Unpack an archive that a stranger made: below one folder, within limits, files and folders only.

    member  ─▶  a name that stays inside  ─▶  a file, a folder      written at once, and counted meanwhile
                                          ─▶  a link                made when all else is there:
                                                                    it must end inside
                                          ─▶  a device, a pipe      refused

Nothing is ever written through a link, because there is none until the end. Whoever calls removes the folder
when an error is raised.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from msgspec import Struct

from firstdrift.catalogue.sizes import ENTRY, FOLDER, blocks_of, file_takes
from firstdrift.errors import FirstdriftError, NoRoomError, UploadError
from firstdrift.wording.message import Message
from firstdrift_server.uploads.names import parts_of

if TYPE_CHECKING:
    import tarfile

PIECE = 1 << 20
FREE_BYTES = 100 << 20
"""So much may come out of any archive, however small: what is nearly empty packs well."""

MOST_LINKS = 1000
MOST_STEPS = 40
"""Links that are followed one after the other, as many as Linux follows."""

LONGEST_HEADER = 4 << 20
LONGEST_LINK = 4096
TAR_BLOCK = 512
LONGEST_PADDING = 64 << 20
ENCRYPTED = 1
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Limits(Struct, frozen=True):
    """What may come out of an archive.

    Attributes:
        size: bytes of the disk that all of it takes, however little is in it.
        files: files, folders and links.
        ratio: how many times the size of the archive.
    """

    size: int
    files: int = 200_000
    ratio: int = 250


Watch = Callable[[int, int, float], None]
"""Is told files, bytes and the share (0 to 1) that is done; what it raises ends the work."""


def unpack(archive: Path, folder: Path, limits: Limits, watch: Watch) -> None:
    """Unpack a zip file, or a tar file that may be compressed, into an empty folder.

    What it is is seen from its first bytes.

    Raises:
        UploadError: it is damaged, holds what must not be unpacked, or more than the limits allow.
        NoRoomError: the disk is full, or `limits.size` is less than what it holds.
    """
    try:
        with archive.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            filling = _Filling(folder, limits, size, watch)
            if file.read(4) in (b"PK\3\4", b"PK\5\6"):
                _unzip(file, filling)
            else:
                file.seek(0)
                _untar(file, filling)
            filling.make_links()
    except FirstdriftError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NoRoomError(
                Message.of("uploads.disk_full"), hint=Message.of("uploads.make_room")
            ) from error
        raise UploadError(Message.of("uploads.cannot_unpack", why=error.strerror or str(error))) from error
    except (
        Exception
    ) as error:  # what decompressors, zipfile and tarfile make of damaged files is listed nowhere
        raise UploadError(
            Message.of("uploads.archive_damaged", why=str(error) or type(error).__name__)
        ) from error


def require_links_inside(folder: Path) -> None:
    """Make sure that every link in a folder ends at something in it, and never leaves it on the way.

    So it is wherever the folder is moved, and whatever comes to lie beside it later.

    Raises:
        UploadError: one does not.
    """
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    if not _ends_inside(folder, Path(entry.path)):
                        raise _leads_out(folder, Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))


def _ends_inside(folder: Path, link: Path) -> bool:
    """Follow a link part by part, as the system does, but never out of the folder; it must end somewhere.

    `os.path.realpath` takes what is not there by its name alone: "../steps/d/../.." comes back, until
    somebody puts a "steps" there from which the same way leads elsewhere.
    """
    at = list(link.relative_to(folder).parts[:-1])
    parts = [link.name]
    followed = 0
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return False
            at.pop()
            continue
        place = folder.joinpath(*at, part)
        if place.is_symlink():
            followed += 1
            goal = os.readlink(place)  # noqa: PTH115 (the text, with its slashes)
            if followed > MOST_STEPS or goal.startswith("/"):
                return False
            parts += reversed(goal.split("/"))
        elif place.is_dir() or (place.exists() and not parts):
            at.append(part)
        else:
            return False
    return True


def _leads_out(folder: Path, link: Path) -> UploadError:
    name = link.relative_to(folder).as_posix()
    return UploadError(
        Message.of("uploads.link_leads_out", link=name),
        hint=Message.of("uploads.dereference"),
    )


class _Filling:
    """A folder that is filled, and how much has come so far."""

    def __init__(self, folder: Path, limits: Limits, packed: int, watch: Watch) -> None:
        self.folder, self._limits, self._watch = folder, limits, watch
        self._most = max(FREE_BYTES, packed * limits.ratio)
        self._links: list[tuple[Path, str]] = []
        self._files = self._entries = self._size = self._taken = 0
        self._folders = {folder}
        self.share = 0.0

    def expect(self, files: int, size: int, taken: int) -> None:
        """Refuse before anything is written what will be too much."""
        if files > self._limits.files:
            raise UploadError(
                Message.of("uploads.many_files", most=self._limits.files), hint=Message.of("uploads.in_parts")
            )
        if taken > self._limits.size:
            raise NoRoomError(
                Message.of("uploads.archive_needs_room", room=self._limits.size),
                hint=Message.of("uploads.remove_uploads"),
            )
        if size > self._most:
            raise UploadError(
                Message.of("uploads.archive_grows", ratio=self._limits.ratio),
                hint=Message.of("uploads.put_below_roots"),
            )

    def add_folder(self, name: str) -> None:
        place = self._place(name)
        self._files += 1
        self._count_folders(place)
        place.mkdir(parents=True, exist_ok=True)

    def add_file(self, name: str, data: IO[bytes]) -> None:
        self._count(0, ENTRY, files=1)
        size = 0
        with self._new(name).open("xb") as file:
            while piece := data.read(PIECE):
                self._count(len(piece), blocks_of(size + len(piece)) - blocks_of(size))
                file.write(piece)
                size += len(piece)

    def add_hard_link(self, name: str, to: str) -> None:
        self._count(0, ENTRY, files=1)
        source = self.folder.joinpath(*parts_of(to))
        if source.is_symlink() or not source.is_file():
            raise UploadError(Message.of("uploads.hard_link_to_nothing", link=name))
        os.link(source, self._new(name))

    def add_link(self, name: str, to: str) -> None:
        self._count(0, file_takes(len(to)), files=1)
        place = self._place(name)
        self._count_folders(place.parent)
        self._links.append((place, to))
        if len(self._links) > MOST_LINKS:
            raise UploadError(Message.of("uploads.many_links", most=MOST_LINKS))

    def make_links(self) -> None:
        """Make the links, now that nothing is written any more; each must end inside."""
        if not self._files:
            raise UploadError(Message.of("uploads.empty_archive"))
        for link, to in self._links:
            if to.startswith("/") or not to:
                raise self._leads_out(link)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(to)
        require_links_inside(self.folder)

    def _leads_out(self, link: Path) -> UploadError:
        return _leads_out(self.folder, link)

    def _place(self, name: str) -> Path:
        return self.folder.joinpath(*parts_of(name))

    def _new(self, name: str) -> Path:
        place = self._place(name)
        if place == self.folder or place.exists():
            raise UploadError(Message.of("uploads.twice_in_archive", name=name))
        self._count_folders(place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _count_folders(self, folder: Path) -> None:
        """Count a folder, and those around it, as far as they are new: not all are named in an archive."""
        while folder not in self._folders:
            self._folders.add(folder)
            self._entries += 1
            self._count(0, FOLDER)
            folder = folder.parent

    def _count(self, size: int, taken: int, *, files: int = 0) -> None:
        self._files, self._entries = self._files + files, self._entries + files
        self._size, self._taken = self._size + size, self._taken + taken
        self.expect(self._entries, self._size, self._taken)
        self._watch(self._files, self._size, self.share)


def _unzip(file: IO[bytes], filling: _Filling) -> None:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        entries = [entry for entry in archive.infolist() if not entry.filename.startswith("__MACOSX/")]
        total = sum(entry.file_size for entry in entries)
        filling.expect(len(entries), total, sum(file_takes(entry.file_size) for entry in entries))
        done = 0
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            filling.share = done / total if total else 0.0
            done += entry.file_size
            if entry.flag_bits & ENCRYPTED:
                raise UploadError(Message.of("uploads.encrypted"), hint=Message.of("uploads.no_password"))
            if entry.is_dir():
                filling.add_folder(entry.filename)
            elif kind in (0, stat.S_IFREG):
                with archive.open(entry) as data:
                    filling.add_file(entry.filename, data)
            elif kind == stat.S_IFLNK:
                with archive.open(entry) as data:
                    filling.add_link(entry.filename, os.fsdecode(data.read(LONGEST_LINK)))
            else:
                raise _special(entry.filename)


def _untar(file: IO[bytes], filling: _Filling) -> None:
    import tarfile

    size = os.fstat(file.fileno()).st_size
    with _decompressed(file) as plain:
        stream = _Stream(plain)
        try:
            archive = tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|")  # noqa: SIM115
        except tarfile.ReadError as error:
            raise UploadError(
                Message.of("uploads.no_archive", why=str(error)), hint=Message.of("uploads.zip_or_tar")
            ) from error
        with archive:
            for member in archive:
                filling.share = file.tell() / size if size else 1.0
                _check(member, filling.folder)
                if member.isdir():
                    filling.add_folder(member.name)
                elif member.issym():
                    filling.add_link(member.name, member.linkname)
                elif member.islnk():
                    filling.add_hard_link(member.name, member.linkname)
                else:
                    stream.has_data = True
                    filling.add_file(member.name, cast("IO[bytes]", archive.extractfile(member)))
                stream.has_data, stream.header = False, 0
            if stream.given < archive.offset + TAR_BLOCK:
                raise UploadError(Message.of("uploads.cut_short"), hint=Message.of("uploads.upload_again"))
        stream.read_to_end()


def _check(member: "tarfile.TarInfo", folder: Path) -> None:
    """Refuse what must not be unpacked, first by our own rules and then by those of the standard library."""
    import tarfile

    parts_of(member.name)
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise _special(member.name)
    try:
        tarfile.data_filter(member, str(folder))
    except tarfile.FilterError as error:
        refused = Message.of("uploads.must_not_be_unpacked", name=member.name, why=type(error).__name__)
        raise UploadError(refused, hint=Message.of("uploads.dereference")) from error


def _special(name: str) -> UploadError:
    return UploadError(Message.of("uploads.special_file", name=name))


class _Stream:
    """What comes out of the decompressor; headers of members may be only so long."""

    def __init__(self, plain: IO[bytes]) -> None:
        self._plain = plain
        self.given = self.header = 0
        self.has_data = False

    def read(self, size: int) -> bytes:
        piece = self._plain.read(size)
        self.given += len(piece)
        if not self.has_data:
            self.header += len(piece)
            if self.header > LONGEST_HEADER:
                raise UploadError(Message.of("uploads.endless_header"))
        return piece

    def read_to_end(self) -> None:
        """Let the decompressor check what stands at the end."""
        left = LONGEST_PADDING
        while piece := self._plain.read(PIECE):
            left -= len(piece)
            if left < 0:
                raise UploadError(Message.of("uploads.goes_on_after_end"))


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        import gzip

        return cast("IO[bytes]", gzip.open(file))
    if start.startswith(b"\xfd7zXZ\0"):
        import lzma

        return cast("IO[bytes]", lzma.open(file))
    if start.startswith(b"BZh"):
        import bz2

        return cast("IO[bytes]", bz2.open(file))
    return file
