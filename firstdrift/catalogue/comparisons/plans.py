"""Plans and trees as they were judged, packed: what else judging takes beside the measurements.

Where data lie is left out: judging asks only whether a tensor has any.
"""

import zlib
from functools import cache
from pathlib import Path

from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder

from firstdrift.comparison.session import Planned

_QUICKLY = 1
"""Level of compression: higher ones save a tenth and take longer."""

_NOWHERE = Path()


def pack(planned: Planned) -> bytes | None:
    """Write a plan and a tree; None if a name in them has characters that UTF-8 lacks."""
    try:
        return zlib.compress(_encoder().encode(planned), _QUICKLY)
    except UnicodeEncodeError:
        return None


def unpack(packed: bytes) -> Planned | None:
    """Read what `pack` wrote; None if records had other fields then."""
    try:
        return _decoder().decode(zlib.decompress(packed))
    except (DecodeError, zlib.error):
        return None


@cache
def _encoder() -> Encoder:
    return Encoder(enc_hook=lambda _path: None)


@cache
def _decoder() -> Decoder[Planned]:
    return Decoder(Planned, dec_hook=lambda _kind, _nothing: _NOWHERE)
