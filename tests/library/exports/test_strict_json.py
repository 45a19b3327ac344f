"""JSON that every parser reads, with NaN and infinities as strings."""

import json
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType

from firstdrift.strict_json import to_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def spelled(value: object) -> object:
    """Say what a reader should find."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case list():
            return [spelled(item) for item in value]
        case dict():
            return {key: spelled(item) for key, item in value.items()}
        case _:
            return value


@given(VALUES)
def test_what_is_written_can_be_read_and_is_the_same(value: object) -> None:
    assert json.loads(to_json(value), parse_constant=refuse) == spelled(value)


@given(st.binary(max_size=8).map(os.fsdecode))
def test_the_name_of_any_file_can_be_encoded_and_comes_back(name: str) -> None:
    written = to_json({name: name}).encode("utf-8")
    assert json.loads(written) == {name: name}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        ([(1.5, None)], "[[1.5, null]]"),
        ({1: True}, '{"1": true}'),
        ("层", '"层"'),
        ("\udcff", '"\\udcff"'),
    ],
)
def test_values_are_spelled_so(value: object, text: str) -> None:
    assert to_json(value) == text


class Row(Struct, rename={"node_class": "class"}):
    node_class: str | None
    ranks: list[int] | UnsetType = UNSET


def test_a_record_has_its_fields_as_json_calls_them_and_none_that_is_unset() -> None:
    assert to_json(Row(None)) == '{"class": null}'
    assert to_json([Row("clean", [0, 1])]) == '[{"class": "clean", "ranks": [0, 1]}]'
