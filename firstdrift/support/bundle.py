"""Gather what helps to find out what is wrong, and write it as a zip that its owner alone can read."""

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL

from firstdrift.catalogue.engine import address_of
from firstdrift.checkup import examine
from firstdrift.errors import FirstdriftError, SettingsError
from firstdrift.support.database import database
from firstdrift.support.hiding import Hider
from firstdrift.support.machine import machine, versions
from firstdrift.wording.message import Message
from firstdrift_server.settings import Settings

MOST_LOG: Final = 1 << 20
"""Bytes of the end of a log that are looked at."""

ABOUT: Final = {
    "ABOUT.txt": "this list",
    "versions.json": "versions of Python, SQLite and all packages that are installed",
    "settings.json": "how it was set up; of the token and of passwords only whether there are any",
    "check.json": "what `firstdrift check --quick` finds",
    "database.json": "schema, rows of each table, sizes, jobs, and the last that failed with where they did",
    "machine.json": "cores, memory, limits, load and disk",
    "log.json": "the last lines of the log that was given",
}
_OF_LINES: Final = frozenset(
    (
        "time",
        "level",
        "logger",
        "request",
        "job",
        "comparison",
        "kind",
        "route",
        "method",
        "status",
        "seconds",
    )
)
_PLAIN: Final = ("host", "port", "no_token", "workers", "largest_body", "upload_quota", "job_memory")
_PLAIN_TOO: Final = ("reading_seconds", "open_metrics", "log_format")


def gathered(settings: Settings, log: Path | None, *, with_names: bool) -> dict[str, str]:
    """Return the files of a bundle by name.

    Args:
        settings: of the server that is asked about.
        log: what it has logged; None for none.
        with_names: whether names of files, people and machines are in it, and what is said of them.
    """
    hider = hider_for(settings, with_names=with_names)
    found = [
        {"subject": one.subject, "mark": one.mark, "said": hider.text(one.said)}
        for one in examine(settings, None)
    ]
    parts: dict[str, Any] = {
        "versions.json": versions(),
        "settings.json": _settings(settings, hider),
        "check.json": found,
        "database.json": database(settings.database, hider),
        "machine.json": machine(settings.data_dir),
    }
    if log is not None:
        parts["log.json"] = list(_log(log, hider))
    files = {name: json.dumps(part, indent=1, default=str) + "\n" for name, part in parts.items()}
    return {"ABOUT.txt": _about(files, with_names=with_names)} | files


def write_bundle(file: Path, parts: Mapping[str, str]) -> int:
    """Write a zip for its owner alone; return its size.

    Raises:
        SettingsError: there is such a file, or it cannot be written.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, said in parts.items():
            archive.writestr(name, said)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(file, flags, 0o600), "wb") as written:
            os.fchmod(written.fileno(), 0o600)
            return written.write(packed.getvalue())
    except OSError as error:
        why = Message.of("cli.report_not_written", why=error.strerror)
        raise SettingsError(why, path=file) from error


def hider_for(settings: Settings, *, with_names: bool) -> Hider:
    """Give what hides the secrets and, unless they may be seen, the names of a server."""
    secrets = [settings.secret or "", *_of_database(settings)]
    places = {str(root): f"<root {number}>" for number, root in enumerate(settings.roots, 1)}
    places |= {
        str(settings.data_dir): "<data directory>",
        str(settings.data_dir.resolve()): "<data directory>",
    }
    places |= {str(Path.home()): "<home>"}
    return Hider(secrets, places, with_names=with_names)


def _of_database(settings: Settings) -> list[str]:
    if settings.database_url is None:
        return []
    address = _address(settings)
    return [settings.database_url, str(address.password or "") if address is not None else ""]


def _address(settings: Settings) -> URL | None:
    """Take the address of the database apart; None if it makes no sense."""
    try:
        return address_of(settings.database)
    except FirstdriftError:
        return None


def _settings(settings: Settings, hider: Hider) -> dict[str, Any]:
    """Say how a server is set up."""
    address = _address(settings)
    told = {name: getattr(settings, name) for name in (*_PLAIN, *_PLAIN_TOO)} | {
        "token": settings.token is not None or bool(os.environ.get("FIRSTDRIFT_TOKEN")),
        "token_file": settings.token_file is not None or bool(os.environ.get("FIRSTDRIFT_TOKEN_FILE")),
        "database": address and address.get_backend_name(),
        "database_password": bool(address and address.password),
        "roots": len(settings.roots),
        "allowed_hosts": len(settings.allowed_hosts),
        "cluster": settings.cluster is not None,
        "variables": sorted(name for name in os.environ if name.startswith("FIRSTDRIFT_")),
    }
    if hider.with_names:
        told |= {"roots": list(map(str, settings.roots)), "data_dir": str(settings.data_dir)}
        told["allowed_hosts"] = list(settings.allowed_hosts)
    else:
        told["host"] = "loopback" if settings.host in ("127.0.0.1", "localhost", "::1") else "other"
    return told


def _log(file: Path, hider: Hider) -> Iterator[dict[str, Any]]:
    """Yield the last lines of a log: of what is not JSON that there is a line, unless names may be seen."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - MOST_LOG))
            lines = opened.read(MOST_LOG).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise SettingsError(Message.of("cli.log_unreadable", why=error.strerror), path=file) from error
    for line in lines:
        yield _line(line, hider)


def _line(written: str, hider: Hider) -> dict[str, Any]:
    try:
        line = json.loads(written)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        return {"text": hider.text(written) if hider.with_names else len(written)}
    told: dict[str, Any] = {name: _said(line[name], hider) for name in _OF_LINES if name in line}
    # What others than firstdrift log is not known to keep names apart from what it says.
    if str(line.get("logger", "")).startswith("firstdrift"):
        told["says"] = hider.text(str(line.get("says", "")))
    if "traceback" in line:
        told["traceback"] = hider.traceback(str(line["traceback"]))
    if hider.with_names:
        told["message"] = hider.text(str(line.get("message", "")))
    return told


def _said(value: object, hider: Hider) -> object:
    return value if isinstance(value, int | float) else hider.text(str(value))


def _about(files: Mapping[str, str], *, with_names: bool) -> str:
    names = "with names of files, people and machines" if with_names else "without names of files or people"
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    head = f"firstdrift {version('firstdrift')}, {when}: for support, {names}."
    secrets = "No token, password, secret of a link and no value of a dump is in it."
    listed = [f"{name:<14} {what}" for name, what in ABOUT.items() if name in files or name == "ABOUT.txt"]
    return "\n".join([head, secrets, "", *listed, ""])
