"""Read tensors that lie in a JSON file as text: a `.npy` file, or one of `torch.save`, in base64.

    {"array": "k05VTVBZAQB2AHsn…"}      {"tensor": "UEsDBAAACAgAAAAA…"}

The text of a tensor is found by where it lies in the file ("array:1042:512": what, from which byte, how
many), so that a file of many tensors is parsed once, and none of them as JSON.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers import npy, pt
from firstdrift.dumps.containers.contents import Contents, DamagedError, TensorHeader, view
from firstdrift.wording.message import Message

_LARGEST: Final = 2 * 2**30
"""Bytes of a file that is looked through."""

_LARGEST_REST: Final = 64 * 2**20
"""Bytes of a file that are no tensors."""

_HEADER: Final = 128 * 1024
"""Characters in which the header of an array ends."""

_TEXT: Final = re.compile(rb'"(?P<kind>array|tensor)"\s{0,8}:\s{0,8}"(?P<text>[A-Za-z0-9+/]*={0,2})"')
_PLACE: Final = re.compile(r"(?P<kind>array|tensor):(?P<start>[0-9]{1,15}):(?P<length>[0-9]{1,15})")


class Place(Struct, frozen=True):
    """Where the text of a tensor lies in a file.

    Attributes:
        kind: "array" for a `.npy` file, "tensor" for one of `torch.save`.
        start: its first byte.
        length: in bytes.
    """

    kind: str
    start: int
    length: int

    def __str__(self) -> str:
        """Return how it is written."""
        return f"{self.kind}:{self.start}:{self.length}"


def place_of(text: str) -> Place | None:
    """Read what `str` gives of a place; None if it is none."""
    match = _PLACE.fullmatch(text)
    return match and Place(match["kind"], int(match["start"]), int(match["length"]))


def without_tensors(contents: Contents) -> str:
    """Return the text of a file with the place of each tensor instead of the tensor.

    Raises:
        DamagedError: it is too large, or is no text.
    """
    if len(contents) > _LARGEST:
        raise DamagedError(Message.of("dumps.base64_json.too_large", most=_LARGEST >> 30))
    pieces = list(_pieces(view(contents, 0, len(contents))))
    if sum(map(len, pieces)) > _LARGEST_REST:
        raise DamagedError(Message.of("dumps.base64_json.rest_too_large", most=_LARGEST_REST >> 20))
    try:
        return b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        no_text = Message.of("dumps.json.not_utf8", error=exc.reason, byte=exc.start)
        raise DamagedError(no_text) from exc


def header_at(contents: Contents, place: Place) -> TensorHeader:
    """Describe the tensor at a place; one that is damaged says so."""
    try:
        if place.kind == "tensor":
            (header,) = pt.headers(Path(), _decoded(contents, place))
            return replace(header, entry=str(place))
        padding = bytes(view(contents, place.start, place.length)[-2:]).count(b"=")
        size = place.length // 4 * 3 - padding
        beginning = _decoded(contents, replace(place, length=min(place.length, _HEADER)))
        return replace(npy.header(beginning, size), entry=str(place))
    except DamagedError as exc:
        return TensorHeader(str(place), "", None, problem=exc.message)
    except ValueError:
        return TensorHeader(str(place), "", None, problem=Message.of("dumps.pt.not_one_tensor"))


def load(file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load the tensor at a place."""
    place = place_of(entry)
    if place is None:
        raise DamagedError(Message.of("dumps.base64_json.no_place"))
    decoded = _decoded(contents, place)
    return pt.load(file, decoded, "") if place.kind == "tensor" else npy.array_in(decoded)


def _pieces(text: memoryview) -> Iterator[bytes]:
    """Yield the text between tensors, and the places of these."""
    at = 0
    for match in _TEXT.finditer(text):
        yield bytes(text[at : match.start("text")])
        yield str(Place(match["kind"].decode(), match.start("text"), len(match["text"]))).encode()
        at = match.end("text")
    yield bytes(text[at:])


def _decoded(contents: Contents, place: Place) -> bytes:
    try:
        return base64.b64decode(view(contents, place.start, place.length), validate=True)
    except binascii.Error as exc:
        raise DamagedError(Message.of("dumps.base64_json.no_base64")) from exc
