"""Records as strict JSON text, and back.

    Statistics(maximum=inf)  ⇄  {"maximum": "Infinity"}

JSON has no NaN and no infinities, so they are written as the strings "NaN", "Infinity" and
"-Infinity"; the types of the fields say which strings are numbers. A field that is None, and None by
default, is left out, as is any default of a record that says so (`omit_defaults`); one that this version
does not know is passed over.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, DecodeError, Struct, convert
from msgspec.inspect import DictType, NoneType, StructType, UnionType, VarTupleType, type_info
from msgspec.json import Decoder
from msgspec.structs import fields

from firstdrift.decoders import made_alone
from firstdrift.strict_json import to_compact_json
from firstdrift.wording.message import verbatim


def to_text(value: object) -> str:
    """Encode a record, or a tuple or mapping of records."""
    return to_compact_json(to_plain(value))


def from_text(kind: Any, text: str) -> Any:  # noqa: ANN401 (a type in, one of its values out)
    """Decode what `to_text` wrote of a value of the type `kind`."""
    try:
        return _decoder(kind).decode(text)
    except DecodeError:  # half of a character, or a text where there is a message now
        plain = _with_messages(json.loads(text), type_info(kind))
        return convert(plain, kind, strict=False, dec_hook=_made)


@cache
def _decoder(kind: Any) -> Decoder[Any]:  # noqa: ANN401
    # Not strict, so that numbers by their names are numbers.
    return made_alone(Decoder, kind, strict=False, dec_hook=_made)


def _made(known: type, plain: Any) -> Any:  # noqa: ANN401
    return known(plain)


def to_plain(value: Any) -> Any:  # noqa: ANN401 (a record in, what JSON has out)
    """Take records apart into what JSON has; floats are left as they are."""
    kind: Any = type(value)
    return _encoder(kind)(value)


@cache
def _encoder(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401 (a type)
    if issubclass(kind, Struct):
        return _record_encoder(kind)
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, Path):
        return str
    if issubclass(kind, Mapping):
        return lambda value: {key: to_plain(item) for key, item in value.items()}
    if issubclass(kind, (tuple, list)):
        return lambda value: list(map(to_plain, value))
    return lambda value: value


def _record_encoder(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    omits_all = kind.__struct_config__.omit_defaults
    omitted = [
        (field.name, field.default if omits_all or field.default is None else NODEFAULT)
        for field in fields(kind)
    ]

    def encode(record: object) -> dict[str, Any]:
        plain = {}
        for name, default in omitted:
            value = getattr(record, name)
            if value is default or (omits_all and value == default):
                continue
            plain[name] = value if type(value) in _ALREADY_PLAIN else to_plain(value)
        return plain

    return encode


_ALREADY_PLAIN = frozenset({float, int, str, bool, type(None)})


def _with_messages(plain: Any, kind: Any) -> Any:  # noqa: ANN401 (what JSON has; a type as msgspec tells it)
    """Make messages of the texts that earlier versions kept where there are messages now."""
    match kind, plain:
        case StructType(), str():
            return to_plain(verbatim(plain))
        case StructType(fields=fields), dict():
            types = {field.name: field.type for field in fields}
            return {name: _with_messages(plain[name], types[name]) for name in types if name in plain}
        case UnionType(types=[StructType(), NoneType()]), "":
            return None
        case UnionType(types=[item, NoneType()]), _:
            return _with_messages(plain, item)
    return _each_with_messages(plain, kind)


def _each_with_messages(plain: Any, kind: Any) -> Any:  # noqa: ANN401
    match kind, plain:
        case VarTupleType(item_type=item), str() | list():
            several = filter(None, [plain]) if isinstance(plain, str) else plain
            return [_with_messages(each, item) for each in several]
        case DictType(value_type=item), dict():
            return {key: _with_messages(value, item) for key, value in plain.items()}
    return plain
