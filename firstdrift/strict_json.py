"""JSON that strict parsers read and that keeps NaN and infinities, as strings.

{"mean": NaN}   →   {"mean": "NaN"}      likewise "Infinity" and "-Infinity"
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import astuple

from firstdrift.wording.message import Message
from firstdrift.wording.plain import message_object
from firstdrift.wording.text import SOURCE

_SURROGATE = re.compile("[\ud800-\udfff]")
_compact = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def to_json(
    value: object, *, language: str = SOURCE, names: Callable[[str], str] = str, indent: int | None = None
) -> str:
    """Write a value as strict JSON: records as objects, messages with their text in a language.

    The text can be encoded: bytes of a file name that are no UTF-8 stand as escapes, unless `names` writes
    them otherwise.
    """
    text = json.dumps(
        spelled_out(plain(value, language, names)), allow_nan=False, ensure_ascii=False, indent=indent
    )
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def to_compact_json(value: object) -> str:
    """Write a value as strict JSON in ASCII without spaces; few hold a number that has to be spelled out."""
    try:
        return _compact(value)
    except ValueError:
        return _compact(spelled_out(value))


def spelled_out(value: Any) -> Any:  # noqa: ANN401
    """Replace NaN and infinities by their names, everywhere inside."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): spelled_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(spelled_out, value))
    return value


def plain(  # noqa: PLR0911 (whatever JSON has)
    value: object, language: str = SOURCE, names: Callable[[str], str] = str
) -> Any:  # noqa: ANN401
    """Take a view apart into dicts, lists, strings and numbers.

    Records become objects, but for fields that are UNSET; messages `message_object`, times text; `names`
    writes strings and paths.
    """
    inner = partial(plain, language=language, names=names)
    match value:
        case Mapping():
            return {names(key) if isinstance(key, str) else key: inner(item) for key, item in value.items()}
        case list() | tuple():
            return list(map(inner, value))
        case frozenset():
            return sorted(map(inner, value))
        case datetime():
            return value.isoformat()
        case str() | PurePath():
            return names(str(value))
        case Message():
            return inner(message_object(value, language))
        case Struct():
            items = zip(value.__struct_encode_fields__, astuple(value), strict=True)
            return {name: inner(item) for name, item in items if item is not UNSET}
    if dataclasses.is_dataclass(value):
        return {field.name: inner(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value
