"""A few hundred records in one piece of the database, field by field.

    pack(Measurement, measurements)  ⇄  unpack(Measurement, packed)

| field                                    | kept as                                                   |
| ---------------------------------------- | --------------------------------------------------------- |
| floats                                   | their bytes, those of equal weight side by side           |
| integers, booleans                       | differences, in as few bytes as the largest takes         |
| members of an enumeration                | their values, once each, and which is where               |
| records                                  | their fields                                              |
| several records                          | how many, and the fields of all                           |
| texts, messages and whatever else        | MessagePack, an object that comes again once              |
| the last, with what MessagePack has not  | JSON: half of a character, an integer of more than 64 bits |

None is kept apart from all values. What has become of fields since is known by their names: one that this
version does not know is passed over, one that was not known then is as it is by default.

Fields that are not known yet where records are packed are left out, and put behind the rest without unpacking
it (`with_fields`).
"""

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import chain, compress, count, islice, repeat
from operator import is_not
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args, get_origin

from msgspec import Raw, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import astuple, fields

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.decoders import made_alone
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    import numpy.typing as npt

Made = TypeVar("Made", bound=Struct)
Values: TypeAlias = tuple[Any, ...]
Array: TypeAlias = "npt.NDArray[Any]"
_Give: TypeAlias = Callable[[Any, "Column", int, str], Any]

_QUICKLY = 1
"""Level of compression: higher ones save a tenth and take longer."""


class Column(Struct, array_like=True):
    """The values of a field that are there.

    Attributes:
        form: of numbers their dtype; else "words", "parts", "several", "msgpack" or "json".
        content: the values, as the form says.
        there: which records have one, a bit each; empty if all do.
        which: place of each in what is kept once, of several how many; nothing if all are kept.
        words: values of an enumeration.
        parts: fields of records.
    """

    form: str
    content: bytes = b""
    there: bytes = b""
    which: "tuple[Column, ...]" = ()
    words: tuple[str, ...] = ()
    parts: "dict[str, Column]" = {}


class Packed(Struct, array_like=True):
    """Records, field by field."""

    number: int
    parts: dict[str, Column]


def pack(kind: type[Struct], records: Sequence[Any], later: Collection[str] = ()) -> bytes:
    """Pack records of a kind; fields that are known `later` are left out."""
    parts = _fields(kind, records)
    for name in later:
        del parts[name]
    return zlib.compress(_ENCODER.encode(Packed(len(records), parts)), _QUICKLY)


def with_fields(kind: type[Struct], packed: bytes, values: Mapping[str, Values]) -> bytes:
    """Add fields that were left out: a value of each record for each."""
    types = _types(kind)
    parts = {name: _column(types[name], of_field) for name, of_field in values.items()}
    return packed + zlib.compress(_ENCODER.encode(parts), _QUICKLY)


def unpack(kind: type[Made], packed: bytes) -> list[Made]:
    """Restore all records."""
    found = _opened(packed)
    return _records(kind, found.parts, found.number)


class Block(Generic[Made]):
    """Packed records of which some are asked for: others are made only where they are most."""

    def __init__(self, kind: type[Made], packed: bytes) -> None:
        """Open it."""
        self._kind, self._packed = kind, _opened(packed)
        self._whole: list[Made] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return self._packed.number

    def at(self, places: Sequence[int]) -> list[Made]:
        """Restore the records at some places."""
        if self._whole is None and len(places) * _FEW > len(self):
            self._whole = _records(self._kind, self._packed.parts, len(self))
        if self._whole is not None:
            return list(map(self._whole.__getitem__, places))
        import numpy as np

        return _some_records(self._kind, self._packed.parts, len(self), np.array(places, np.int64))

    def field(self, name: str) -> list[Any]:
        """Restore a field of all records, as `unpack_fields` does."""
        values: list[Any] = _field(self._kind, self._packed.parts, name, len(self), _values)
        return values


def unpack_fields(kind: type[Struct], packed: bytes, names: Iterable[str]) -> list[list[Any]]:
    """Restore some fields of all records, "key" or "location.file": a list of values for each."""
    found = _opened(packed)
    return [_field(kind, found.parts, name, found.number, _values) for name in names]


