"""Uploads on disk: what has arrived is the size of the files, so a killed process loses nothing.

uploads/                      a root that can be browsed
├── golden/                   an upload that has arrived whole
├── .incoming/{id}/           one that has not
│   ├── upload.json           what was announced, and where it came to lie
│   ├── files/…               what has arrived of it
│   └── unpacked/…            what has been unpacked of it so far
└── .bin/{name}/              a dump that was removed, and can be taken back for some days
"""

import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.catalogue.private import make_file, make_folder
from firstdrift.catalogue.sizes import FOLDER, file_takes, size_on_disk
from firstdrift.errors import (
    BusyError,
    ConflictError,
    NoRoomError,
    NotInCatalogueError,
    QuotaError,
    UploadError,
)
from firstdrift.wording.message import Message
from firstdrift_server.uploads.names import folder_name, folders_of, is_archive, parts_of, require_distinct
from firstdrift_server.uploads.places import free_place, innermost, taken

INCOMING, BIN = ".incoming", ".bin"
RECORD = "upload.json"
KEPT_DAYS = 3
"""Uploads nobody goes on with, records of finished ones, and removed dumps are kept so long."""

MOST_FILES = 100_000
MOST_UNPACKED = 200_000
"""So many files are uploaded at once, and so many files, folders and links come out of an archive."""

MOST_COMING, MOST_UNPACKING = 64, 4
"""So many uploads may be under way at a time, and so many are unpacked."""

MOST_OF_MEMBERS = MOST_COMING * 4 // 5
"""Members leave the last fifth of those under way to the owner."""

LEAST_FREE = 256 << 20
"""Bytes of the disk that uploads leave free: the database lies there too."""

LEAST_FREE_ENTRIES = 10_000
"""So many files and folders the disk must be able to take besides, where it says how many it can."""

_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MAKE_ROOM = Message.of("uploads.remove_uploads")


class UploadFile(Struct, frozen=True):
    """A file that was announced: its path inside the upload, and its size in bytes."""

    path: str
    size: int


class Upload(Struct, frozen=True):
    """Files that somebody is uploading, or has uploaded.

    Attributes:
        name: of the folder they are to lie in, unless there is one of that name.
        landed: that folder; None until all has arrived.
        inode: by which the system knows it: another upload may have come to lie there meanwhile.
    """

    id: str
    name: str
    files: tuple[UploadFile, ...]
    created_at: float
    landed: str | None = None
    inode: int | None = None

    def has_landed(self) -> bool:
        """Tell whether it lies where it was to come to lie."""
        if self.landed is None:
            return False
        try:
            return self.inode in (None, os.stat(self.landed).st_ino)  # noqa: PTH116 (a string)
        except FileNotFoundError:
            return False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def takes(self) -> int:
        """Bytes of the disk that the files and their folders take."""
        return sum(file_takes(file.size) for file in self.files) + FOLDER * len(
            folders_of(file.path for file in self.files)
        )

    @property
    def folders(self) -> set[str]:
        """The folders that the files lie in."""
        return folders_of(file.path for file in self.files)

    @property
    def archive(self) -> str | None:
        """The path of the archive, if the upload is one."""
        only = self.files[0].path
        return only if len(self.files) == 1 and is_archive(only) else None


