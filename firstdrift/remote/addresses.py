"""Addresses of dumps on another host, and where each lies here once it was fetched.

"s3://bucket/golden"  ─ fetch ─▶  ~/.cache/firstdrift/remote/5f3c…/files/bucket/golden
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from firstdrift.errors import FirstdriftError
from firstdrift.wording.message import Message

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PASSWORD: Final = re.compile(r"(://[^/:@\s]*):[^/\s]*@")
_SIGNATURE: Final = re.compile(r"(://[^\s?]*)\?[^\s'\")]*")

_fetched: dict[str, Path] = {}
"""Where what this process has fetched lies, by its address as it is shown."""


def is_address(place: Path | str) -> bool:
    """Tell whether a place is an address on another host: "sftp://host/runs/golden"."""
    return isinstance(place, str) and _SCHEME.match(place) is not None


def shown(address: str) -> str:
    """Write an address without what would let others in: a password, a signature."""
    return without_secrets(address).removesuffix("/")


def without_secrets(text: str) -> str:
    """Take passwords and signatures out of the addresses in a text."""
    return _SIGNATURE.sub(r"\1", _PASSWORD.sub(r"\1@", text))


def remember(address: str, folder: Path) -> None:
    """Keep in mind where what an address names lies here."""
    _fetched[shown(address)] = folder


def path_of(place: str) -> Path:
    """Return where a dump is read of which `name_of` gave the name."""
    return _fetched.get(place) or Path(place)


def name_of(path: Path) -> str:
    """Return what a path is called where people read it: by its address, if it was fetched from one."""
    for address, folder in _fetched.items():
        if path.is_relative_to(folder):
            return "/".join((address, *path.relative_to(folder).parts))
    return str(path)


@contextmanager
def naming_addresses() -> Iterator[None]:
    """Let errors about what was fetched name its address."""
    try:
        yield
    except FirstdriftError as error:
        if error.path is None or name_of(error.path) == str(error.path):
            raise
        said = Message.of("error.at", path=name_of(error.path), reason=error.message)
        raise type(error)(said, hint=error.advice) from error
