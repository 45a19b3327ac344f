"""Records on their way to another process, or into a file of this one."""

from pathlib import Path
from typing import Any

from msgspec.msgpack import Decoder, Encoder

from firstdrift.decoders import made_alone


def pack(record: object) -> bytes:
    """Write a record, or built-in values of records.

    Raises:
        UnicodeEncodeError: a text has characters that UTF-8 lacks.
    """
    return Encoder(enc_hook=_plain).encode(record)


def unpack(kind: Any, packed: bytes) -> Any:  # noqa: ANN401 (a type in, one of its values out)
    """Read what `pack` wrote of a value of the type `kind`.

    Raises:
        DecodeError: it is cut short, or holds something else.
    """
    return made_alone(Decoder, kind, dec_hook=_made).decode(packed)


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError


def _made(known: Any, plain: Any) -> Any:  # noqa: ANN401
    return known(plain)
