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
from sqlalchemy import Row

from firstdrift.errors import SettingsError

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
    "missing": "a bracket is not closed",
    "multiple": "what is repeated already cannot be repeated",
    "nothing": "there is nothing that could be repeated",
    "unbalanced": "a bracket is closed that was not opened",
    "unterminated": "a set of characters is not closed",
}
"""What is said of the mistakes that are made most, by the first word of what `regex` says of them."""


def names_matching(pattern: str, named: Iterable[Row[int, str] | tuple[int, str]]) -> npt.NDArray[np.int32]:
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
            f"the search for '{pattern}' takes too long", hint="Use fewer nested repetitions"
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
        raise SettingsError(f"a regular expression has up to {LONGEST} characters")
    if found := _STRANGE.search(pattern):
        raise SettingsError(
            f"'{pattern}' has a group of an unknown kind ({found[0]})", hint="Search for the text itself"
        )
    repeats = (max(int(least or 0), int(most or 0), 1) for least, most in _REPEATS.findall(pattern))
    if len(pattern) * prod(repeats) > MOST_SIGNS:
        raise SettingsError(f"'{pattern}' repeats too much", hint="Use smaller numbers in braces")
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except RecursionError as error:
        raise SettingsError(f"'{pattern}' is nested too deep", hint="Search for the text itself") from error
    except regex.error as error:
        why = _WHY.get(str(error).split()[0], str(error))
        raise SettingsError(
            f"'{pattern}' is no regular expression ({why})", hint="Search for the text itself"
        ) from error
