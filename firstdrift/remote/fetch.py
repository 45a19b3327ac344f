"""Bring a dump from another host, or what of it has changed.

address ─▶ files, their versions ─▶ room in the cache ─▶ what is not there yet, side by side ─▶ a folder
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from fsspec.callbacks import Callback

from firstdrift.errors import DumpNotFoundError, DumpUnreadableError, FirstdriftError, LimitError
from firstdrift.remote.addresses import remember, shown, without_secrets
from firstdrift.remote.cache import Kept
from firstdrift.remote.listing import RemoteFile, file_system, list_files
from firstdrift.wording.message import Message

_AT_ONCE: Final = 16
"""Files that are fetched side by side: small ones wait for the way there and back."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_held: dict[Path, int] = {}
"""What of the cache this process uses, until it ends."""


def fetched(address: str, progress: Callable[[int, int], None] = lambda _done, _total: None) -> Path:
    """Bring a dump here, or what of it has changed, and return where it is read.

    `progress` is told how many files are there, and of how many.

    Raises:
        DumpNotFoundError: nothing lies at the address.
        DumpUnreadableError: it cannot be fetched.
        LimitError: there is no room for it.
    """
    with _failing_clearly(address):
        if urlsplit(address).scheme.lower() in ("file", "local"):
            return Path(file_system(address)[1])
        root = _brought(address, progress)
    remember(address, root)
    return root


def _brought(address: str, progress: Callable[[int, int], None]) -> Path:
    transfer, pool = _Transfer(address), ThreadPoolExecutor(_AT_ONCE)
    try:
        files = list_files(address, pool)
        if not files:
            raise FileNotFoundError(address)
        _hold(transfer.kept, sum(file.size or 0 for file in files))
        with transfer.kept.fetching():
            missing = transfer.missing(files)
            there = len(files) - len(missing)
            progress(there, len(files))
            coming = [pool.submit(transfer.fetch, file) for file in missing]
            for count, come in enumerate(as_completed(coming), there + 1):
                come.result()
                progress(count, len(files))
    finally:
        transfer.is_stopped = True
        pool.shutdown(cancel_futures=True)
    return transfer.root


def _hold(kept: Kept, size: int) -> None:
    held, before = kept.hold(size), _held.pop(kept.folder, None)
    _held[kept.folder] = held
    if before is not None:
        os.close(before)


class _Transfer(Callback):  # type: ignore[misc] # fsspec has no types
    """A dump on its way; file systems tell it of each piece that comes."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.kept = address, Kept(address)
        self.root = self.kept.files.joinpath(*_parts(address))
        self.is_stopped = False

    def relative_update(self, inc: int = 1) -> None:  # noqa: ARG002 (fsspec's name)
        if self.is_stopped:
            raise InterruptedError

    def missing(self, files: Sequence[RemoteFile]) -> list[RemoteFile]:
        """Remove what is there no more; return what is not here as it is there."""
        places = {self.root / file.name: file for file in files}
        self.kept.keep_only(places)
        versions = self.kept.versions()
        return [file for place, file in places.items() if not file.is_at(place, versions.get(file.name))]

    def fetch(self, file: RemoteFile) -> None:
        name = f"{self.address.rstrip('/')}/{file.name}"
        with _failing_clearly(name), self.kept.receive(file, self.root / file.name) as part:
            file_system(self.address)[0].get_file(file.path, part, callback=self)
            came = os.stat(part).st_size  # noqa: PTH116 (a string)
            if file.size not in (None, came):
                raise ConnectionError(f"{came} of {file.size} bytes came")


def _parts(address: str) -> Sequence[str]:
    """Return what a dump lies below: what it is called in its path tells readers what it is."""
    place = urlsplit(address)
    path = f"{place.netloc.rpartition('@')[2]}/{unquote(place.path)}"
    return [part for part in path.split("/") if part not in ("", ".", "..")]


@contextmanager
def _failing_clearly(address: str) -> Iterator[None]:
    """Turn whatever a driver raises into an error that names the address."""
    name = shown(address)
    try:
        yield
    except FirstdriftError:
        raise
    except FileNotFoundError as exc:
        raise DumpNotFoundError(Message.of("remote.nothing_here", address=name)) from exc
    except ImportError as exc:
        package = getattr(exc.__cause__, "name", None) or exc.name
        hint = Message.of("remote.hint.install", package=package) if package else None
        raise DumpUnreadableError(
            Message.of("remote.no_driver", address=name, why=str(exc)), hint=hint
        ) from exc
    except Exception as exc:
        if isinstance(exc, OSError) and exc.errno in _FULL:
            raise LimitError(Message.of("remote.disk_full", address=name)) from exc
        why = without_secrets(str(exc)) or type(exc).__name__
        raise DumpUnreadableError(Message.of("remote.broken", address=name, why=why)) from exc
