"""Read a protobuf message by its wire format alone: which fields there are, and where they lie.

    08 02 │ 1a 04 0a 02 04 10     →     field 1: the number 2; field 3: the bytes 4 to 8

Nothing is copied and nothing is taken for a message unless its reader says so. What no writer writes is
refused: the groups of protobuf 2, numbers of more than 64 bits, fields that run past the end.
"""

import struct
from collections.abc import Iterator

from msgspec import Struct

from firstdrift.dumps.containers.contents import MOST_DIMENSIONS, Contents, DamagedError, unpack
from firstdrift.wording.message import Message

_MOST_FIELDS = 100_000
_MOST_BITS = 64
_LONGEST_NUMBER = 10
"""Bytes of a number of 64 bits."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED = {_FIXED_64: struct.Struct("<Q"), _FIXED_32: struct.Struct("<I")}
_FIRST_NEGATIVE = 2**63


class Field(Struct, frozen=True):
    """One field of a message.

    Attributes:
        number: which field of the schema.
        value: the number that it holds, unsigned; 0 for bytes.
        start: where the bytes that it holds begin; -1 for a number.
        end: where they end.
    """

    number: int
    value: int = 0
    start: int = -1
    end: int = -1

    @property
    def is_bytes(self) -> bool:
        """Tell whether it holds bytes (a string, a message, packed numbers), not a number."""
        return self.start >= 0


def fields(contents: Contents, start: int, end: int, most: int = _MOST_FIELDS) -> Iterator[Field]:
    """Yield the fields of the message that lies at `start` to `end` of a file, which are `most` at most."""
    if not 0 <= start <= end <= len(contents):
        raise DamagedError(Message.of("dumps.protobuf.past_end_of_file"))
    at = start
    for _ in range(most + 1):
        if at == end:
            return
        key, at = _varint(contents, at, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise DamagedError(Message.of("dumps.protobuf.field_zero"))
        if kind == _VARINT:
            value, at = _varint(contents, at, end)
            yield Field(number, value)
        elif kind == _BYTES:
            length, at = _varint(contents, at, end)
            if length > end - at:
                raise DamagedError(Message.of("dumps.protobuf.past_end_of_message", field=number))
            yield Field(number, 0, at, at + length)
            at += length
        elif kind in _FIXED:
            form = _FIXED[kind]
            if form.size > end - at:
                raise DamagedError(Message.of("dumps.protobuf.field_cut_short", field=number))
            (fixed,) = unpack(form, contents, at)
            yield Field(number, fixed)
            at += form.size
        else:
            raise DamagedError(Message.of("dumps.protobuf.unknown_wire_type", field=number, type=kind))
    raise DamagedError(Message.of("dumps.protobuf.too_many_fields", most=most))


def numbers(contents: Contents, field: Field) -> list[int]:
    """Return the numbers of one occurrence of a repeated field: packed into bytes, or one by itself."""
    if not field.is_bytes:
        return [field.value]
    if field.end - field.start > MOST_DIMENSIONS * _LONGEST_NUMBER:
        raise DamagedError(Message.of("dumps.protobuf.too_many_numbers", field=field.number))
    found: list[int] = []
    at = field.start
    while at < field.end:
        value, at = _varint(contents, at, field.end)
        found.append(value)
    return found


def signed(value: int) -> int:
    """Return the number that an int32 or int64 field means."""
    return value - 2 * _FIRST_NEGATIVE if value >= _FIRST_NEGATIVE else value


def _varint(contents: Contents, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < _MOST_BITS:
        byte = contents[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the bit that says that more follows)
            if value >> _MOST_BITS:
                break
            return value, at
        shift += 7
    raise DamagedError(Message.of("dumps.protobuf.bad_number"))