def unpack_inner(
    kind: type[Struct], packed: bytes, name: str, names: Iterable[str]
) -> tuple[list[int], list[list[Any]]]:
    """Restore some fields of the records of which each record has several: how many, and lists over all."""
    column = _opened(packed).parts[name]
    if column.form == _NOTHING.form:
        return [], [[] for _ in names]
    inner = get_args(_types(kind)[name])[0]
    lengths: list[int] = _numbers(column.which[0]).tolist()
    return lengths, [_field(inner, column.parts, one, sum(lengths), _values) for one in names]


def unpack_arrays(kind: type[Struct], packed: bytes, names: Iterable[str]) -> list[Array]:
    """Restore some fields of all records, which are numbers or words, as arrays.

    Of what is not there a float is NaN, and everything else -1; a word is its place in its enumeration.
    """
    found = _opened(packed)
    return [_field(kind, found.parts, name, found.number, _array) for name in names]


def _opened(packed: bytes) -> Packed:
    opening = zlib.decompressobj()
    found = _DECODER.decode(opening.decompress(packed))
    if not opening.eof:
        raise zlib.error("cut short")
    if opening.unused_data:
        found.parts |= _DECODER_OF_PARTS.decode(zlib.decompress(opening.unused_data))
    return found


_FEW = 4
"""Where more than one record of so many is asked for, all are made."""

_NOTHING = Column("none")
_ENCODER, _DECODER, _DECODER_OF_PARTS = Encoder(enc_hook=str), Decoder(Packed), Decoder(dict[str, Column])


