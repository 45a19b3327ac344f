"""Read a JSON file that a dumping tool wrote, whatever state it is in.

The bare literals NaN, Infinity and -Infinity are numbers. Half of a surrogate pair is no character: it is
kept as the six characters of its escape, so that every string can be shown and stored.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from firstdrift.dumps.storage.folders import file_unreadable
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import TooLargeError, read_editable
from firstdrift.groups import firsts
from firstdrift.wording.message import Message

LARGEST_FILE: Final = 512 * 2**20
"""Bytes of a JSON file that is read; what is made of it takes up to ten times as much memory.

The largest that tools are known to write (statistics of one rank of a model of 100 layers, its stacks) have
some tens of millions. A file counts by its length, however little of it is on the disk.
"""

MOST_VALUES: Final = 16_000_000
"""Values that are made of a JSON file, counted by commas and opening brackets; tools write a tenth of that.

While they are made, the process does nothing else: its heartbeats stay away for some seconds.
"""

_PLACES: Final = tuple(map(str, range(64)))

_DUMP_LESS: Final = Message.of("dumps.json.dump_less")

_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class JsonFile(Struct, frozen=True):
    """What a JSON file holds.

    Attributes:
        value: the outermost value.
        repeated_keys: keys that occur more than once in one object; the last of them counts.
    """

    value: Any
    repeated_keys: tuple[str, ...]


Quick: TypeAlias = Callable[[bytearray], JsonFile | None]
"""Reads what it can read in another way; leaves what it cannot as it was, and gives None."""


def read_json(file: Path, quick: Quick = lambda _: None) -> JsonFile:
    """Read a JSON file, as `parse_json` does if there is no way that is quick.

    Raises:
        DumpUnreadableError: it cannot be read, is not complete JSON, is nested too deeply, or holds too much.
    """
    content = _read(file)
    if len(content) > MOST_VALUES and sum(map(content.count, b",[{")) > MOST_VALUES:
        raise DumpUnreadableError(
            Message.of("dumps.json.too_many_values", most=MOST_VALUES), path=file, hint=_DUMP_LESS
        )
    try:
        return quick(content) or parse_json(_text(file, content))
    except json.JSONDecodeError as error:
        raise DumpUnreadableError(
            Message.of("dumps.json.incomplete", error=str(error)),
            path=file,
            hint=Message.of("dumps.json.run_stopped"),
        ) from error
    except RecursionError as error:
        raise DumpUnreadableError(Message.of("dumps.json.nested_too_deeply"), path=file) from error
    except ValueError as error:  # an integer of thousands of digits
        raise DumpUnreadableError(Message.of("dumps.json.number_too_long"), path=file) from error


def read_json_if_present(file: Path, quick: Quick = lambda _: None) -> JsonFile | None:
    """Read a JSON file that may be missing: None if it is.

    Raises:
        DumpUnreadableError: it is there, and `read_json` cannot read it.
    """
    try:
        return read_json(file, quick)
    except DumpUnreadableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def items_of(values: list[Any] | dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the values of a list or an object by their places or keys."""
    if isinstance(values, dict):
        return values.items()
    places = _PLACES if len(values) <= len(_PLACES) else map(str, count())
    return zip(places, values, strict=False)


def parse_json(text: str) -> JsonFile:
    """Read JSON text.

    Raises:
        ValueError: it is not complete JSON (`json.JSONDecodeError`), or holds a number that is too long.
        RecursionError: it is nested too deeply.
    """
    repeated: list[str] = []

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            repeated.extend(key for key, times in Counter(firsts(pairs)).items() if times > 1)
        return found

    if "\\" in text and ("\\ud" in text or "\\uD" in text):
        text = _ESCAPE.sub(lambda match: ("\\" if match["lone"] else "") + match[0], text)
    return JsonFile(json.loads(text, object_pairs_hook=as_object), tuple(repeated))


def _read(file: Path) -> bytearray:
    try:
        return read_editable(file, most=LARGEST_FILE)
    except TooLargeError as error:
        raise DumpUnreadableError(error.message, path=file, hint=_DUMP_LESS) from error
    except OSError as error:
        raise file_unreadable(file, error) from error


def _text(file: Path, content: bytearray) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        no_text = Message.of("dumps.json.not_utf8", error=error.reason, byte=error.start)
        raise DumpUnreadableError(no_text, path=file) from error
