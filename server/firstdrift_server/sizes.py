"""How much of the disk dumps take: added up in the background, since a dump may have very many files."""

import time
from pathlib import Path
from threading import Lock, Thread

from firstdrift.catalogue.sizes import size_on_disk

FRESH_SECONDS = 600.0
"""After that, a size is added up once more when somebody asks; until then they are told the old one."""

MOST_KNOWN = 10_000


class Sizes:
    """Remembers sizes, and adds up those that are asked for, one after another."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[Path, tuple[float, int]] = {}
        self._waiting: dict[Path, None] = {}
        self._lock = Lock()
        self._is_at_work = False

    def get(self, path: Path) -> int | None:
        """Return the bytes of the disk that a file or a folder takes; None until they are known."""
        with self._lock:
            added_up, size = self._known.get(path, (0.0, None))
            if size is None or time.monotonic() - added_up > FRESH_SECONDS:
                self._waiting.setdefault(path)
                if not self._is_at_work:
                    self._is_at_work = True
                    Thread(target=self._work, name="sizes", daemon=True).start()
        return size

    def _work(self) -> None:
        while True:
            with self._lock:
                path = next(iter(self._waiting), None)
                if path is None:
                    self._is_at_work = False
                    return
            try:
                size = size_on_disk(path)
            except OSError:  # gone since it was asked for
                size = 0
            with self._lock:
                del self._waiting[path]
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[path] = (time.monotonic(), size)
