"""Records as strict JSON text, and back.

    Statistics(maximum=inf)  ⇄  {"maximum": "Infinity"}

JSON has no NaN and no infinities, so they are written as the strings "NaN", "Infinity" and
"-Infinity"; the types of the fields say which strings are numbers. A field that is None, and None by
default, is left out, as is any default of a record that says so (`omit_defaults`); one that this version
does not know is passed over.
"""

import json
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, DecodeError, Struct, convert
from msgspec.json import Decoder
from msgspec.structs import fields

from firstdrift.strict_json import to_compact_json
from firstdrift.wording.message import Message, verbatim


def to_text(value: object) -> str:
    """Encode a record, or a tuple or mapping of records."""
    return to_compact_json(to_plain(value))


def from_text(kind: Any, text: str) -> Any:  # noqa: ANN401 (a type in, one of its values out)
    """Decode what `to_text` wrote of a value of the type `kind`."""
    quick = _quick_decoder(kind)
    if quick is not None:
        with suppress(DecodeError):  # half of a character
            return quick(text)
    return _decoder(kind)(json.loads(text))


@cache
def _quick_decoder(kind: Any) -> Callable[[str], Any] | None:  # noqa: ANN401
    """Make what decodes nearly all texts, six times as fast; None for types that only we know."""
    try:
        # Not strict, so that numbers by their names are numbers.
        return Decoder(kind, strict=False, dec_hook=lambda known, plain: known(plain)).decode
    except TypeError:
        return None


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
        return lambda value: [to_plain(item) for item in value]
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


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(arguments)
    if origin is tuple:
        item = _decoder(arguments[0])
        # Where there are several messages now, earlier versions may have kept one text.
        return lambda plain: tuple(map(item, filter(None, [plain]) if isinstance(plain, str) else plain))
    if origin is not None and issubclass(origin, Mapping):
        item = _decoder(arguments[1])
        return lambda plain: {key: item(value) for key, value in plain.items()}
    if kind is float:
        return _float
    if kind is Message:
        return _message
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _record_decoder(kind)
    if isinstance(kind, type) and issubclass(kind, (Enum, Path)):
        return kind
    return lambda plain: plain


def _union_decoder(arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    if str in arguments and Message in arguments:
        return lambda plain: plain if isinstance(plain, str) else _message(plain)
    # Of the other unions in our records each holds one type besides None, or numbers.
    decoders = [_decoder(argument) for argument in arguments if argument is not types.NoneType]
    decode = decoders[0] if len(decoders) == 1 else _float
    if decode is _message:
        return lambda plain: decode(plain) if plain else None  # earlier versions kept "" for nothing
    return lambda plain: None if plain is None else decode(plain)


def _record_decoder(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    @cache  # not before it is used: a record may hold others of its own kind
    def decoders() -> dict[str, Callable[[Any], Any]]:
        return {field.name: _decoder(field.type) for field in fields(kind)}

    return lambda plain: kind(
        **{name: decoders()[name](value) for name, value in plain.items() if name in decoders()}
    )


def _message(plain: Any) -> Message:  # noqa: ANN401
    # Earlier versions kept finished texts.
    return verbatim(plain) if isinstance(plain, str) else convert(plain, Message, strict=False)


def _float(plain: Any) -> Any:  # noqa: ANN401
    return float(plain) if isinstance(plain, str) else plain
