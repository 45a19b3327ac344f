"""What server and worker say as they go, on standard error: lines for people, or JSON for programs.

set_up("json")
with about(request="5f2c…"):
    log.info("job %d is queued", 7)

{"time": "2026-01-31T12:00:00.123456+00:00", "level": "INFO", "logger": "firstdrift.catalogue.jobs.queue",
 "message": "job 7 is queued", "says": "job %d is queued", "request": "5f2c…"}

`says` is the message without what stands in it, which may be a name out of a dump. No name can begin a line
of its own, and what looks like a secret is written as ***. Lines for people tell of what went wrong alone.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, TypeAlias

from firstdrift.paths import printable

TEXT, JSON = "text", "json"
HIDDEN: Final = "***"

Facts: TypeAlias = Mapping[str, object]
"""What lines are about, by name: the request, the job, the comparison."""

Carried: TypeAlias = tuple[str, dict[str, object]]
"""How a process writes, and what all its lines are about: what it hands on to those that it starts."""

_SECRETS: Final = re.compile(
    r"(?i)((?:\b|_)(?:token|secret|password|passwd|api_?key)['\"]?\s*[=:]\s*['\"]?"
    r"|\b(?:bearer|basic)\s+|/share/|firstdrift_[0-9a-f]{8}(?:_share_\d+)?=)"
    r"[^\s&;,'\"@]+"
)
_PASSWORDS: Final = re.compile(r"(://[^/\s:@]*:)[^\s/]*(?=@)")
"""In the address of a database: whatever stands before the last @."""
_LEVELS: Final = {TEXT: logging.WARNING, JSON: logging.INFO}
_FACTS: Final = frozenset({"route", "method", "status", "seconds", "job", "comparison", "request", "kind"})
"""What the writer of a line may say of it besides, by `extra`."""

_now: ContextVar[dict[str, object]] = ContextVar("about", default={})  # noqa: B039 - never changed
_always: dict[str, object] = {}


def set_up(written: str) -> None:
    """Write what this process logs to standard error, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_AsJson() if written == JSON else _AsText())
    logging.basicConfig(handlers=[handler], level=_LEVELS[written], force=True)


def carried() -> Carried:
    """Give what a process that is about to be started is to take over."""
    is_json = any(isinstance(one.formatter, _AsJson) for one in logging.getLogger().handlers)
    return JSON if is_json else TEXT, _always | _now.get()


def take_over(given: Carried, **facts: object) -> None:
    """Write as the process that started this one does, and say of every line what it is about."""
    written, known = given
    set_up(written)
    _always.update(known | facts)


@contextmanager
def about(**facts: object) -> Iterator[None]:
    """Say of every line that the block logs what it is about."""
    before = _now.set(_now.get() | facts)
    try:
        yield
    finally:
        _now.reset(before)


def without_secrets(text: str) -> str:
    """Write *** for what stands where secrets do: in an address, a header, a cookie, beside `token=`."""
    return _SECRETS.sub(rf"\1{HIDDEN}", _PASSWORDS.sub(rf"\1{HIDDEN}", text))


def _facts_of(record: logging.LogRecord) -> dict[str, object]:
    said = {name: value for name, value in record.__dict__.items() if name in _FACTS}
    return {name: value for name, value in (_always | _now.get() | said).items() if value is not None}


class _AsJson(logging.Formatter):
    """Writes each record as one JSON object in one line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            "says": without_secrets(str(record.msg)),
            **_facts_of(record),
        }
        if record.exc_info:
            line["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class _AsText(logging.Formatter):
    """Writes each record as a line; those of a traceback follow, moved to the right."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        known = _facts_of(record)
        where = ", ".join(f"{name} {known[name]}" for name in ("request", "job") if name in known)
        lines = [f"{record.getMessage()} [{where}]" if where else record.getMessage()]
        if record.exc_info:
            lines += (f"  {line}" for line in self.formatException(record.exc_info).splitlines())
        return os.linesep.join(printable(without_secrets(line)) for line in lines)