class Unpacking:
    """How far an archive is unpacked; `stop` ends it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.files = self.size = 0
        self.share = 0.0
        self.stop = False

    def watch(self, files: int, size: int, share: float) -> None:
        """Take down how far it is, or end it."""
        self.files, self.size, self.share = files, size, share
        if self.stop:
            raise UploadError(Message.of("uploads.cancelled"))


class Uploads:
    """The uploads below one folder, which may be shared by several servers."""

    def __init__(self, folder: Path, quota: int) -> None:
        """Keep them in a folder, which is made when it is needed; they may take `quota` bytes."""
        self.folder, self.quota = folder, quota
        self._unpacking: dict[str, Unpacking] = {}
        self._known: dict[str, tuple[int, Upload]] = {}
        self._lock, self._beginning = Lock(), Lock()

    def begin(self, name: str, files: Sequence[UploadFile], *, for_member: bool = False) -> Upload:
        """Announce an upload, for which there must be room.

        Raises:
            UploadError: uploads are switched off, a name cannot be used, or two files would be one.
            NoRoomError: the files would not fit.
            QuotaError: too many are under way.
        """
        if not self.quota:
            raise UploadError(
                Message.of("uploads.switched_off"),
                hint=Message.of("uploads.put_dumps_below_roots"),
            )
        tidy = tuple(UploadFile("/".join(_file_parts(file.path)), file.size) for file in files)
        require_distinct([file.path for file in tidy])
        upload = Upload(secrets.token_hex(8), folder_name(name), tidy, time.time())
        self.clean()
        with self._beginning, _room():
            self._require_turn(MOST_OF_MEMBERS if for_member else MOST_COMING)
            self._require_room(upload.takes, len(upload.files) + len(upload.folders))
            try:
                make_folder(self._of(upload.id) / "files")
                self._save(upload)
            except OSError:
                self._forget(upload.id)
                raise
        return upload

    def get(self, upload_id: str) -> Upload:
        """Look up an upload.

        Raises:
            NotInCatalogueError: there is none (any more).
        """
        try:
            return self._read(upload_id)
        except FileNotFoundError:
            self._known.pop(upload_id, None)
            raise NotInCatalogueError(
                Message.of("uploads.no_upload", upload=upload_id[:40]),
                hint=Message.of("uploads.begin_anew"),
            ) from None

    def _read(self, upload_id: str) -> Upload:
        if not _ID.fullmatch(upload_id):
            raise FileNotFoundError(upload_id)
        record = self._of(upload_id) / RECORD
        # Written anew, also by another server, the record is another file.
        inode = record.stat().st_ino
        known = self._known.get(upload_id)
        if known is None or known[0] != inode:
            known = (inode, msgspec.json.decode(record.read_bytes(), type=Upload))
            self._known[upload_id] = known
        if known[1].has_landed() or not (record.parent / "files").exists():
            return known[1]
        return replace(known[1], landed=None)  # whoever was to put it there died just before

    def arrived(self, upload: Upload, number: int) -> int:
        """Say how many bytes of a file have arrived."""
        if upload.landed is not None:
            return upload.files[number].size
        try:
            return self._file(upload, number).stat().st_size
        except FileNotFoundError:
            return 0

    def write(self, upload_id: str, number: int, offset: int, data: bytes) -> int:
        """Write a chunk where the file ends; return how much of the file there is then.

        Raises:
            NotInCatalogueError: there is no such upload or file.
            ConflictError: the file does not end at `offset`: another chunk has arrived, or one is missing.
            UploadError: the file would be longer than announced.
            NoRoomError: the disk is full.
        """
        upload = self.get(upload_id)
        if not 0 <= number < len(upload.files):
            raise NotInCatalogueError(Message.of("uploads.no_file", number=number))
        size = upload.files[number].size
        there = self.arrived(upload, number)
        if offset != there:
            raise ConflictError(
                Message.of("uploads.other_offset", arrived=there, offset=offset),
                hint=Message.of("uploads.go_on_at", offset=there),
            )
        if offset + len(data) > size:
            raise UploadError(Message.of("uploads.longer_than_announced", size=size))
        path = self._file(upload, number)
        with _room():
            make_folder(path.parent)
            # Written at its place, with nothing cut off: a chunk sent twice at once is the same bytes,
            # and one that comes late takes nothing away of those after it.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.seek(offset)
                file.write(data)
            try:
                os.utime(self._of(upload_id) / RECORD)
            except FileNotFoundError:  # it was cancelled meanwhile
                self._forget(upload_id)
        self.get(upload_id)
        return offset + len(data)

    def finish(self, upload_id: str) -> Path:
        """Put an upload that has arrived whole in its place, unpacked if it is an archive; return where.

        What cannot be unpacked is thrown away, unless there was no room: then it can be finished later.

        Raises:
            NotInCatalogueError: there is no such upload.
            ConflictError: it is being unpacked.
            UploadError: it has not arrived whole, or the archive cannot be unpacked, and why.
            NoRoomError: there is no room for what the archive holds.
        """
        with self._alone(upload_id) as unpacking, _room():
            upload = self.get(upload_id)
            if upload.landed is not None and Path(upload.landed).exists():
                return Path(upload.landed)
            self._require_whole(upload)
            here = self._of(upload_id)
            source = here / "files"
            if upload.archive is not None:
                source = here / "unpacked"
                try:
                    self._unpack(here / "files" / upload.archive, source, unpacking)
                except NoRoomError:
                    shutil.rmtree(source, ignore_errors=True)
                    raise
                except UploadError:
                    self._forget(upload_id)
                    raise
            landed = self._land(upload, innermost(source))
            self._require_links_inside(upload_id, landed)
            for rest in ("files", "unpacked"):
                shutil.rmtree(here / rest, ignore_errors=True)
            return landed

    def cancel(self, upload_id: str) -> None:
        """Throw away what has arrived of an upload, and stop unpacking it.

        Raises:
            NotInCatalogueError: there is no such upload.
        """
        self.get(upload_id)
        if (unpacking := self._unpacking.get(upload_id)) is not None:
            unpacking.stop = True  # who unpacks it throws it away
            return
        with _room():
            (self._of(upload_id) / RECORD).unlink(missing_ok=True)
        self._forget(upload_id)

    def unpacking(self, upload_id: str) -> Unpacking | None:
        """Say how far an archive is unpacked; None if it is not being unpacked by this process."""
        return self._unpacking.get(upload_id)

    def remove(self, name: str) -> None:
        """Move an uploaded dump to the bin, from which `restore` takes it back.

        Raises:
            NotInCatalogueError: there is no such dump.
        """
        self._move(self.folder / _one_part(name), self.folder / BIN / _one_part(name))

    def restore(self, name: str) -> None:
        """Take an uploaded dump back from the bin.

        Raises:
            NotInCatalogueError: it is not there (any more).
        """
        self._move(self.folder / BIN / _one_part(name), self.folder / _one_part(name))

    def listed(self) -> tuple[Path, ...]:
        """List what has been uploaded, the newest first."""
        try:
            found = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
        except OSError:  # nothing was ever uploaded
            return ()
        return tuple(sorted(found, key=lambda path: -path.lstat().st_mtime))

    def clean(self) -> None:
        """Remove what has been left alone for days, but nothing that is being unpacked."""
        then = time.time() - KEPT_DAYS * 86400
        places = (f"{INCOMING}/*/{RECORD}", f"{BIN}/*")
        for path in (path for place in places for path in self.folder.glob(place)):
            with suppress(FileNotFoundError):  # another server has been faster
                if path.lstat().st_mtime >= then:
                    continue
            if path.name == RECORD and path.parent.parent.name == INCOMING:
                if path.parent.name not in self._unpacking:
                    self._forget(path.parent.name)
            else:
                shutil.rmtree(path, ignore_errors=True)

    def room(self) -> int:
        """Say how many bytes of the disk uploads can still take: what quota and disk leave, bin included."""
        make_folder(self.folder)
        waiting = sum(
            max(0, upload.takes - taken(self._of(upload.id) / "files")) for upload in self._coming()
        )
        free = shutil.disk_usage(self.folder).free - LEAST_FREE
        return max(0, min(self.quota - size_on_disk(self.folder), free) - waiting)

    def _coming(self) -> Iterator[Upload]:
        """Give the uploads that have not arrived whole."""
        for record in self.folder.glob(f"{INCOMING}/*/{RECORD}"):
            with suppress(NotInCatalogueError, FileNotFoundError):  # cancelled meanwhile
                upload = self.get(record.parent.name)
                if upload.landed is None:
                    yield upload

    def _require_turn(self, most: int) -> None:
        """Make sure that not too many are under way; what was left alone for days is none any more."""
        if sum(1 for _ in self._coming()) >= most:
            many, hint = Message.of("uploads.many", most=most), Message.of("uploads.finish_some")
            raise QuotaError(many, seconds=60.0, hint=hint)

    def _require_room(self, takes: int, entries: int) -> None:
        if takes > self.room():
            shutil.rmtree(self.folder / BIN, ignore_errors=True)
        if takes > (room := self.room()):
            raise NoRoomError(Message.of("uploads.no_room", bytes=takes, room=room), hint=_MAKE_ROOM)
        if entries > self._entries():
            raise NoRoomError(Message.of("uploads.no_more_files"), hint=Message.of("uploads.remove_files"))

    def _entries(self) -> int:
        """Say how many files and folders the disk can still take, of those that say so."""
        disk = os.statvfs(self.folder)
        return max(0, disk.f_favail - LEAST_FREE_ENTRIES) if disk.f_files else sys.maxsize

    def _unpack(self, archive: Path, into: Path, unpacking: Unpacking) -> None:
        from firstdrift_server.uploads.archives import Limits, require_links_inside, unpack

        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(mode=0o700)
        most = min(MOST_UNPACKED, self._entries())
        unpack(archive, into, Limits(size=self.room(), files=most), unpacking.watch)
        # The one folder that is all there is gets another name: none of its links may go by this one.
        require_links_inside(innermost(into))

    def _require_whole(self, upload: Upload) -> None:
        missing = [
            file for number, file in enumerate(upload.files) if self.arrived(upload, number) != file.size
        ]
        if missing:
            raise UploadError(
                Message.of(
                    "uploads.incomplete", missing=len(missing), files=len(upload.files), first=missing[0].path
                ),
                hint=Message.of("uploads.ask_and_go_on"),
            )
        for number, file in enumerate(upload.files):
            if not file.size:  # of an empty file there is nothing to send
                path = self._file(upload, number)
                make_folder(path.parent)
                make_file(path)

    def _require_links_inside(self, upload_id: str, landed: Path) -> None:
        """Look at the links once more where they are to stay; throw all away if one leads out."""
        from firstdrift_server.uploads.archives import require_links_inside

        try:
            require_links_inside(landed)
        except UploadError:
            shutil.rmtree(landed, ignore_errors=True)
            self._forget(upload_id)
            raise

    def _land(self, upload: Upload, source: Path) -> Path:
        with self._lock:
            landed = free_place(self.folder / upload.name)
            # First where, then there: if this process dies in between, it is put there once more.
            self._save(replace(upload, landed=str(landed), inode=source.stat().st_ino))
            source.rename(landed)
        os.utime(landed)
        return landed

    def _move(self, source: Path, to: Path) -> None:
        with self._lock:
            if not source.is_dir() or to.exists():
                raise NotInCatalogueError(Message.of("uploads.no_dump", name=source.name))
            with _room():
                make_folder(to.parent)
                source.rename(to)
                os.utime(to)

    @contextmanager
    def _alone(self, upload_id: str) -> Iterator[Unpacking]:
        self.get(upload_id)
        with self._lock:
            if upload_id in self._unpacking:
                raise ConflictError(
                    Message.of("uploads.being_unpacked"), hint=Message.of("uploads.ask_how_far")
                )
            if len(self._unpacking) >= MOST_UNPACKING:
                raise BusyError(
                    Message.of("uploads.many_unpacked"), hint=Message.of("processes.hint.try_again")
                )
            mine = self._unpacking[upload_id] = Unpacking()
        try:
            yield mine
        finally:
            del self._unpacking[upload_id]
            if mine.stop:
                self._forget(upload_id)

    def _save(self, upload: Upload) -> None:
        record = self._of(upload.id) / RECORD
        new = record.with_suffix(".new")
        make_file(new)
        new.write_bytes(msgspec.json.encode(upload))
        new.replace(record)

    def _forget(self, upload_id: str) -> None:
        self._known.pop(upload_id, None)
        shutil.rmtree(self._of(upload_id), ignore_errors=True)

    def _of(self, upload_id: str) -> Path:
        return self.folder / INCOMING / upload_id

    def _file(self, upload: Upload, number: int) -> Path:
        return self._of(upload.id) / "files" / upload.files[number].path


def _file_parts(path: str) -> tuple[str, ...]:
    parts = parts_of(path)
    if not parts or path.endswith("/") or not path.isprintable():
        raise UploadError(Message.of("uploads.not_a_file_name", name=path))
    return parts


def _one_part(name: str) -> str:
    parts = parts_of(name)
    if len(parts) != 1 or parts[0].startswith("."):
        raise NotInCatalogueError(Message.of("uploads.no_dump", name=name))
    return parts[0]


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoomError(
                Message.of("uploads.disk_full"), hint=Message.of("uploads.make_room_and_go_on")
            ) from error
        raise UploadError(Message.of("uploads.cannot_keep", why=error.strerror)) from error
