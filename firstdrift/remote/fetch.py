"""Bring a dump from another host, or what of it has changed.

address ─▶ files and their versions ─▶ room in the cache ─▶ what is not there yet, side by side ─▶ a folder
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final
from urllib.parse import unquote, urlsplit

from firstdrift.errors import DumpNotFoundError, DumpUnreadableError, FirstdriftError, LimitError
from firstdrift.remote.addresses import remember, shown
from firstdrift.remote.cache import Kept, Version
from firstdrift.remote.listing import RemoteFile, file_system, list_files
from firstdrift.wording.message import Message

_AT_ONCE: Final = 16
"""Files that are fetched side by side: small ones wait for the way there and back."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_held: dict[Path, int] = {}
"""What of the cache this process uses, until it ends."""


def _silent(_done: int, _total: int) -> None:
    """Report to nobody."""


def fetched(address: str, progress: Callable[[int, int], None] = _silent) -> Path:
    """Bring a dump here, or what of it has changed, and return where it is read.

    `progress` is told how many files are there, and of how many.

    Raises:
        DumpNotFoundError: nothing lies at the address.
        DumpUnreadableError: it cannot be fetched.
        LimitError: there is no room for it.
    """
    if urlsplit(address).scheme.lower() in ("file", "local"):
        with _failing_clearly(address):
            return Path(file_system(address)[1])
    return _brought(address, progress)


def _brought(address: str, progress: Callable[[int, int], None]) -> Path:
    stop, kept = Event(), Kept(address)
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        with _failing_clearly(address):
            files = list_files(address, pool)
            root = kept.files.joinpath(*_parts(address))
        if not files:
            raise DumpNotFoundError(Message.of("remote.nothing_here", address=shown(address)))
        with _failing_clearly(address):
            _hold(kept, sum(file.size or 0 for file in files))
            with kept.fetching():
                _bring(address, files, (kept, root, stop), pool, progress)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    remember(address, root)
    return root


def _parts(address: str) -> Sequence[str]:
    """Return what a dump lies below: what it is called in its path tells readers what it is."""
    place = urlsplit(address)
    path = f"{place.netloc.rpartition('@')[2]}/{unquote(place.path)}"
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _hold(kept: Kept, size: int) -> None:
    held, before = kept.hold(size), _held.pop(kept.folder, None)
    _held[kept.folder] = held
    if before is not None:
        os.close(before)


def _bring(
    address: str,
    files: Sequence[RemoteFile],
    to: tuple[Kept, Path, Event],
    pool: ThreadPoolExecutor,
    progress: Callable[[int, int], None],
) -> None:
    kept, root, _ = to
    versions = kept.versions()
    places = {root / file.name: file for file in files}
    kept.keep_only(places)
    missing = {
        place: file for place, file in places.items() if not _is_there(versions.get(file.name), file, place)
    }
    coming: list[Future[None]] = [
        pool.submit(_fetch, address, file, place, to) for place, file in missing.items()
    ]
    there = len(files) - len(missing)
    progress(there, len(files))
    for count, come in enumerate(as_completed(coming), there + 1):
        come.result()
        progress(count, len(files))


def _is_there(before: Version | None, file: RemoteFile, place: Path) -> bool:
    """Tell whether a file came whole before and is the same still, there and here."""
    if before is None or not file.version or before.version != file.version:
        return False
    return place.is_file() and place.stat().st_size == before.size == (
        before.size if file.size is None else file.size
    )


def _fetch(address: str, file: RemoteFile, place: Path, to: tuple[Kept, Path, Event]) -> None:
    from fsspec.callbacks import Callback

    class Stopping(Callback):  # type: ignore[misc] # fsspec has no types
        """Ends a transfer that nobody waits for any more."""

        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            if to[2].is_set():
                raise InterruptedError

    with _failing_clearly(f"{shown(address)}/{file.name}".rstrip("/")), to[0].receive(file, place) as part:
        file_system(address)[0].get_file(file.path, part, callback=Stopping())
        came = os.stat(part).st_size  # noqa: PTH116 (a string)
        if file.size is not None and came != file.size:
            raise ConnectionError(came, f"{came} of {file.size} bytes came")


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
        why = str(exc).replace(address, name) or type(exc).__name__
        raise DumpUnreadableError(Message.of("remote.broken", address=name, why=why)) from exc
