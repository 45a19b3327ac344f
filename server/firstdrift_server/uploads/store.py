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
from operator import itemgetter
from pathlib import Path
from threading import Lock

import msgspec
from msgspec.structs import replace

from firstdrift.catalogue.private import make_file, make_folder
from firstdrift.catalogue.sizes import size_on_disk
from firstdrift.errors import (
    ConflictError,
    NoRoomError,
    NotInCatalogueError,
    QuotaError,
    UploadError,
)
from firstdrift.wording.message import Message
from firstdrift_server.uploads.names import folder_name, parts_of, require_distinct
from firstdrift_server.uploads.places import free_place, innermost, taken
from firstdrift_server.uploads.records import RECORD, Upload, UploadFile
from firstdrift_server.uploads.unpacking import Unpacking, Unpackings, held

INCOMING, BIN = ".incoming", ".bin"
KEPT_DAYS = 3
"""Uploads nobody goes on with, records of finished ones, and removed dumps are kept so long."""

IDLE_SECONDS = 3600.0
"""An upload of which nothing has come for so long makes way for others that need its place."""

MOST_FILES = 100_000
MOST_UNPACKED = 200_000
"""So many files are uploaded at once, and so many files, folders and links come out of an archive."""

MOST_COMING = 64
"""So many uploads may be under way at a time."""

MOST_OF_MEMBERS = MOST_COMING * 4 // 5
"""Members leave the last fifth of those under way to the owner, as they do of the quota."""

LEFT_TO_OWNER, MOST_OF_ONE = 5, 2
"""The part of the quota that members leave to the owner, and that one of them may have under way."""

LEAST_FREE = 256 << 20
"""Bytes of the disk that uploads leave free: the database lies there too."""

LEAST_FREE_ENTRIES = 10_000
"""So many files and folders the disk must be able to take besides, where it says how many it can."""

_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MAKE_ROOM = Message.of("uploads.remove_uploads")


_DECODER = msgspec.json.Decoder(Upload)


