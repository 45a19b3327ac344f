"""The numbers in paths of modules: of layers ("model.layers.3.mlp"), and of chunks of them ("1.model")."""

import re
from typing import Final, NamedTuple

_NUMBERED: Final = re.compile(r"(?P<list>(?:^|.*?\.)[^.\d][^.]*)\.(?P<number>\d{1,9})(?=\.|$)")
_CHUNK: Final = re.compile(r"(\d{1,9})\.(.+)")


class NumberedLayer(NamedTuple):
    """A layer, as the path of a module in it begins.

    Attributes:
        path: its own path: "model.layers.3".
        list: that of the list it is in: "model.layers".
        number: its number there: 3.
    """

    path: str
    list: str
    number: int


def outermost_layer(path: str) -> NumberedLayer | None:
    """Return the outermost numbered layer that a module lies in, or is; None if there is none."""
    match = _NUMBERED.match(path)
    return match and NumberedLayer(match[0], match["list"], int(match["number"]))


def chunk_of(path: str) -> int | None:
    """Return the number of the chunk of layers (virtual pipeline) that a module is in; None if in none."""
    match = _CHUNK.fullmatch(path)
    return match and int(match[1])


def without_chunk(path: str) -> str:
    """Return a path without the number of its chunk: "1.model.norm" is "model.norm"."""
    match = _CHUNK.fullmatch(path)
    return match[2] if match else path


def in_first_chunk(path: str) -> str:
    """Return a path as that of the first chunk: "1.model.norm" is "0.model.norm"."""
    return path if chunk_of(path) is None else f"0.{without_chunk(path)}"
