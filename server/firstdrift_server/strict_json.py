"""Views as strict JSON: records become objects, times become text, and NaN keeps its name."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from firstdrift.exports.strict_json import to_json


def plain(value: object) -> Any:  # noqa: ANN401 - whatever JSON has
    """Take a view apart into dicts, lists, strings and numbers."""
    match value:
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(map(plain, value))
        case datetime():
            return value.isoformat()
        case PurePath():
            return str(value)
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


class StrictJSONResponse(Response):
    """An answer in strict JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content; lone surrogates, which names of dumps may have, are written as escapes."""
        return to_json(plain(content)).encode("utf-8", "backslashreplace")


def encodable(name: str) -> str:
    """Write the lone surrogates of a name as escapes, for which UTF-8 has no bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


class ManyNumbersResponse(Response):
    """An answer in strict JSON that holds many numbers: it is encoded as it is.

    Non-finite numbers are spelled out in it already, and its names are `encodable`.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return msgspec.json.encode(content)
