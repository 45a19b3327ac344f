"""The contents of dump.json, whose records are decoded as types where msprobe wrote them as it mostly does.

    {"type": "torch.Tensor", "dtype": "torch.bool", "shape": [2], "Max": true, ...}    a TensorLeaf
    {"type": "int", "value": 3}                                                        a ScalarLeaf

That takes half of the time. A record in which anything is otherwise is read as any JSON is, and so are all if
a leaf has another key, or any object one twice. NaN and infinities, bare words that are no strict JSON, go
through the decoder as strings that the file does not have.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf, nan
from typing import Any, Final, TypeAlias

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from firstdrift.dumps.storage.json_file import JsonFile, parse_json

_MARK: Final = b"\x7f"
_STAND_INS: Final = {
    b"-Infinity": b'"\x7f-inf\x7f\x7f"',
    b"Infinity": b'"\x7finf\x7f\x7f"',
    b"NaN": b'"\x7f"',
}
_BARE_WORDS: Final = {stand_in: word for word, stand_in in _STAND_INS.items()}
_BEFORE_VALUE: Final = b" :[,\n\t"

_AFTER_KEY: Final = (b":", b'":')
"""There are more of them, where strings have some, but never fewer; the first is counted sooner."""

NOT_FINITE: Final = {"\x7f": nan, "\x7finf\x7f\x7f": inf, "\x7f-inf\x7f\x7f": -inf}
"""The numbers that JSON lacks, by what stands for them."""

Statistic: TypeAlias = float | bool | str | None


class TensorLeaf(Struct, tag_field="type", gc=False):
    """A tensor as msprobe records it."""

    dtype: str
    shape: tuple[int, ...]
    Max: Statistic
    Min: Statistic
    Mean: Statistic
    Norm: Statistic
    requires_grad: bool | None
    md5: str | None = None
    data_name: str | None = None

    def keys(self) -> int:
        """Return how many keys it was recorded with, unless one of the last two is null."""
        return 8 + (self.md5 is not None) + (self.data_name is not None)


class _OfTorch(TensorLeaf, tag="torch.Tensor", gc=False):
    """A tensor of PyTorch."""


class _OfMindSpore(TensorLeaf, tag="mindspore.Tensor", gc=False):
    """A tensor of MindSpore."""


class ScalarLeaf(Struct, tag_field="type", gc=False):
    """A Python argument as msprobe records it."""

    value: int | float | str | bool | None

    @property
    def type_name(self) -> str:
        """Return the name of its Python type."""
        return str(self.__struct_config__.tag)

    def keys(self) -> int:
        """Return how many keys it was recorded with."""
        return 2


class _Int(ScalarLeaf, tag="int", gc=False):
    """An int."""


class _Float(ScalarLeaf, tag="float", gc=False):
    """A float."""


class _Bool(ScalarLeaf, tag="bool", gc=False):
    """A bool."""


class _Str(ScalarLeaf, tag="str", gc=False):
    """A str."""


class _Dtype(ScalarLeaf, tag="torch.dtype", gc=False):
    """A dtype."""


_Leaf: TypeAlias = _OfTorch | _OfMindSpore | _Int | _Float | _Bool | _Str | _Dtype | None
_Value: TypeAlias = _Leaf | list[_Leaf | list[_Leaf]]


class _Dump(Struct):
    """The data of dump.json, record by record."""

    data: dict[str, Raw]


_record_of: Final = Decoder(dict[str, dict[str, _Value] | list[_Value] | bool | None]).decode
_dump_of: Final = Decoder(_Dump).decode


def typed_dump(read: Callable[[str, object], object], content: bytearray) -> JsonFile | None:
    """Read dump.json as `parse_json` does, but for its data: these are what `read` makes of each record.

    A record is given to `read` by its name, and forgotten. Its leaves are types, if it is as most are.

    Returns:
        None, and the contents as they were, where that cannot be done.
    """
    if _MARK in content:
        return None
    _swap(content, _STAND_INS)
    with suppress(DecodeError, ValueError):
        records = _dump_of(content).data
        header = parse_json(content[: content.index(b'"data"')].rstrip(b", \t\r\n").decode() + "}").value
        found, keys = {}, len(header) + 1 + len(records)
        for name, raw in records.items():
            record = _record(raw)
            keys += _keys_in(record)
            found[name] = read(name, record)
        if any(keys == content.count(mark) for mark in _AFTER_KEY):  # none is lost: unknown, or there twice
            return JsonFile(header | {"data": found}, ())
    _swap(content, _BARE_WORDS)
    return None


def as_recorded(value: object) -> object:
    """Return a value as the file has it: the number that JSON lacks for what stands for it."""
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _swap(content: bytearray, words: Mapping[bytes, bytes]) -> None:
    """Put words that are values into the places of others as long as they are."""
    for word, other in words.items():
        at = content.find(word)
        while at >= 0:
            if content[at - 1] in _BEFORE_VALUE:
                content[at : at + len(word)] = other
            at = content.find(word, at + len(word))


def _record(raw: Raw) -> Any:  # noqa: ANN401 (types, or whatever JSON has)
    try:
        return _record_of(raw)
    except ValidationError:
        return _any(raw)


def _any(raw: Raw) -> Any:  # noqa: ANN401 (whatever JSON has)
    content = bytearray(raw)
    _swap(content, _BARE_WORDS)
    return parse_json(content.decode()).value


def _keys_in(value: object) -> int:
    """Count the keys that were read of a record, which must be all that it has."""
    return _COUNTS.get(type(value), _no_keys)(value)


def _in_members(members: dict[str, object]) -> int:
    return len(members) + _in_items(members.values())


def _in_items(items: Iterable[object]) -> int:
    return sum([_COUNTS.get(type(item), _no_keys)(item) for item in items])


def _no_keys(_: object) -> int:
    return 0


_COUNTS: Final[Mapping[type, Callable[[Any], int]]] = {
    dict: _in_members,
    list: _in_items,
    **dict.fromkeys((_OfTorch, _OfMindSpore), TensorLeaf.keys),
    **dict.fromkeys((_Int, _Float, _Bool, _Str, _Dtype), ScalarLeaf.keys),
}
