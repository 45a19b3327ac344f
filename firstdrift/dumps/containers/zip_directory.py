"""The directory of a zip file whose members are stored as they are, as `torch.save` writes it.

    local header, bytes │ local header, bytes │ … │ directory: name, offset, size, CRC-32 │ end

Only the end is looked at, so that a file of many gigabytes is listed as fast as a small one. What
`torch.save` never writes (compression, encryption, members outside the file) is refused, and with
it every archive that would unpack to more than the file itself.
"""

import struct

from msgspec import Struct

from firstdrift.dumps.containers.contents import Contents, DamagedError, unpack
from firstdrift.wording.message import Message

_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_END_64_LOCATOR = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s4x2H4x3I3H8xI")
_LOCAL_HEADER = struct.Struct("<4s22x2H")
_FIELD_HEADER = struct.Struct("<2H")
_ENCRYPTED = 0x1
_ZIP64_FIELD = 1
_IN_ZIP64_FIELD = 0xFFFFFFFF

_DAMAGED = Message.of("dumps.zip.damaged")


class Member(Struct, frozen=True, gc=False):
    """One file inside the zip: where its local header begins, its size, its CRC-32 (0: unknown)."""

    header: int
    size: int
    crc32: int


def stored_members(contents: Contents) -> dict[bytes, Member]:
    """Read the directory: member by name."""
    try:
        at, count = _find_directory(contents)
        members: dict[bytes, Member] = {}
        for _ in range(count):
            name, member, at = _read_entry(contents, at)
            if name in members:
                raise DamagedError(Message.of("dumps.zip.name_twice"))
            members[name] = member
    except struct.error as exc:
        raise DamagedError(_DAMAGED) from exc
    return members


def member_start(contents: Contents, member: Member) -> int:
    """Return the offset of the first byte of a member; all its bytes lie inside the file."""
    try:
        signature, name_length, extra_length = unpack(_LOCAL_HEADER, contents, member.header)
    except struct.error as exc:
        raise DamagedError(_DAMAGED) from exc
    if signature != b"PK\x03\x04":
        raise DamagedError(Message.of("dumps.zip.member_elsewhere"))
    start: int = member.header + _LOCAL_HEADER.size + name_length + extra_length
    if start + member.size > len(contents):
        raise DamagedError(Message.of("dumps.zip.member_too_large"))
    return start


def _find_directory(contents: Contents) -> tuple[int, int]:
    end = len(contents) - _END.size
    if end < 0 or contents[end : end + 4] != b"PK\x05\x06":
        raise DamagedError(Message.of("dumps.zip.cut_short"))
    _, _, _, _, count, _, start, _ = unpack(_END, contents, end)
    locator = end - _END_64_LOCATOR.size
    if locator >= 0 and contents[locator : locator + 4] == b"PK\x06\x07":
        _, _, end_64, _ = unpack(_END_64_LOCATOR, contents, locator)
        if end_64 > locator or contents[end_64 : end_64 + 4] != b"PK\x06\x06":
            raise DamagedError(_DAMAGED)
        *_, count, _, start = unpack(_END_64, contents, end_64)
    if start + count * _ENTRY.size > len(contents):
        raise DamagedError(_DAMAGED)
    return start, count


def _read_entry(contents: Contents, at: int) -> tuple[bytes, Member, int]:
    (signature, flags, method, crc32, packed, size, name_length, extra_length, comment_length, header) = (
        unpack(_ENTRY, contents, at)
    )
    if signature != b"PK\x01\x02":
        raise DamagedError(_DAMAGED)
    if method or flags & _ENCRYPTED:
        raise DamagedError(Message.of("dumps.zip.compressed"))
    name_at = at + _ENTRY.size
    name_end = name_at + name_length
    extra_end = name_end + extra_length
    if _IN_ZIP64_FIELD in (packed, size, header):
        size, packed, header = _wide_fields(contents[name_end:extra_end], (size, packed, header))
    if packed != size or header + size > len(contents):
        raise DamagedError(Message.of("dumps.zip.claims_too_much"))
    return contents[name_at:name_end], Member(header, size, crc32), extra_end + comment_length


def _wide_fields(extra: bytes, fields: tuple[int, int, int]) -> tuple[int, ...]:
    """Take size, packed size and offset from the zip64 field where they do not fit 32 bits."""
    at = 0
    while at + _FIELD_HEADER.size <= len(extra):
        kind, length = _FIELD_HEADER.unpack_from(extra, at)
        at += _FIELD_HEADER.size
        if kind == _ZIP64_FIELD:
            wide = iter(struct.unpack_from(f"<{length // 8}Q", extra, at))
            return tuple(next(wide, field) if field == _IN_ZIP64_FIELD else field for field in fields)
        at += length
    raise DamagedError(_DAMAGED)
