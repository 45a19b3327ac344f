"""Sessions that were ended before their time, by logging out.

A session is known by its text, "<when it expires>.<32 hexadecimal digits>", of a member with ".<id>" behind
it, which is of no use without its signature. All sessions last equally long, so that those that expire first
began first.
"""

import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock

log = logging.getLogger("firstdrift.server")

MOST = 10_000
"""So many sessions are remembered. Beyond, the one that expires first is forgotten, and it and all that began
before it are over."""

LOOK_SECONDS = 1.0
"""How soon it is seen what another server on the same data directory has ended."""

_LINE = re.compile(r"[0-9]{1,12}\.[0-9a-f]{32}(\.[0-9]{1,18})?")


class EndedSessions:
    """Remembers which sessions are over, in memory and in a file: the token may outlive this process."""

    def __init__(self, file: Path | None = None, most: int = MOST) -> None:
        """Read what is known from a file; without one, it is remembered as long as this process lives."""
        self._file, self._most = file, most
        self._lock = Lock()
        self._ended: dict[str, int] = {}
        self._over_until = 0
        self._seen: tuple[int, int, int] | None = None
        self._looked = -LOOK_SECONDS
        if file is not None:
            _leave_out_expired(file)

    def __contains__(self, session: str) -> bool:
        """Tell whether a session is over."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                self._read()
            return session in self._ended or _expiry(session) <= self._over_until

    def add(self, session: str) -> None:
        """End a session."""
        with self._lock:
            self._keep(session)
            if self._file is None:
                return
            try:
                _append(self._file, session)
            except OSError as error:
                log.warning(
                    "%s cannot be written (%s): who logged out now is logged in again when this process ends",
                    self._file,
                    error.strerror,
                )

    def _keep(self, *sessions: str) -> None:
        self._ended |= {session: _expiry(session) for session in sessions}
        if len(self._ended) > self._most:
            by_expiry = sorted(self._ended, key=self._ended.__getitem__)
            for session in by_expiry[: -self._most]:
                self._over_until = max(self._over_until, self._ended.pop(session))

    def _read(self) -> None:
        self._looked = time.monotonic()
        if self._file is None:
            return
        with suppress(OSError):
            found = self._file.stat()
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen != self._seen:
                self._keep(*_sessions_in(self._file))
                self._seen = seen


def _sessions_in(file: Path) -> list[str]:
    return list(filter(_LINE.fullmatch, file.read_text("ascii", "replace").split()))


def _leave_out_expired(file: Path) -> None:
    with suppress(OSError):
        known = _sessions_in(file)
        lasting = [session for session in known if _expiry(session) > time.time()]
        if len(lasting) < len(known):
            beside = file.with_name(f"{file.name}.{os.getpid()}")
            beside.unlink(missing_ok=True)
            _append(beside, *lasting)
            beside.replace(file)


def _append(file: Path, *sessions: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o600), "a", encoding="ascii") as lines:
        # A full disk may have left half a line, which is none, at the end.
        lines.write("".join(f"\n{session}\n" for session in sessions))


def _expiry(session: str) -> int:
    return int(session.partition(".")[0])