class Uploads:
    """The uploads below one folder, which may be shared by several servers."""

    def __init__(self, folder: Path, quota: int) -> None:
        """Keep them in a folder, which is made when it is needed; they may take `quota` bytes."""
        self.folder, self.quota = folder, quota
        self._unpackings = Unpackings()
        self._known: dict[str, tuple[int, Upload]] = {}
        self._lock, self._beginning = Lock(), Lock()

    def begin(self, name: str, files: Sequence[UploadFile], *, member: int | None = None) -> Upload:
        """Announce an upload of a member, or of the owner, for which there must be room.

        Where there is none, those that were left alone make way, the one that was left first first.

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
        upload = Upload(secrets.token_hex(8), folder_name(name), tidy, time.time(), member=member)
        self.clean()
        with self._beginning, _room():
            self._require_turn(member)
            self._require_share(upload)
            self._require_room(upload)
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
            found = self._read(upload_id)
        except FileNotFoundError:
            self._known.pop(upload_id, None)
            raise NotInCatalogueError(
                Message.of("uploads.no_upload", upload=upload_id[:40]),
                hint=Message.of("uploads.begin_anew"),
            ) from None
        if found.is_displaced:
            raise NotInCatalogueError(
                Message.of("uploads.displaced", name=found.name), hint=Message.of("uploads.begin_displaced")
            )
        return found

    def _read(self, upload_id: str) -> Upload:
        if not _ID.fullmatch(upload_id):
            raise FileNotFoundError(upload_id)
        record = self._of(upload_id) / RECORD
        # Written anew, also by another server, the record is another file.
        inode = record.stat().st_ino
        known = self._known.get(upload_id)
        if known is None or known[0] != inode:
            known = (inode, _DECODER.decode(record.read_bytes()))
            self._known[upload_id] = known
        if known[1].is_displaced or known[1].has_landed() or not (record.parent / "files").exists():
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
        try:
            self.get(upload_id)
        except NotInCatalogueError:  # it has made way meanwhile
            shutil.rmtree(self._of(upload_id) / "files", ignore_errors=True)
            raise
        return offset + len(data)

    def finish(self, upload_id: str, *, member: int | None = None) -> Path:
        """Put an upload that has arrived whole in its place, unpacked if it is an archive; return where.

        What cannot be unpacked is thrown away, unless there was no room: then it can be finished later.

        Raises:
            NotInCatalogueError: there is no such upload.
            ConflictError: it is being unpacked, by this server or another.
            BusyError: as many are unpacked as may be, for a member or in all.
            UploadError: it has not arrived whole, or the archive cannot be unpacked, and why.
            NoRoomError: there is no room for what the archive holds.
        """
        with self._alone(upload_id, member) as unpacking, _room():
            upload = self.get(upload_id)
            if upload.landed is not None and Path(upload.landed).exists():
                return Path(upload.landed)
            self._require_whole(upload)
            here = self._of(upload_id)
            source = here / "files"
            if upload.archive is not None:
                source = here / "unpacked"
                try:
                    self._unpack(upload, source, unpacking)
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
        if (unpacking := self.unpacking(upload_id)) is not None:
            unpacking.stop = True  # who unpacks it throws it away
            return
        with _room():
            (self._of(upload_id) / RECORD).unlink(missing_ok=True)
        with held(self._of(upload_id)) as is_free:
            if is_free:  # else so does the other server that unpacks it, which sees that the record is gone
                self._forget(upload_id)

    def unpacking(self, upload_id: str) -> Unpacking | None:
        """Say how far an archive is unpacked; None if it is not being unpacked by this process."""
        return self._unpackings.of(upload_id)

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
                with held(path.parent) as is_free:
                    if is_free:
                        self._forget(path.parent.name)
            else:
                shutil.rmtree(path, ignore_errors=True)

    def room(self, *, for_member: bool = False) -> int:
        """Say how many bytes of the disk uploads can still take: what quota and disk leave, bin included."""
        return max(0, self._left(for_member=for_member))

    def _left(self, *, for_member: bool) -> int:
        """Say how much room is left; less than 0 for what is too much."""
        make_folder(self.folder)
        waiting = sum(
            max(0, upload.takes - taken(self._of(upload.id) / "files")) for upload in self._coming()
        )
        free = shutil.disk_usage(self.folder).free - LEAST_FREE
        quota = self.quota - (self.quota // LEFT_TO_OWNER if for_member else 0)
        return min(quota - size_on_disk(self.folder), free) - waiting

    def _coming(self) -> Iterator[Upload]:
        """Give the uploads that have not arrived whole."""
        for record in self.folder.glob(f"{INCOMING}/*/{RECORD}"):
            with suppress(NotInCatalogueError, FileNotFoundError):  # cancelled meanwhile
                upload = self.get(record.parent.name)
                if upload.landed is None:
                    yield upload

    def _require_turn(self, member: int | None) -> None:
        """Make sure that not too many are under way."""
        most = MOST_COMING if member is None else MOST_OF_MEMBERS
        if sum(1 for _ in self._coming()) < most:
            return
        if not any(map(self._displace, self._idle(member))):
            many, hint = Message.of("uploads.many", most=most), Message.of("uploads.finish_some")
            raise QuotaError(many, seconds=60.0, hint=hint)

    def _require_share(self, upload: Upload) -> None:
        """Make sure that what one member has under way leaves room to the others."""
        if upload.member is None:
            return
        most = self.quota // MOST_OF_ONE
        others = sum(one.takes for one in self._coming() if one.member == upload.member)
        if others + upload.takes > most:
            said = Message.of("uploads.no_room_of_one", bytes=upload.takes, room=max(0, most - others))
            raise NoRoomError(said, hint=Message.of("uploads.finish_some"))

    def _require_room(self, upload: Upload) -> None:
        takes, for_member = upload.takes, upload.member is not None
        if takes > self.room(for_member=for_member):
            shutil.rmtree(self.folder / BIN, ignore_errors=True)
        idle = self._idle(upload.member)
        if takes <= self.room(for_member=for_member) + sum(one.takes for one in idle):
            while idle and takes > self.room(for_member=for_member):
                self._displace(idle.pop(0))
        if takes > (room := self.room(for_member=for_member)):
            raise NoRoomError(Message.of("uploads.no_room", bytes=takes, room=room), hint=_MAKE_ROOM)
        if len(upload.files) + len(upload.folders) > self._entries():
            raise NoRoomError(Message.of("uploads.no_more_files"), hint=Message.of("uploads.remove_files"))

    def _idle(self, member: int | None) -> list[Upload]:
        """List those that were left alone, longest first; for members, none of the owner's."""
        ages: list[tuple[float, Upload]] = []
        for upload in self._coming():
            with suppress(FileNotFoundError):
                ages.append(((self._of(upload.id) / RECORD).stat().st_mtime, upload))
        then = time.time() - IDLE_SECONDS
        idle = [one for one in ages if one[0] < then and (member is None or one[1].member is not None)]
        return [upload for _, upload in sorted(idle, key=itemgetter(0))]

    def _displace(self, upload: Upload) -> bool:
        """Let an upload that was left alone make way, unless somebody works on it; tell whether it did."""
        here = self._of(upload.id)
        with held(here) as is_free:
            if is_free:
                self._save(replace(upload, is_displaced=True))
                for rest in ("files", "unpacked"):
                    shutil.rmtree(here / rest, ignore_errors=True)
        return is_free

    def _entries(self) -> int:
        """Say how many files and folders the disk can still take, of those that say so."""
        disk = os.statvfs(self.folder)
        return max(0, disk.f_favail - LEAST_FREE_ENTRIES) if disk.f_files else sys.maxsize

    def _unpack(self, upload: Upload, into: Path, unpacking: Unpacking) -> None:
        from firstdrift_server.uploads.archives import Limits, require_links_inside, unpack

        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(mode=0o700)
        most = min(MOST_UNPACKED, self._entries())
        room = self.room(for_member=upload.member is not None)

        def watch(files: int, size: int, share: float) -> None:
            unpacking.watch(files, size, share)
            if shutil.disk_usage(self.folder).free < LEAST_FREE:
                raise NoRoomError(Message.of("uploads.disk_full"), hint=Message.of("uploads.make_room"))

        unpack(self._file(upload, 0), into, Limits(size=room, files=most), watch)
        self._require_room_beside(upload, into)
        # The one folder that is all there is gets another name: none of its links may go by this one.
        require_links_inside(innermost(into))

    def _require_room_beside(self, upload: Upload, unpacked: Path) -> None:
        """Make sure that there is room for what was unpacked beside what has come meanwhile."""
        with self._beginning:
            left = self._left(for_member=upload.member is not None)
            if left < 0:
                room = max(0, size_on_disk(unpacked) + left)
                shutil.rmtree(unpacked, ignore_errors=True)  # what others have unpacked may have room then
                raise NoRoomError(Message.of("uploads.archive_needs_room", room=room), hint=_MAKE_ROOM)

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
    def _alone(self, upload_id: str, member: int | None) -> Iterator[Unpacking]:
        self.get(upload_id)
        with self._unpackings.alone(self._of(upload_id), member) as mine:
            try:
                yield mine
            finally:
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
