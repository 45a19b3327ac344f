"""Leave out of a text what is nobody's business: secrets always, names of files and people unless asked for.

A traceback keeps where it went through the code, which tells what went wrong; what was said there may be a
name out of a dump, and the source lines are known.
"""

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from firstdrift.logs import HIDDEN, without_secrets

_SECRET_NAMES: Final = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|KEY|CREDENTIAL|DATABASE_URL", re.IGNORECASE)
_SHORTEST_SECRET: Final = 6
_RANDOM: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{24,}"
    r"|[A-Za-z0-9_-]{43,})(?![A-Za-z0-9_-])"
)
"""What looks made up: the secret of a link, the token of a member, a digest."""

_PATH: Final = re.compile(r"(?<![\w<])(?:~|\.{1,2})?/(?!>)[^\s'\"<>|,;:()\[\]]+")
_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<where>[\w.<>]+)')
_ERROR: Final = re.compile(r"(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning))(?::|$)")
_PACKAGE: Final = re.compile(
    r".*(?:site-packages/|/lib/python3\.\d+/(?!site-packages)|/(?=firstdrift(?:_[a-z]+)?/))(?P<inside>[\w./-]+\.py)"
)


class Hider:
    """Knows what is secret here, and what the machine and its people are called."""

    def __init__(self, secrets: Iterable[str], places: dict[str, str], *, with_names: bool) -> None:
        """Remember them.

        Args:
            secrets: texts that nobody is to see.
            places: what stands for which path, such as "<data directory>".
            with_names: whether names of files, people and machines may be seen.
        """
        self.with_names = with_names
        known = {*secrets, *_secrets_of_environment()}
        self._secrets = sorted((one for one in known if len(one) >= _SHORTEST_SECRET), key=len, reverse=True)
        named = places | dict.fromkeys(_names_here(), "<name>")
        self._places = dict(sorted(named.items(), key=lambda item: -len(item[0])))

    def text(self, said: str) -> str:
        """Write a text without what is to be hidden."""
        for secret in self._secrets:
            said = said.replace(secret, HIDDEN)
        said = _RANDOM.sub(HIDDEN, without_secrets(said))
        if self.with_names:
            return said
        for path, place in self._places.items():
            said = said.replace(path, place)
        return _PATH.sub("<path>", said)

    def traceback(self, said: str | None) -> list[str]:
        """Write a traceback line by line: all of it with names, else frames and kinds of errors."""
        lines = (said or "").splitlines()
        return [self.text(line) for line in lines] if self.with_names else list(_frames(lines))


def _frames(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        frame, error = _FRAME.fullmatch(line), _ERROR.match(line)
        if frame is not None:
            yield f"{_inside(frame['file'])}:{frame['line']} in {frame['where']}"
        elif error is not None:
            yield error["kind"]


def _inside(file: str) -> str:
    """Name a source file by its place in its package."""
    found = _PACKAGE.fullmatch(file)
    return found["inside"] if found is not None else "<file>"


def _secrets_of_environment() -> Iterator[str]:
    for name, value in os.environ.items():
        if _SECRET_NAMES.search(name):
            yield value
    file = os.environ.get("FIRSTDRIFT_TOKEN_FILE", "")
    if file:
        with suppress(OSError, UnicodeDecodeError):
            yield Path(file).read_text("utf-8").strip()


def _names_here() -> Iterator[str]:
    """Give the names of this machine and of whoever asks, where they tell anything."""
    names = [socket.gethostname(), Path.home().name]
    with suppress(KeyError, OSError):  # no such user
        names.append(getpass.getuser())
    yield from (name for name in names if len(name) > 3 and name not in ("root", "localhost"))  # noqa: PLR2004