@cache
def _types(kind: type[Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in fields(kind)}


@cache
def _without_none(kind: Any) -> Any:  # noqa: ANN401 (a type, or an annotation such as tuple[str, ...])
    members = [member for member in get_args(kind) if member is not NoneType]
    return members[0] if NoneType in get_args(kind) and len(members) == 1 else kind


@cache
def _form(kind: Any) -> str:  # noqa: ANN401
    """Say in which form values of a type are kept."""
    if kind in _NUMBERS:
        return "numbers"
    if _is_record(kind):
        return "parts"
    if get_origin(kind) is tuple and _is_record(get_args(kind)[0]):
        return "several"
    return "words" if isinstance(kind, type) and issubclass(kind, StrEnum) else "others"


_NUMBERS: Mapping[Any, str] = {float: "f8", int: "i8", bool: "i8"}


def _is_record(kind: Any) -> bool:  # noqa: ANN401
    return isinstance(kind, type) and issubclass(kind, Struct) and kind is not Message


def _fields(kind: type[Struct], records: Sequence[Any]) -> dict[str, Column]:
    types = _types(kind)
    columns = list(zip(*map(astuple, records), strict=True)) or [()] * len(types)
    return {name: _column(types[name], values) for name, values in zip(types, columns, strict=True)}


def _column(kind: Any, values: Values) -> Column:  # noqa: ANN401
    plain = _without_none(kind)
    if not values:
        return _NOTHING
    if plain is kind:
        return _PACKS[_form(plain)](plain, values)
    there = list(map(is_not, values, repeat(None)))  # to compare each with None takes twice as long
    if False not in there:
        return _PACKS[_form(plain)](plain, values)
    if True not in there:
        return _NOTHING
    import numpy as np

    column = _PACKS[_form(plain)](plain, tuple(compress(values, there)))
    column.there = np.packbits(there).tobytes()
    return column


def _pack_numbers(kind: Any, values: Values) -> Column:  # noqa: ANN401
    import numpy as np

    try:
        array = np.array(values, _NUMBERS[kind])
    except OverflowError:
        return _pack_others(kind, values)
    if kind is float:
        return Column("f8", _by_weight(array))
    array[1:] -= array[:-1].copy()
    least, most = int(array.min()), int(array.max())
    form = next(form for form, beyond in _INTEGERS.items() if -beyond <= least and most < beyond)
    return Column(form, _by_weight(array.astype(form)))


_INTEGERS: Mapping[str, int] = {"i1": 2**7, "i2": 2**15, "i4": 2**31, "i8": 2**63}


def _by_weight(array: Array) -> bytes:
    return array.view("u1").reshape(len(array), array.itemsize).T.tobytes()


def _pack_words(_kind: Any, values: Values) -> Column:  # noqa: ANN401
    words = tuple(dict.fromkeys(values))
    return Column(
        "words",
        bytes(map({word: place for place, word in enumerate(words)}.__getitem__, values)),
        words=words,
    )


def _pack_parts(kind: Any, values: Values) -> Column:  # noqa: ANN401
    return Column("parts", parts=_fields(kind, values))


def _pack_several(kind: Any, values: Values) -> Column:  # noqa: ANN401
    all_ = tuple(chain.from_iterable(values))
    return Column(
        "several",
        which=(_pack_numbers(int, tuple(map(len, values))),),
        parts=_fields(get_args(kind)[0], all_),
    )


def _pack_others(kind: Any, values: Values) -> Column:  # noqa: ANN401
    try:
        # As they are written, for 1 and 1.0 are equal and yet not the same.
        written = values if kind is str else tuple(map(_ENCODER.encode, values))
        once = dict.fromkeys(written)
        content = _ENCODER.encode(list(once) if kind is str else list(map(Raw, once)))
    except (UnicodeEncodeError, OverflowError):
        return Column("json", to_text(values).encode())
    if len(once) == len(values):
        return Column("msgpack", content)
    place = dict(zip(once, count(), strict=False))
    return Column("msgpack", content, which=(_pack_numbers(int, tuple(map(place.__getitem__, written))),))


_PACKS: Mapping[str, Callable[[Any, Values], Column]] = {
    "numbers": _pack_numbers,
    "words": _pack_words,
    "parts": _pack_parts,
    "several": _pack_several,
    "others": _pack_others,
}


def _records(kind: type[Made], parts: dict[str, Column], number: int) -> list[Made]:
    known = {name: type_ for name, type_ in _types(kind).items() if name in parts}
    columns = [_values(type_, parts[name], number) for name, type_ in known.items()]
    if len(known) == len(_types(kind)):
        return list(map(kind, *columns))
    return [kind(**dict(zip(known, values, strict=True))) for values in zip(*columns, strict=True)]


def _field(kind: type[Struct], parts: dict[str, Column], path: str, number: int, give: _Give) -> Any:  # noqa: ANN401
    name, _, inner = path.partition(".")
    return give(_types(kind)[name], parts[name], number, inner)


def _values(kind: Any, column: Column, number: int, inner: str = "") -> list[Any]:  # noqa: ANN401
    if column.form == _NOTHING.form:
        return [None] * number
    plain = _without_none(kind)
    if not column.there:
        return _present(plain, column, number, inner)
    import numpy as np

    there = _flags(column, number)
    present = _present(plain, column, int(there.sum()), inner)
    values = np.full(number, None)
    values[there] = np.fromiter(present, object, len(present))
    return list(values.tolist())


def _present(kind: Any, column: Column, number: int, inner: str) -> list[Any]:  # noqa: ANN401
    if inner:
        found: list[Any] = _field(kind, column.parts, inner, number, _values)
        return found
    match column.form:
        case "words":
            return list(map([kind(word) for word in column.words].__getitem__, column.content))
        case "parts":
            return _records(kind, column.parts, number)
        case "several":
            return _several(kind, column)
        case "msgpack" | "json":
            return _others(kind, column)
    values = _numbers(column)
    return list((values.astype("?") if kind is bool else values).tolist())


def _array(kind: Any, column: Column, number: int, inner: str = "") -> Array:  # noqa: ANN401
    import numpy as np

    plain = _without_none(kind)
    there = _flags(column, number)
    array: Array
    if column.form == _NOTHING.form:
        array = np.empty(0, np.float64 if _leaf(plain, inner) is float else np.int64)
    elif inner:
        array = _field(plain, column.parts, inner, int(there.sum()), _array)
    elif column.form == "words":
        places = np.array([tuple(plain).index(word) for word in column.words], np.int8)
        array = places[np.frombuffer(column.content, np.uint8)]
    else:
        array = _numbers(column)
    if len(array) == number:
        return array
    whole = np.full(number, np.nan if array.dtype.kind == "f" else -1, array.dtype)
    whole[there] = array
    return whole


def _leaf(kind: Any, path: str) -> Any:  # noqa: ANN401
    name, _, inner = path.partition(".")
    return _leaf(_without_none(_types(kind)[name]), inner) if name else kind


def _flags(column: Column, number: int) -> Array:
    """Say which records have a value."""
    import numpy as np

    if column.form == _NOTHING.form:
        return np.zeros(number, bool)
    if not column.there:
        return np.ones(number, bool)
    return np.unpackbits(np.frombuffer(column.there, np.uint8), count=number).view("?")


def _numbers(column: Column) -> Array:
    import numpy as np

    dtype = np.dtype(column.form)
    planes = np.frombuffer(column.content, np.uint8).reshape(dtype.itemsize, -1)
    array = np.ascontiguousarray(planes.T).view(dtype).ravel()
    return array if column.form == "f8" else np.cumsum(array, dtype=np.int64)


def _several(kind: Any, column: Column) -> list[Any]:  # noqa: ANN401
    lengths: list[int] = _numbers(column.which[0]).tolist()
    records = iter(_records(get_args(kind)[0], column.parts, sum(lengths)))
    return [tuple(islice(records, length)) for length in lengths]


def _others(kind: Any, column: Column) -> list[Any]:  # noqa: ANN401
    if column.form == "json":
        once = from_text(list[kind], column.content.decode())
    else:
        once = _decoder(kind).decode(column.content)
    for which in column.which:
        return list(map(once.__getitem__, _numbers(which).tolist()))
    return list(once)


def _some_records(kind: type[Made], parts: dict[str, Column], number: int, at: Array) -> list[Made]:
    known = {name: type_ for name, type_ in _types(kind).items() if name in parts}
    columns = [_some_values(type_, parts[name], number, at) for name, type_ in known.items()]
    return [kind(**dict(zip(known, values, strict=True))) for values in zip(*columns, strict=True)]


def _some_values(kind: Any, column: Column, number: int, at: Array) -> list[Any]:  # noqa: ANN401
    if column.form == _NOTHING.form:
        return [None] * len(at)
    plain = _without_none(kind)
    if not column.there:
        return _some_present(plain, column, number, at)
    import numpy as np

    there = _flags(column, number)
    chosen = there[at]
    present = iter(_some_present(plain, column, int(there.sum()), (np.cumsum(there) - 1)[at[chosen]]))
    return [next(present) if is_there else None for is_there in chosen.tolist()]


def _some_present(kind: Any, column: Column, number: int, at: Array) -> list[Any]:  # noqa: ANN401
    match column.form:
        case "words":
            return [kind(column.words[column.content[place]]) for place in at.tolist()]
        case "parts":
            return _some_records(kind, column.parts, number, at)
        case "several":
            return _some_several(kind, column, at)
        case "msgpack" | "json":
            return list(map(_others(kind, column).__getitem__, at.tolist()))
    values = _numbers(column)[at]
    return list((values.astype("?") if kind is bool else values).tolist())


def _some_several(kind: Any, column: Column, at: Array) -> list[Any]:  # noqa: ANN401
    import numpy as np

    lengths = _numbers(column.which[0])
    ends = np.cumsum(lengths)
    spans = [np.arange(ends[place] - lengths[place], ends[place]) for place in at.tolist()]
    wanted = np.concatenate([np.empty(0, np.int64), *spans])
    records = iter(_some_records(get_args(kind)[0], column.parts, int(lengths.sum()), wanted))
    return [tuple(islice(records, len(span))) for span in spans]


@cache
def _decoder(kind: Any) -> Decoder[Any]:  # noqa: ANN401
    return made_alone(Decoder, list[kind], dec_hook=lambda known, plain: known(plain))
