import math
import zlib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import DecodeError, Struct
from msgspec.structs import astuple

from firstdrift.catalogue.packing import (
    Block,
    pack,
    unpack,
    unpack_arrays,
    unpack_fields,
    unpack_inner,
    with_fields,
)
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Inner(Struct, frozen=True):
    size: int | None = None
    error: float | None = None


class Record(Struct, frozen=True):
    number: int = 0
    fraction: float | None = None
    flag: bool | None = None
    colour: Colour | None = None
    text: str = ""
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    reasons: tuple[Message, ...] = ()


def there_and_back(kind: type[Any], records: Sequence[Any]) -> list[Any]:
    return unpack(kind, pack(kind, records))


FRACTIONS = some.none() | some.floats()
INNER = some.builds(Inner, some.none() | some.integers(-(2**63), 2**63 - 1), FRACTIONS)
RECORDS = some.builds(
    Record,
    some.integers(),
    FRACTIONS,
    some.none() | some.booleans(),
    some.none() | some.sampled_from(Colour),
    some.text(some.characters(), max_size=5),
    some.none() | INNER,
    some.lists(INNER, max_size=3).map(tuple),
    some.lists(
        some.builds(Message.of, some.just("a"), n=some.integers(0, 3) | some.floats()), max_size=2
    ).map(tuple),
)


@given(some.lists(RECORDS, max_size=20))
def test_records_come_back_as_they_were(records: list[Record]) -> None:
    assert repr(there_and_back(Record, records)) == repr(records)  # NaN differs from itself


@given(some.lists(RECORDS, min_size=1, max_size=20), some.data())
def test_some_records_are_those_of_all(records: list[Record], data: some.DataObject) -> None:
    places = data.draw(some.lists(some.integers(0, len(records) - 1), max_size=4))
    block = Block(Record, pack(Record, records))
    assert len(block) == len(records)
    assert repr(block.at(places)) == repr([records[place] for place in places])
    assert repr(block.at([*range(len(records))])) == repr(records)
    assert repr(block.at(places)) == repr([records[place] for place in places])


def test_fields_of_records_in_records_are_lists_over_all() -> None:
    records = [Record(several=(Inner(1, 0.5), Inner(2, 1.5))), Record(), Record(several=(Inner(3, 2.5),))]
    assert unpack_inner(Record, pack(Record, records), "several", ("size",)) == ([2, 0, 1], [[1, 2, 3]])
    none = pack(Record, [])
    assert unpack_inner(Record, none, "several", ("size",)) == ([], [[]])


@pytest.mark.parametrize(
    "record",
    [
        Record(fraction=-0.0),
        Record(fraction=math.nan),
        Record(fraction=None),
        Record(fraction=math.inf),
        Record(number=-(2**63)),
        Record(number=2**64 - 1),
        Record(number=10**30),
        Record(text="\ud800 half of a character"),
        Record(text="\0 and \x1a"),
        Record(reasons=(Message.of("a", said=math.nan, of=Message.of("b", n=True)),)),
    ],
)
def test_hostile_values_come_back_beside_tame_ones(record: Record) -> None:
    records = [Record(), record, Record(number=1, fraction=1.0)]
    assert repr(there_and_back(Record, records)) == repr(records)


def test_a_node_comes_back_with_its_tensors_and_where_they_lie() -> None:
    location = DataLocation(Path("/dump/\udcff.pt"), "pt", shards=(DataLocation(Path("a"), "npy"),))
    full = TensorRecord(
        Role.INPUT, "0", "float32", (2, 3), Statistics(1.0, None, math.nan), location=location
    )
    nodes = [
        Node("a", "a", NodeKind.API, "Linear", Direction.FORWARD, 0, 0, None, (full,)),
        Node("b", "b", NodeKind.MODULE, "", Direction.NONE, 3, 1, "a", ()),
    ]
    assert repr(there_and_back(Node, nodes)) == repr(nodes)


def test_what_is_asked_of_single_fields_needs_no_records() -> None:
    records = [Record(3, 0.5, inner=Inner(7, 1.5), colour=Colour.GREEN), Record(), Record(-2, text="x")]
    packed = pack(Record, records)
    assert unpack_fields(Record, packed, ("text", "inner.size")) == [["", "", "x"], [7, None, None]]
    number, colour, error, size = unpack_arrays(
        Record, packed, ("number", "colour", "inner.error", "inner.size")
    )
    assert number.tolist() == [3, 0, -2]
    assert colour.tolist() == [1, -1, -1]
    assert size.tolist() == [7, -1, -1]
    assert np.array_equal(error, [1.5, np.nan, np.nan], equal_nan=True)


def test_arrays_of_nothing_are_of_the_kind_that_their_field_is() -> None:
    error, size = unpack_arrays(Record, pack(Record, [Record(), Record()]), ("inner.error", "inner.size"))
    assert np.isnan(error).all()
    assert size.tolist() == [-1, -1]


class Later(Struct, frozen=True):
    text: str = ""
    number: int = 0
    new: str = "as by default"


def test_fields_that_came_or_went_since_do_no_harm() -> None:
    packed = pack(Record, [Record(3, text="a", colour=Colour.RED), Record(4)])
    assert unpack(Later, packed) == [Later("a", 3), Later("", 4)]


@given(
    some.lists(RECORDS, min_size=1, max_size=5), some.sets(some.sampled_from(["number", "fraction", "text"]))
)
def test_fields_that_are_known_later_are_put_behind_the_rest(records: list[Record], later: set[str]) -> None:
    values = {name: tuple(getattr(one, name) for one in records) for name in sorted(later)}
    packed = with_fields(Record, pack(Record, records, later), values)
    assert repr(unpack(Record, packed)) == repr(records)
    for name in later:
        assert repr(unpack_fields(Record, packed, [name])) == repr([list(values[name])])


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_was_cut_short_is_not_read(*, is_whole: bool) -> None:
    packed = pack(Record, [Record(3, text="a")], () if is_whole else ("number",))
    for content in (packed, with_fields(Record, packed, {} if is_whole else {"number": (3,)})):
        with pytest.raises((zlib.error, DecodeError)):
            unpack(Record, content[:-1])


def test_equal_records_take_next_to_no_room() -> None:
    once, often = (len(pack(Record, [Record(7, 0.1, text="text")] * times)) for times in (1, 500))
    assert often < 2 * once


def test_an_object_that_comes_again_comes_back_as_one() -> None:
    reasons = (Message.of("a", n=1),)
    first, second = there_and_back(Record, [Record(reasons=reasons), Record(reasons=reasons)])
    assert first.reasons is second.reasons
    assert astuple(first) == astuple(second)
