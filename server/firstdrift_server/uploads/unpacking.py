"""Who works on an upload: one at a time, of all servers that share its folder, and few of each server.

A server that works on an upload holds a lock on a file in its folder, which ends with the process. What is
held is left alone by the others, whatever its age.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from firstdrift.errors import BusyError, ConflictError, UploadError
from firstdrift.wording.message import Message
from firstdrift_server.uploads.records import RECORD

MOST_UNPACKING = 4
"""So many archives each server unpacks at a time."""

MOST_OF_MEMBERS = MOST_UNPACKING - 1
MOST_OF_ONE = MOST_UNPACKING - 2
"""Members leave one of them to the owner, and one member another one to the other members."""

_LOCK = "lock"
_LOOK_SECONDS = 1.0
"""How often is looked whether another server has been told to cancel an upload."""


class Unpacking:
    """How far an archive is unpacked; `stop` ends it, as does the end of its record."""

    def __init__(self, folder: Path, member: int | None) -> None:
        """Begin with nothing."""
        self.files = self.size = 0
        self.share = 0.0
        self.stop = False
        self.member = member
        self._record, self._looked = folder / RECORD, time.monotonic()

    def watch(self, files: int, size: int, share: float) -> None:
        """Take down how far it is, or end it."""
        self.files, self.size, self.share = files, size, share
        if (now := time.monotonic()) - self._looked > _LOOK_SECONDS:
            self._looked = now
            self.stop |= not self._record.exists()
        if self.stop:
            raise UploadError(Message.of("uploads.cancelled"))


class Unpackings:
    """Those that this process unpacks."""

    def __init__(self) -> None:
        """Begin with none."""
        self._under_way: dict[str, Unpacking] = {}
        self._lock = Lock()

    def of(self, upload_id: str) -> Unpacking | None:
        """Say how far an archive is unpacked; None if it is not being unpacked by this process."""
        return self._under_way.get(upload_id)

    @contextmanager
    def alone(self, folder: Path, member: int | None) -> Iterator[Unpacking]:
        """Have an upload for oneself while the block runs, on behalf of a member, or of the owner.

        Raises:
            ConflictError: it is being unpacked, by this server or another.
            BusyError: as many are unpacked as may be.
        """
        with self._lock:
            if folder.name in self._under_way:
                raise _is_unpacked()
            self._require_turn(member)
            mine = self._under_way[folder.name] = Unpacking(folder, member)
        try:
            with held(folder) as is_held:
                if not is_held:
                    raise _is_unpacked()
                yield mine
        finally:
            del self._under_way[folder.name]

    def _require_turn(self, member: int | None) -> None:
        under_way = self._under_way.values()
        of_members = sum(one.member is not None for one in under_way)
        of_one = sum(one.member == member for one in under_way)
        is_full = len(under_way) >= MOST_UNPACKING
        if is_full or (member is not None and (of_members >= MOST_OF_MEMBERS or of_one >= MOST_OF_ONE)):
            raise BusyError(Message.of("uploads.many_unpacked"), hint=Message.of("processes.hint.try_again"))


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold the folder of an upload while the block runs; tell whether nobody else does."""
    path = folder / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # the upload is gone
        yield False
        return
    except OSError:  # on a full disk none can be made; there is none, so nobody holds it
        yield True
        return
    is_mine = _is_locked(lock)
    try:
        yield is_mine
    finally:
        if is_mine:
            path.unlink(missing_ok=True)
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return os.fstat(lock).st_nlink > 0  # else whoever held it has just let it go


def _is_unpacked() -> ConflictError:
    return ConflictError(Message.of("uploads.being_unpacked"), hint=Message.of("uploads.ask_how_far"))
