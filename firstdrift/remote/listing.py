"""Which files lie at an address, and what tells whether one has changed.

Each thread has a file system, and so a connection, of its own: fsspec sees to it.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from fsspec.core import url_to_fs
from msgspec import Struct

from firstdrift.errors import DumpUnreadableError
from firstdrift.remote.addresses import shown
from firstdrift.wording.message import Message

_MARKS: Final = (
    *("ETag", "etag", "Content-MD5", "md5Hash", "checksum", "crc32c", "CRC", "sha", "generation"),
    *("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "modified", "modify", "created"),
)
"""Where file systems say which version of a file there is; whatever of it is known has to stay the same."""

_Info = Mapping[str, Any]


class Version(Struct, frozen=True):
    """What a file was when it came."""

    name: str
    size: int
    version: str


class RemoteFile(Struct, frozen=True):
    """A file on another host.

    Attributes:
        name: its path in the dump, "" if it is the dump.
        path: what its file system calls it.
        size: its bytes; None if they are not told.
        version: what is told of its content; "" if nothing is, and it may be another at any time.
    """

    name: str
    path: str
    size: int | None
    version: str

    def is_at(self, place: Path, before: Version | None) -> bool:
        """Tell whether it lies at a place of this machine, as it came before."""
        if before is None or not self.version or self.version != before.version:
            return False
        return self.size in (None, before.size) and place.is_file() and place.stat().st_size == before.size


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and what it calls what lies there.

    Raises:
        ImportError: its driver is not installed.
        ValueError: there is no such file system.
    """
    system, path = url_to_fs(address)
    return system, path.rstrip("/") or path


def list_files(address: str, pool: Executor) -> list[RemoteFile]:
    """List what lies at an address; nothing if it is an empty folder.

    Raises:
        DumpUnreadableError: something is no regular file, or its name leads elsewhere.
        Exception: the file system fails, each in its own way.
    """
    system, top = file_system(address)
    found = list(_walk(address, top, pool)) or [system.info(top)]
    files = [info for info in found if info["type"] != "directory"]
    return list(pool.map(partial(_described, address), files))


def _walk(address: str, top: str, pool: Executor) -> Iterator[_Info]:
    """Yield what is no folder, one level after the other."""
    folders = [top]
    while folders:
        below: list[str] = []
        for info in chain.from_iterable(pool.map(partial(_entries, address), folders)):
            if info["type"] == "directory":
                below.append(info["name"].rstrip("/"))
            else:
                yield info
        folders = below


def _entries(address: str, folder: str) -> list[_Info]:
    system, top = file_system(address)
    system.invalidate_cache()
    entries: Iterable[_Info] = system.ls(folder, detail=True)
    if _is_web(system):  # a page has links that order it anew
        entries = (info for info in entries if not {"?", "#"} & set(info["name"][len(top) :]))
    # A file lists itself, and so does a folder of an object store that somebody made a file of.
    inside = [info for info in entries if _path(info) != folder.strip("/")]
    for info in inside:
        _name(address, info)
    return inside


def _described(address: str, info: _Info) -> RemoteFile:
    path = info["name"]
    if info.get("size") is None or not _version(info):
        info = {**info, **file_system(address)[0].info(path)}
    return RemoteFile(_name(address, info), path, info.get("size"), _version(info))


def _version(info: _Info) -> str:
    return " ".join(str(info[mark]) for mark in _MARKS if info.get(mark) is not None)


def _name(address: str, info: _Info) -> str:
    """Return the path of a file or folder in the dump.

    Raises:
        DumpUnreadableError: it is no regular file, or would lie elsewhere.
    """
    system, top = file_system(address)
    path, above = _path(info), top.strip("/")
    if path == above:
        return ""
    within = path.removeprefix(f"{above}/") if above else path
    name = _plain(within) if _is_web(system) else within
    is_plain = info["type"] in ("file", "directory") and not info.get("islink")
    if not is_plain or (above and within == path) or "\0" in name or {"", ".", ".."} & set(name.split("/")):
        raise DumpUnreadableError(Message.of("remote.refused", address=shown(address), name=name))
    return name


def _path(info: _Info) -> str:
    return str(info["name"]).strip("/")


def _plain(link: str) -> str:
    """Return the name that a link means: "./a%20b" for "a b"."""
    return "/".join(part for part in unquote(link).split("/") if part != ".")


def _is_web(system: Any) -> bool:  # noqa: ANN401 (fsspec has no types)
    return "http" in system.protocol
