"""Search names with a regular expression that anybody may have typed: it takes neither long nor much memory.

What is repeated a given number of times, `(?:a{500}){500}`, is compiled that many times over, before any
limit of time holds; a pattern that calls itself, `(?R)`, fills the memory while it is matched.
"""

import re
import time
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from firstdrift.errors import SettingsError
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from regex import Pattern

SEARCH_SECONDS: Final = 2.0
LONGEST: Final = 1000
MOST_SIGNS: Final = 100_000
"""So long may a pattern be with everything written out that is repeated a given number of times."""

_REPEATS: Final = re.compile(r"\{(\d*),?(\d*)\}")
_STRANGE: Final = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?![:=!>]|<[=!]|P?<\w+>|P=|i\))")
"""A group that is none of: plain, named, atomic, looking ahead or behind."""

_WHY: Final = {
    "missing": Message.of("catalogue.pattern.missing"),
    "multiple": Message.of("catalogue.pattern.multiple"),
    "nothing": Message.of("catalogue.pattern.nothing"),
    "unbalanced": Message.of("catalogue.pattern.unbalanced"),
    "unterminated": Message.of("catalogue.pattern.unterminated"),
}
"""What is said of the mistakes that are made most, by the first word of what `regex` says of them."""


def names_matching(pattern: str, named: Iterable[tuple[int, str]]) -> npt.NDArray[np.int32]:
    """Return the indexes of the names that match a regular expression, upper or lower case.

    Raises:
        SettingsError: it is no regular expression, or one that takes too much.
    """
    expression = _compiled(pattern)
    until = time.monotonic() + SEARCH_SECONDS
    found = []
    try:
        for index, names in named:
            if expression.search(names, timeout=_left(until)):
                found.append(index)
    except TimeoutError as error:
        raise SettingsError(
            Message.of("catalogue.pattern.slow", pattern=pattern),
            hint=Message.of("catalogue.hint.fewer_repetitions"),
        ) from error
    return np.array(found, np.int32)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _compiled(pattern: str) -> "Pattern[str]":
    import regex

    if len(pattern) > LONGEST:
        raise SettingsError(Message.of("catalogue.pattern.long", most=LONGEST))
    if found := _STRANGE.search(pattern):
        raise SettingsError(
            Message.of("catalogue.pattern.unknown_group", pattern=pattern, group=found[0]),
            hint=Message.of("catalogue.hint.search_for_text"),
        )
    repeats = (max(int(least or 0), int(most or 0), 1) for least, most in _REPEATS.findall(pattern))
    if len(pattern) * prod(repeats) > MOST_SIGNS:
        raise SettingsError(
            Message.of("catalogue.pattern.repeats", pattern=pattern),
            hint=Message.of("catalogue.hint.smaller_numbers"),
        )
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except RecursionError as error:
        raise SettingsError(
            Message.of("catalogue.pattern.nested", pattern=pattern),
            hint=Message.of("catalogue.hint.search_for_text"),
        ) from error
    except regex.error as error:
        why = _WHY.get(str(error).split()[0], str(error))
        raise SettingsError(
            Message.of("catalogue.pattern.invalid", pattern=pattern, why=why),
            hint=Message.of("catalogue.hint.search_for_text"),
        ) from error
