"""Read what llama.cpp's evaluation callback prints of tensors.

    common_debug_cb_eval:  ffn_out-0 = (f32)  MUL_MAT(blk.0.ffn_down.weight{64, 32, 1, 1}, …) = {32, 5, 1, 1}
        [
            [
                [     -1.1093,      -1.0477,       1.3329,    ...,      -0.5957,       0.1347,      -1.316  ],
            ],
        ]
        sum = -50.681271

Of each dimension the first three and the last three are printed, with four decimals, and the sum of all
elements. Those are the values that are read: as they were printed, and behind them, of fractions, the sum
over the root of the number of elements. That is the product of the tensor and a vector of length one: it is
as large as an element is, and differs where anything does that was not printed, by no more than all of it.
"""

import math
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firstdrift.dumps.containers.contents import LARGEST_NUMBER, Contents, DamagedError, view
from firstdrift.dumps.containers.values import read_only
from firstdrift.model.tensor import FOUR_DECIMALS, is_floating
from firstdrift.wording.message import Message

_LARGEST: Final = 512 * 2**20
"""Bytes of a log that is read: a pass of a large model prints some millions."""

_MOST_PRINTED: Final = 1_000_000
"""Values of one tensor that are read; six of each of four dimensions are printed."""

_HEADER: Final = re.compile(
    rb"^.{0,100}?\b[a-z_]{0,40}(?:ggml_debug|debug_cb_eval): {1,40}(?P<name>[^\s=].{0,120}?) = "
    rb"(?:\((?P<dtype>[^()\n]{1,16})\))? {0,20}(?P<operator>[A-Za-z0-9_]{1,40})"
    rb"\((?P<sources>.{0,400}?)\}?\) = \{(?P<sizes>[0-9, ]{1,90})\} *\r?$",
    re.MULTILINE,
)
_SUM: Final = re.compile(rb"^[^\n\[]*\bsum = (?P<sum>\S{1,60}) *\r?$", re.MULTILINE)
_ROW: Final = re.compile(rb"\[(?P<row>[^\[\]\n]*)\]")
_SOURCE: Final = re.compile(rb"(?P<name>[^{}]*)\{(?P<sizes>[0-9, ]{1,90})\}")

_PLACE: Final = re.compile(r"([0-9]{1,15}):([0-9]{1,15})", re.ASCII)
_SIZE: Final = re.compile(rb"[0-9]{1,19}")
_DTYPES: Final = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}


class Source(Struct, frozen=True):
    """A tensor that an operator took: its name and shape."""

    name: str
    shape: tuple[int, ...]


class Printed(Struct, frozen=True):
    """What was printed of a tensor.

    Attributes:
        start: where that begins in the file.
        values: where the line ends that names it, and its values begin.
        end: where that of the next tensor begins.
        name: its name.
        operator: what made it.
        dtype: numpy's name; that of ggml where numpy has none.
        shape: its dimensions, the slowest first.
        sources: the first two tensors that it was made from.
    """

    start: int
    values: int
    end: int
    name: str
    operator: str
    dtype: str
    shape: tuple[int, ...]
    sources: tuple[Source, ...]

    @property
    def entry(self) -> str:
        """By which `load` finds it."""
        return f"{self.start}:{self.end}"

    @property
    def size(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)


class Values(Struct, frozen=True):
    """What was printed of a tensor: some of its elements, and the sum of all; None if it is cut off."""

    elements: tuple[float, ...]
    total: float | None


def load(_file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load what was printed of a tensor, which lies from one place to another."""
    place = _PLACE.fullmatch(entry)
    start, end = map(int, place.groups()) if place else (0, 0)
    block = bytes(view(contents, start, end - start))
    header = _HEADER.match(block)
    if header is None:
        raise DamagedError(Message.of("dumps.ggml_log.not_one"))
    values = values_of(block[header.end() :])
    printed = _printed(header, len(block))
    if not is_floating(printed.dtype):
        return read_only(_whole(values.elements))
    total = [] if values.total is None else [values.total / math.sqrt(max(printed.size, 1))]
    return read_only(np.array([*values.elements, *total], np.float64))


def layout_of_values(printed: Printed, values: Values) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape of what `load` gives of a tensor."""
    if not is_floating(printed.dtype):
        return "int64", (len(values.elements),)
    return f"{printed.dtype}{FOUR_DECIMALS}", (len(values.elements) + (values.total is not None),)


def _whole(elements: tuple[float, ...]) -> npt.NDArray[Any]:
    if not all(element.is_integer() for element in elements):  # a NaN or an infinity is none
        raise DamagedError(Message.of("dumps.ggml_log.not_whole"))
    return np.array(elements, np.float64).astype(np.int64)


def first_name(beginning: bytes) -> str | None:
    """Return the name of the first tensor in the beginning of a file; None if there is none."""
    found = _HEADER.search(beginning)
    return found and _text(found["name"])


def printed_in(contents: Contents) -> list[Printed]:
    """Return the tensors of a log as they were printed.

    Raises:
        DamagedError: the file is too large.
    """
    if len(contents) > _LARGEST:
        raise DamagedError(Message.of("dumps.ggml_log.too_large", most=_LARGEST >> 20))
    headers = list(_HEADER.finditer(view(contents, 0, len(contents))))
    ends = [*(header.start() for header in headers[1:]), len(contents)]
    return list(map(_printed, headers, ends))


def values_at(contents: Contents, printed: Printed) -> Values:
    """Return the numbers that were printed of a tensor, up to where the next begins.

    Raises:
        DamagedError: what stands there are no numbers, or too many.
    """
    return values_of(bytes(view(contents, printed.values, printed.end - printed.values)))


def values_of(block: bytes) -> Values:
    """Return the numbers in the lines after the one that names a tensor.

    Raises:
        DamagedError: what stands there are no numbers, or too many.
    """
    sums = _SUM.search(block)
    rows = block[: sums.start()] if sums else block
    words = (word.strip() for row in _ROW.finditer(rows) for word in row["row"].split(b","))
    elements = [_number(word) for word in words if word not in (b"", b"...")]
    if len(elements) > _MOST_PRINTED:
        raise DamagedError(Message.of("dumps.ggml_log.too_many_values", most=_MOST_PRINTED))
    return Values(tuple(elements), _number(sums["sum"]) if sums else None)


def _number(word: bytes) -> float:
    try:
        return float(word)
    except ValueError as exc:
        raise DamagedError(Message.of("dumps.ggml_log.no_number", word=_text(word[:40]))) from exc


def _printed(header: re.Match[bytes], end: int) -> Printed:
    dtype = _text(header["dtype"] or b"f32")
    return Printed(
        start=header.start(),
        values=header.end(),
        end=end,
        name=_text(header["name"]),
        operator=_text(header["operator"]),
        dtype=_DTYPES.get(dtype, dtype),
        shape=_shape(header["sizes"]),
        sources=tuple(
            Source(_text(one["name"].removeprefix(b", ")), _shape(one["sizes"]))
            for one in _SOURCE.finditer(header["sources"])
        ),
    )


def _shape(sizes: bytes) -> tuple[int, ...]:
    """Return dimensions, the slowest first, without those of size 1 in front of the last."""
    numbers = list(map(int, _SIZE.findall(sizes)))[::-1]
    while len(numbers) > 1 and numbers[0] == 1:
        del numbers[0]
    return tuple(numbers) if math.prod(numbers) <= LARGEST_NUMBER else (0,)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
