"""Lets the clock of a process, and that of its SQLite, be set: by so many seconds as a file says.

Python runs this first in each process whose PYTHONPATH has this folder, also in those that it starts.
"""

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

_time, _connect = time.time, sqlite3.connect
_FILE = os.environ.get("FIRSTDRIFT_TEST_CLOCK")
_UNIX_EPOCH = 2440587.5
"""As a Julian day."""


def _now() -> float:
    try:
        return _time() + float(Path(_FILE or "").read_text("ascii") or 0)
    except OSError:
        return _time()


def _connected(*given: Any, **named: Any) -> sqlite3.Connection:  # noqa: ANN401
    connection: sqlite3.Connection = _connect(*given, **named)
    connection.create_function("julianday", 1, lambda _when: _now() / 86400 + _UNIX_EPOCH)
    return connection


if _FILE is not None:
    time.time = _now
    sqlite3.connect = sqlite3.dbapi2.connect = _connected  # type: ignore[assignment]
