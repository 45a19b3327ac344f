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
from firstdrift.paths import spelt
from firstdrift.wording.message import Message
from firstdrift.wording.plain import message_object


def plain(value: object) -> Any:  # noqa: ANN401, PLR0911 - whatever JSON has
    """Take a view apart into dicts, lists, strings and numbers."""
    match value:
        case Mapping():
            return {spelt(key) if isinstance(key, str) else key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(map(plain, value))
        case datetime():
            return value.isoformat()
        case str() | PurePath():
            return spelt(value)
    if isinstance(value, Message):
        return plain(message_object(value))
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


class StrictJSONResponse(Response):
    """An answer in strict JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content; names of files that are no UTF-8 are `spelt`."""
        return to_json(plain(content)).encode()


class ManyNumbersResponse(Response):
    """An answer in strict JSON that holds many numbers: it is encoded as it is.

    Non-finite numbers are spelled out in it already, and its names are `encodable`.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return msgspec.json.encode(content)
