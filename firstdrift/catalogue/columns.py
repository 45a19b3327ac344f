"""Columns that give back exactly what was put in, on SQLite and on PostgreSQL.

| column    | Python                     | in the database                                             |
| --------- | -------------------------- | ----------------------------------------------------------- |
| `Exact`   | float, NaN and infinities  | a float; NaN as the text "NaN" in SQLite, which has none     |
| `Name`    | any string                 | text; what databases refuse (NUL, lone surrogates) escaped   |
| `Word`    | a member of an enumeration | its value                                                   |
| `Record`  | a frozen record            | strict JSON text                                            |
| `Remembered` | the same, often read    | the same                                                    |
| `Listed`  | a tuple of texts, integers | the same                                                    |
| `Said`    | a message, or several      | the same; of an earlier version a text                      |
| `Instant` | an aware datetime          | seconds since 1970 as a float, by the clock of the database  |

NaN sorts after all numbers on both; -0.0 is 0.0 to SQLite.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import Dialect, Double, Integer, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.recent import Recent
from firstdrift.wording.message import Message, verbatim

Processor = Callable[[Any], Any]
_REMEMBERED = 4096
_MOST_CHARACTERS = 48 << 20
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


class _Converted(TypeDecorator[Any]):
    """Values that are converted on the way in and on the way out."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True

    def __init__(self, into: Processor, out: Processor) -> None:
        """Remember how."""
        super().__init__()
        self._into, self._out = into, out

    def bind_processor(self, dialect: Dialect) -> Processor | None:
        """Convert what comes in."""
        del dialect
        return self._into

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        """Convert what goes out."""
        del dialect, coltype
        return self._out


def _but_for_none(convert: Processor) -> Processor:
    return lambda value: None if value is None else convert(value)


class Name(_Converted):
    """Text in which any character may occur."""

    cache_ok = True

    def __init__(self) -> None:
        """Escape on the way in, restore on the way out."""
        super().__init__(_but_for_none(storable), _but_for_none(restored))


class Exact(_Converted):
    """A float that may be NaN or infinite; None and NaN are kept apart."""

    impl = Double
    cache_ok = True

    def __init__(self) -> None:
        """SQLite stores NaN as NULL, so it gets the text."""
        # Only NaN differs from itself.
        super().__init__(
            lambda value: value if value == value else "NaN",  # noqa: PLR0124
            _but_for_none(float),
        )

    def bind_processor(self, dialect: Dialect) -> Processor | None:
        """Leave floats as they are where all are known."""
        return super().bind_processor(dialect) if dialect.name == "sqlite" else None


class Word(_Converted):
    """A member of an enumeration, as its value."""

    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        """Remember the enumeration."""
        values = {None: None} | {member: member.value for member in kind}
        members = {None: None} | {member.value: member for member in kind}
        super().__init__(values.__getitem__, members.__getitem__)
        self.kind = kind


class Record(_Converted):
    """A record (or a tuple or mapping of records) as strict JSON text."""

    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 (a type, or an annotation such as tuple[str, ...])
        """Remember the type, which says how the text is read."""
        super().__init__(_but_for_none(to_text), _but_for_none(partial(from_text, kind)))
        self.kind = kind


class Remembered(Record):
    """A record that every page reads again, and that may be long: what was read last is not made again."""

    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401
        """Keep so many characters, and what was made of them."""
        super().__init__(kind)
        decode = self._out
        recent = Recent[str, tuple[int, Any]](_MOST_CHARACTERS, lambda kept: kept[0])

        def out(text: str | None) -> Any:  # noqa: ANN401 (as its kind says)
            return None if text is None else recent.get(text, lambda: (len(text), decode(text)))[1]

        self._out = out


class Listed(Record):
    """A short tuple of texts or of integers, such as a shape, that often comes again; as JSON text."""

    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401
        """Convert each value once."""
        super().__init__(kind)
        self._into, self._out = map(lru_cache(_REMEMBERED), (self._into, self._out))


class Said(Record):
    """A message, or several; no message is an empty text. Earlier versions kept texts without JSON."""

    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401
        """Convert each value once."""
        super().__init__(kind)
        encode = self._into
        self._into = lru_cache(_REMEMBERED)(lambda said: "" if said == () else encode(said))
        self._out = lru_cache(_REMEMBERED)(self._read)

    def _read(self, text: str | None) -> Any:  # noqa: ANN401 (as its kind says)
        if text is None:
            return None
        if text.startswith(_OF_MESSAGES):
            return from_text(self.kind, text)
        if self.kind is Message:
            return verbatim(text)
        return (verbatim(text),) if text else ()


class Whole(Integer):
    """A whole number in a question to PostgreSQL: one that no column can hold is not found, and no fault."""

    render_bind_cast = False


class Instant(_Converted):
    """A moment, as seconds since 1970."""

    impl = Double
    cache_ok = True

    def __init__(self) -> None:
        """Store the seconds; give an aware datetime in UTC."""
        super().__init__(
            _but_for_none(datetime.timestamp), _but_for_none(partial(datetime.fromtimestamp, tz=UTC))
        )


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
