"""Names of uploaded files, from strangers: relative paths that stay where they are put.

parts_of("run1/step0/dump.json")  ─▶  ("run1", "step0", "dump.json")
parts_of("run1/../../etc/passwd") ─▶  UploadError
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from firstdrift.errors import UploadError
from firstdrift.wording.message import Message

LONGEST_PART = 255
LONGEST_PATH = 2048
DEEPEST = 64

ARCHIVES = (".tar.gz", ".tar.xz", ".tar.bz2", ".tgz", ".txz", ".tbz2", ".tar", ".zip")
"""What is unpacked. Tensor files are zip files too, so the name says what is meant as an archive."""


def parts_of(name: str) -> tuple[str, ...]:
    """Take a relative path apart; "." counts for nothing.

    Raises:
        UploadError: it leads out of the folder it is put in, or no file can be called so.
    """
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError as error:
        raise UploadError(Message.of("uploads.no_file_name", name=_shown(name))) from error
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts:
        raise UploadError(Message.of("uploads.name_leads_out", name=_shown(name)))
    if "\0" in name or len(parts) > DEEPEST or length > LONGEST_PATH:
        raise UploadError(Message.of("uploads.no_file_name", name=_shown(name)))
    if any(len(os.fsencode(part)) > LONGEST_PART for part in parts):
        raise UploadError(Message.of("uploads.long_name", name=_shown(name), most=LONGEST_PART))
    return parts


def is_archive(name: str) -> bool:
    """Tell by its name whether a file is to be unpacked."""
    return name.lower().endswith(ARCHIVES)


def folder_name(name: str) -> str:
    """Give the name of the folder for an upload: an archive's without its ending, never a hidden one.

    Raises:
        UploadError: no folder can be called so.
    """
    ending = next((ending for ending in ARCHIVES if name.lower().endswith(ending)), "")
    bare = PurePosixPath(*parts_of(name[: len(name) - len(ending)])).name.lstrip(".")
    return bare or "upload"


def _shown(name: str) -> str:
    return name if len(name) < 100 else f"{name[:100]}…"  # noqa: PLR2004 - what fits into a message


def folders_of(paths: Iterable[str]) -> set[str]:
    """Give the folders that files lie in, as parts of their paths."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found


def require_distinct(paths: Sequence[str]) -> None:
    """Refuse files of which two would be one, or one a folder of others."""
    files, folders = set(paths), folders_of(paths)
    if len(files) < len(paths):
        raise UploadError(Message.of("uploads.same_name"))
    if both := files & folders:
        raise UploadError(Message.of("uploads.file_and_folder", name=min(both)))
