"""What is kept of an upload: what was announced, by whom, and what has become of it."""

import os

from msgspec import Struct

from firstdrift.catalogue.sizes import FOLDER, file_takes
from firstdrift_server.uploads.names import folders_of, is_archive

RECORD = "upload.json"


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
        member: whose it is; None for the owner's.
        is_displaced: whether it was left alone, and others needed its place: nothing of it is left.
    """

    id: str
    name: str
    files: tuple[UploadFile, ...]
    created_at: float
    landed: str | None = None
    inode: int | None = None
    member: int | None = None
    is_displaced: bool = False

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
