"""Columns that give back exactly what was put in, on SQLite and on PostgreSQL.

| column    | Python                     | in the database                                             |
| --------- | -------------------------- | ----------------------------------------------------------- |
| `Exact`   | float, NaN and infinities  | a float; NaN as the text "NaN" in SQLite, which has none     |
| `Name`    | any string                 | text; what databases refuse (NUL, lone surrogates) escaped   |
| `Word`    | a member of an enumeration | its value                                                   |
| `Record`  | a frozen record            | strict JSON text                                            |
| `Listed`  | a tuple of texts, integers | the same                                                    |
| `Said`    | a message, or several      | the same; of an earlier version a text                      |
| `Instant` | an aware datetime          | seconds since 1970 as a float, by the clock of the database  |

NaN sorts after all numbers on both; -0.0 is 0.0 to SQLite.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, Double, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.types import TypeDecorator

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.wording.message import Message, verbatim

Processor = Callable[[Any], Any]
_REMEMBERED = 4096
_OF_MESSAGES = ('{"id"', '[{"id"')
"""How the JSON of a message, or of several, begins."""

_ESCAPE = "\x1a"
_UNSTORABLE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def storable(name: str) -> str:
    """Escape the characters that a database cannot hold: NUL and lone surrogates."""
    if _UNSTORABLE.search(name) is None:
        return name
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", name)


def restored(text: str) -> str:
    """Undo `storable`."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


class Name(TypeDecorator[str]):
    """Text in which any character may occur."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Escape on the way in."""
        del dialect
        return lambda value: value if value is None else storable(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Restore on the way out."""
        del dialect, coltype
        return lambda value: value if value is None else restored(value)


class Exact(TypeDecorator[float]):
    """A float that may be NaN or infinite; None and NaN are kept apart."""

    impl = Double
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor | None:
        """SQLite stores NaN as NULL, so it gets the text."""
        if dialect.name != "sqlite":
            return None
        return lambda value: value if value == value else "NaN"  # noqa: PLR0124 (only NaN differs from itself)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Turn the text back into NaN."""
        del dialect, coltype
        return lambda value: value if value is None else float(value)


class Word(TypeDecorator[StrEnum]):
    """A member of an enumeration, as its value."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        """Remember the enumeration."""
        super().__init__()
        self.kind = kind

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Store the value."""
        del dialect
        values: dict[StrEnum | None, str | None] = {member: member.value for member in self.kind}
        return (values | {None: None}).__getitem__

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Give the member."""
        del dialect, coltype
        members: dict[str | None, StrEnum | None] = {member.value: member for member in self.kind}
        return (members | {None: None}).__getitem__


class Record(TypeDecorator[Any]):
    """A record (or a tuple or mapping of records) as strict JSON text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 (a type, or an annotation such as tuple[str, ...])
        """Remember the type, which says how the text is read."""
        super().__init__()
        self.kind = kind

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Encode."""
        del dialect
        return lambda value: None if value is None else to_text(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Decode."""
        del dialect, coltype
        return lambda value: None if value is None else from_text(self.kind, value)


class Listed(Record):
    """A short tuple of texts or of integers, such as a shape, that often comes again; as JSON text."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Encode, each value once."""
        return lru_cache(_REMEMBERED)(super().bind_processor(dialect))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Decode, each text once."""
        return lru_cache(_REMEMBERED)(super().result_processor(dialect, coltype))


class Said(Record):
    """A message, or several; no message is an empty text. Earlier versions kept texts without JSON."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Encode, each value once."""
        encode = super().bind_processor(dialect)
        return lru_cache(_REMEMBERED)(lambda said: "" if said == () else encode(said))

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Decode, each text once."""
        del dialect, coltype
        return lru_cache(_REMEMBERED)(self._read)

    def _read(self, text: str | None) -> Any:  # noqa: ANN401 (as its kind says)
        if text is None:
            return None
        if text.startswith(_OF_MESSAGES):
            return from_text(self.kind, text)
        if self.kind is Message:
            return verbatim(text)
        return (verbatim(text),) if text else ()


class Instant(TypeDecorator[datetime]):
    """A moment, as seconds since 1970."""

    impl = Double
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Processor:
        """Store the seconds."""
        del dialect
        return lambda value: value if value is None else value.timestamp()

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Give an aware datetime in UTC."""
        del dialect, coltype
        return lambda value: value if value is None else datetime.fromtimestamp(value, UTC)


class Now(ColumnElement[datetime]):
    """The present moment by the clock of the database, which all processes share; plus some seconds."""

    type = Instant()
    inherit_cache = False

    def __init__(self, plus_seconds: float = 0.0) -> None:
        """Say how long after the present moment."""
        self.plus_seconds = float(plus_seconds)


@compiles(Now, "sqlite")
def _now_in_sqlite(element: Now, _compiler: SQLCompiler, **_options: object) -> str:
    return f"((julianday('now') - 2440587.5) * 86400.0 + {element.plus_seconds!r})"


@compiles(Now, "postgresql")
def _now_in_postgresql(element: Now, _compiler: SQLCompiler, **_options: object) -> str:
    return f"(extract(epoch from clock_timestamp())::double precision + {element.plus_seconds!r})"
