"""The token: made up, or chosen by the operator and then looked at for whether others could guess it."""

import math
import os
import secrets
import stat
from itertools import pairwise
from pathlib import Path

from pydantic import SecretStr

from firstdrift.wording.message import Message
from firstdrift_server.validation import InvalidValueError

SHORTEST_TOKEN = 16
"""So many characters are asked for."""

LEAST_BITS = 40
"""At the few guesses a second that are looked at (brake.py), half of them take thousands of years."""

SURE_BITS = 110
"""Nobody hits upon a token of so many bits, however fast they guess: 32 random hexadecimal digits, say."""

_LONGEST_FILE = 4096
_LOOKED_AT = 256
_WORD_BITS = 10
_SHORTEST_RUN = 4
_ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_WORDS = (
    *("password", "passwort", "passphrase", "passwd", "firstdrift", "letmein", "changeme", "change"),
    *("welcome", "default", "example", "secret", "dragon", "monkey", "master", "server", "access"),
    *("admin", "token", "login", "guest", "qwerty", "hello", "please", "test", "root", "user", "pass"),
)
_IN_DISGUISE = str.maketrans("0134578@$!", "oleastbasi")


class MadeToken(SecretStr):
    """A token that was made up here: it may be shown to whoever started the server, who knows no other."""


def new_token() -> MadeToken:
    """Make up a token of 256 bits."""
    return MadeToken(secrets.token_urlsafe(32))


def weakness(token: str) -> Message | None:
    """Say why others could guess a token; None if it is good enough."""
    if len(token) < SHORTEST_TOKEN:
        return Message.of("server.short_token", least=SHORTEST_TOKEN)
    if estimated_bits(token) < LEAST_BITS:
        return Message.of("server.guessable_token")
    return None


def estimated_bits(token: str) -> float:
    """Estimate how many bits those must guess who begin with what is easy.

    | of the token             | counts as                                                                  |
    | ------------------------ | -------------------------------------------------------------------------- |
    | a word that all try      | 10 bits, also in disguise (`p4ssw0rd`), and nothing where it comes again   |
    | what stood there before  | 10 bits, if it is at least four characters long                            |
    | `abcd`, `4321`, `qwer`   | 10 bits: at least four neighbours of the alphabet, the digits or the keys  |
    | each other character     | as if chosen among the different ones there are                            |

    This is too much for words that are not on the list, such as those of a sentence: it finds what is
    certainly weak, and proves nothing strong.
    """
    rest, known = token[:_LOOKED_AT].lower(), 0.0
    for without in (_without_words, _without_repeats, _without_runs):
        rest, bits = without(rest)
        known += bits
    return known + len(rest) * math.log2(max(len(set(rest)), 1))


def read_token(file: Path) -> str:
    """Read the token from a file that nobody else can read.

    Raises:
        InvalidValueError: it cannot be read, or others can read it.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidValueError(
            Message.of("server.token_file_unreadable", file=str(file), why=error.strerror)
        ) from error
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidValueError(Message.of("server.token_file_irregular", file=str(file)))
        if found.st_uid not in (os.geteuid(), 0):
            raise InvalidValueError(Message.of("server.token_file_of_others", file=str(file)))
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidValueError(Message.of("server.token_file_readable", file=str(file)))
        content = opened.read(_LONGEST_FILE + 1)
    try:
        token = content.decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidValueError(Message.of("server.token_file_no_text", file=str(file))) from error
    if not token or len(content) > _LONGEST_FILE or not token.isprintable():
        raise InvalidValueError(Message.of("server.token_file_lines", file=str(file)))
    return token


def _without_repeats(text: str) -> tuple[str, float]:
    """Take out what stands earlier in the text already."""
    left, bits, at = "", 0.0, 0
    while at < len(text):
        length = next(
            (
                long
                for long in range(len(text) - at, _SHORTEST_RUN - 1, -1)
                if text.find(text[at : at + long]) < at
            ),
            0,
        )
        left, bits = (left, bits + _WORD_BITS) if length else (left + text[at], bits)
        at += length or 1
    return left, bits


def _without_words(text: str) -> tuple[str, float]:
    plain, found = text.translate(_IN_DISGUISE), set()
    for word in _WORDS:
        while (at := plain.find(word)) >= 0:
            found.add(word)
            plain, text = plain[:at] + plain[at + len(word) :], text[:at] + text[at + len(word) :]
    return text, _WORD_BITS * len(found)


def _without_runs(text: str) -> tuple[str, float]:
    """Take out what goes along a row of neighbours, there or back, or stays where it is."""
    left, bits, run = "", 0.0, text[:1]
    for before, after in pairwise(text):
        if _goes_on(run, before, after):
            run += after
            continue
        left, bits, run = (*_counted(left, bits, run), after)
    return _counted(left, bits, run)


def _counted(left: str, bits: float, run: str) -> tuple[str, float]:
    return (left, bits + _WORD_BITS) if len(run) >= _SHORTEST_RUN else (left + run, bits)


def _goes_on(run: str, before: str, after: str) -> bool:
    step = _step(before, after)
    return step is not None and (len(run) == 1 or step == _step(run[-2], run[-1]))


def _step(before: str, after: str) -> int | None:
    """Return how far apart two characters are in a row: back, nowhere or on by one; None if in no row."""
    if before == after:
        return 0
    for row in _ROWS:
        if before + after in row:
            return 1
        if after + before in row:
            return -1
    return None
